"""How often a device may send: a flood is refused at once, what we held up ourselves is not a flood."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.profiles.policy import ProfilePolicy
from gateway.rate import DeviceRate

SECOND = 1_000_000
T0 = 1_790_000_000 * SECOND


class Clocked:
    """A rate and the clock by which messages are received."""

    def __init__(
        self, per_second: float = 1, burst: float = 5, *, catch_up_seconds: float = 0, max_devices: int = 100
    ) -> None:
        self.now_us, self.number = T0, 0
        self.rate = DeviceRate(
            per_second, burst, catch_up_seconds=catch_up_seconds, max_devices=max_devices, now_us=lambda: self.now_us
        )

    def send(self, device: str = "a", times: int = 1) -> int:
        """How many of so many messages at once pass."""
        passed = 0
        for _ in range(times):
            self.number += 1
            passed += self.rate.take(device, self.now_us, self.number)
        return passed

    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)

    def acknowledge(self) -> None:
        self.rate.acknowledged(self.number)


def test_a_burst_then_the_rate() -> None:
    one = Clocked(per_second=2, burst=5)
    assert one.send(times=20) == 5
    one.wait(1)
    assert one.send(times=20) == 2
    one.wait(0.25)
    assert one.send() == 0
    one.wait(0.25)
    assert one.send() == 1, "halves add up"
    one.wait(3600)
    assert one.send(times=20) == 5, "no more than the burst, however long it was silent"


def test_a_flood_costs_no_other_device() -> None:
    one = Clocked()
    for _ in range(100):
        assert one.send("flood", 50) <= 5
        assert one.send("good") == 1
        one.wait(1)


def test_a_clock_set_back_stops_nobody_and_one_set_ahead_gives_a_burst_at_most() -> None:
    one = Clocked()
    assert one.send(times=20) == 5
    one.wait(-365 * 86400)
    assert one.send(times=20) == 0
    one.wait(2)
    assert one.send(times=20) == 2, "it goes on from there"
    one.wait(365 * 86400)
    assert one.send(times=20) == 5
    one.wait(-365 * 86400)
    one.wait(1)
    assert one.send(times=20) == 0, "the step back itself gives nothing"
    one.wait(1)
    assert one.send(times=20) == 1


def test_what_is_delivered_again_is_not_charged_twice() -> None:
    one = Clocked(per_second=0.001, burst=5)
    assert one.send(times=3) == 3
    one.acknowledge()
    assert one.send(times=2) == 2
    one.rate.roll_back()
    assert one.send(times=4) == 2, "the two that come again, and no other"


def test_a_device_may_catch_up_what_it_queued_while_kafka_did_not_answer() -> None:
    one = Clocked(per_second=1, burst=5, catch_up_seconds=600)
    one.acknowledge()
    one.wait(3600)
    one.send()
    one.acknowledge()
    one.wait(3600)  # long past the grace of the start
    assert one.send(times=20) == 5
    one.acknowledge()
    one.wait(10)
    assert one.send(times=2) == 2
    one.wait(300)  # Kafka hangs; the broker keeps what comes
    one.acknowledge()
    assert one.send(times=400) == 300 + 5 - 2
    assert one.send("new", times=400) == 300 + 5, "also one that was not seen before"
    one.acknowledge()
    one.wait(3600)
    assert one.send(times=400) == 5, "and no longer than that"


def test_a_device_may_catch_up_what_it_queued_while_there_was_no_connection() -> None:
    one = Clocked(per_second=1, burst=5, catch_up_seconds=100)
    one.send()
    one.acknowledge()
    one.wait(3600)
    one.send(times=20)
    one.acknowledge()
    one.wait(60)
    one.rate.roll_back()
    assert one.send(times=400) == 60, "its burst was spent"
    one.acknowledge()
    one.wait(3600)
    one.rate.roll_back()
    assert one.send(times=400) == 100 + 5, "at most as long as the setting says"
    assert one.send("new", times=400) == 100 + 5, "also one that was never seen"


def test_a_slow_kafka_adds_up_what_it_held_up() -> None:
    """Messages wait side by side: each tells of the same stop, and only what is new of it counts."""
    one = Clocked(per_second=1, burst=5, catch_up_seconds=600)
    one.send()
    one.acknowledge()
    one.wait(7200)
    one.send("other")
    one.acknowledge()
    for _ in range(20):
        one.send("other", 1)
        before = one.number
        one.wait(5)
        one.send("third", 1)
        one.wait(5)
        one.rate.acknowledged(before)
        one.acknowledge()
    assert one.send(times=400) == 200 + 5


def test_a_quick_reconnect_gives_a_flood_no_credit() -> None:
    one = Clocked(per_second=1, burst=5, catch_up_seconds=600)
    one.send()
    one.acknowledge()
    one.wait(7200)
    assert one.send("flood", 50) == 5
    one.acknowledge()
    for _ in range(20):
        one.wait(0.1)
        one.rate.roll_back()
        assert one.send("flood", 50) <= 1
        one.acknowledge()


def test_memory_is_bounded_and_the_longest_silent_go_first() -> None:
    one = Clocked(max_devices=10)
    assert one.send("busy", 9) == 5
    for number in range(100):
        one.send(f"d{number}")
        assert one.send("busy") == 0, "one that keeps sending is not forgotten"
    assert len(one.rate) == 10


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3), st.integers(0, 3)), max_size=60),
    st.floats(0.1, 5),
    st.integers(1, 20),
)
def test_never_more_than_burst_and_rate_allow(
    events: list[tuple[str, float, int]], per_second: float, burst: int
) -> None:
    one = Clocked(per_second, burst)
    passed: dict[str, list[float]] = {"a": [], "b": []}
    elapsed = 0.0
    for device, wait, times in events:
        one.wait(wait)
        elapsed += wait
        passed[device] += [elapsed] * one.send(device, times)
        one.acknowledge()
    for moments in passed.values():
        for first, begin in enumerate(moments):
            for last in range(first, len(moments)):
                assert last - first + 1 <= burst + per_second * (moments[last] - begin) + 1e-3


def test_a_rate_slower_than_a_message_a_minute() -> None:
    one = Clocked(per_second=1 / 120, burst=1)
    assert one.send() == 1
    one.wait(119)
    assert one.send() == 0
    one.wait(1)
    assert one.send() == 1


def test_its_fill_is_the_share_of_devices_in_use() -> None:
    rate = DeviceRate(1, 1, catch_up_seconds=1, max_devices=4)
    policy = ProfilePolicy(rate=rate)
    assert policy.memory_fill() == {"rate": 0, "tracks": 0}
    for number in range(3):
        rate.take(f"d{number}", 1, number)
    assert policy.memory_fill() == {"rate": 0.75, "tracks": 0}


def test_who_may_send_a_whole_burst_again_fills_nothing() -> None:
    rate = DeviceRate(2, 10, catch_up_seconds=0, max_devices=4)
    rate.take("a", 1_000_000, 1)
    rate.take("b", 1_200_000, 2)
    assert rate.fill == 0.5
    rate.take("c", 1_600_000, 3)  # half a second gives a back what it took
    assert rate.fill == 0.5
    assert len(rate) == 2
    rate.roll_back()
    assert [rate.take("a", 1_600_000, number) for number in range(4, 15)] == [True] * 10 + [False]
