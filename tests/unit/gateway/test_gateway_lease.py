"""Leases: who may start, who waits, and who takes over when, by Kafka's order and one's own clock only."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lease.gateway_lease import is_running
from ingest.contract.errors import ConfigError, FatalError, RetryableError
from tests.support.leases import World

PAIR = {"standby": True}


def test_a_first_gateway_begins_at_once_and_says_so() -> None:
    world = World()
    one = world.process("one")
    assert one.step() == ""
    [record] = world.records()
    assert (record.gateway, record.process, record.term, record.released) == ("gw-1", "one/1/a", 1, False)
    world.pass_time(20, one)
    assert len(world.records()) == 6, "about every four seconds"
    assert {record.term for record in world.records()} == {1}
    assert one.timer.at is None, "nobody replaces it, so nothing ends it"


def test_a_second_gateway_of_the_same_id_ends_with_both_names() -> None:
    world = World()
    one, two = world.process("one"), world.process("two", client_id="other", filters=("else/#",))
    one.step()
    assert "conflicts with this one" in two.step(), "nobody knows yet whether the first one lives"
    world.pass_time(5, one)
    with pytest.raises(ConfigError, match=r"gateway_id 'gw-1' \(process one/1, MQTT client id 'gate'") as raised:
        two.step()
    assert raised.value.exit_code == 78
    assert one.holds


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"client_id": "gate-2", "filters": ("site/+/state",)}, "both take the topic site/any/state"),
        ({"filters": ("else/#",)}, "both use 'gate' at b:1883"),
        ({"client_id": "gate-2", "filters": ("else/#",)}, None),
        ({"broker": "c:1883"}, None),
        ({"client_id": "gate-2", "filters": ("$share/g/else/#",)}, None),
    ],
)
def test_gateways_of_different_ids_conflict_by_client_id_and_filters(
    other: dict[str, object], said: str | None
) -> None:
    world = World()
    one, two = world.process("one"), world.process("two", gateway="gw-2", **other)
    one.step()
    two._follower.catch_up()
    if said is None:
        assert two.step() == ""
        return
    two.step()
    world.pass_time(5, one)
    with pytest.raises(ConfigError, match=said) as raised:
        two.step()
    assert "'gw-1'" in str(raised.value)
    assert "'gw-2'" in str(raised.value)


@pytest.mark.parametrize("looks", [1, 2])
def test_of_two_gateways_that_start_at_once_exactly_one_ends(looks: int) -> None:
    """The second one acts before the first one's first look, or between its record and its second look."""
    world = World()
    one, two = world.process("one"), world.process("two", gateway="gw-2", client_id="gate-2")
    ended: list[str] = []

    def act(name: str, process: object) -> None:
        try:
            process.step()  # type: ignore[attr-defined]
        except ConfigError:
            ended.append(name)

    def second() -> None:
        if looks == 2:
            one.before_look = lambda: act("two", two)
        else:
            act("two", two)

    one.before_look = second
    act("one", one)
    world.pass_time(5, *(process for process in (one, two) if process.lease.held))
    for name, process in (("one", one), ("two", two)):
        if not process.lease.held and not ended:
            act(name, process)
    assert len(ended) == 1
    assert one.holds != two.holds


def test_a_gateway_that_ended_blocks_nobody_for_longer_than_its_lease() -> None:
    world = World()
    world.process("one").step()
    two = world.process("two", gateway="gw-2", client_id="gate-2")
    two.step()
    world.pass_time(19.5)
    assert "waiting up to 20 s" in two.step()
    world.pass_time(1)
    assert two.step() == ""


def test_a_restart_on_the_same_machine_waits_for_nothing() -> None:
    world = World()
    world.process("one", machine="m", process="m/7/a").step()
    world.pids.add(7)
    two = world.process("one", machine="m", process="m/8/b")
    assert "still runs" in two.step()
    world.pids.clear()
    assert two.step() == ""
    assert world.records()[-1].term == 2
    three = world.process("one", machine="m", process="m/8/c")
    assert three.step() == "", "the same process id is another process only if the first one has ended"


def test_processes_that_run_are_known() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid), "ended, and its parent has not noticed yet"
    child.wait()
    assert not is_running(child.pid)
    assert is_running(os.getpid())


def test_a_gateway_may_start_beside_another_one_by_a_setting(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.process("one").step()
    two = world.process("two", gateway="gw-2", conflicts="warn")
    assert two.step() == ""
    assert "both use 'gate' at b:1883" in caplog.text


def test_a_standby_takes_over_only_after_a_whole_lease_without_a_sign() -> None:
    world = World()
    one, two = world.process("one", **PAIR), world.process("two", **PAIR)
    world.pass_time(0.5, one)
    world.pass_time(60, one, two)
    assert one.holds
    assert two.lease.waits_as_standby
    assert two.step() == "standby: process one/1 holds the lease of gateway gw-1"
    world.pass_time(15.5, two)
    assert not two.holds
    world.pass_time(1, two)
    assert one.alive is False, "the kernel has killed it before"
    world.pass_time(4, two)
    assert two.holds
    assert world.records()[-1].term == 2


def test_a_release_is_followed_at_once() -> None:
    world = World()
    one, two = world.process("one", **PAIR), world.process("two", **PAIR)
    world.pass_time(3, one, two)
    one.lease.release(one.writer, 1)
    one.lease.close()
    assert one.timer.at is None
    world.pass_time(0.5, two)
    assert two.holds


def test_a_lease_with_records_in_flight_is_not_released() -> None:
    world = World()
    one = world.process("one", **PAIR)
    one.step()
    world.log.hold()
    one.writer.produce("t", b"k", b"v", lambda _error: None)
    one.lease.release(one.writer, 1)
    assert not any(record.released for record in world.records())


def test_a_holder_without_a_timer_ends_itself_when_it_runs_again() -> None:
    world = World()
    one, two = world.process("one", has_timer=False, **PAIR), world.process("two", **PAIR)
    world.pass_time(3, one, two)
    world.pass_time(60, two)
    assert two.holds
    with pytest.raises(FatalError, match="could not renew the lease of gateway gw-1") as raised:
        one.keep()
    assert raised.value.exit_code == 1


def test_a_holder_whose_records_kafka_does_not_take_ends_in_time() -> None:
    world = World()
    one = world.process("one", **PAIR)
    one.step()
    world.log.hold()
    world.pass_time(14, one)
    assert one.holds
    world.pass_time(0.5, one)
    assert not one.alive, "by itself, before the kernel does it"


def test_a_holder_without_the_broker_gives_way_to_a_standby_that_reaches_it() -> None:
    world = World()
    one, two = world.process("one", **PAIR), world.process("two", **PAIR)
    world.pass_time(3, one, two)
    one.connected = False
    assert one.keep()
    world.now += 4.5
    assert one.keep(), "a broker that restarts is back by then"
    world.now += 0.5
    assert not one.keep()
    one.lease.release(one.writer, 1)
    two.unreachable = "standby: cannot reach the MQTT broker"
    world.pass_time(60, two)
    assert not two.holds
    assert two.lease.waits_as_standby
    two.unreachable = ""
    world.pass_time(0.5, two)
    assert two.holds


def test_a_gateway_without_a_standby_waits_for_broker_and_kafka() -> None:
    world = World()
    one = world.process("one")
    one.step()
    one.connected = False
    world.log.hold()
    world.pass_time(600, one)
    assert one.holds
    assert one.keep()


def test_a_standby_needs_the_setting_on_both_sides() -> None:
    world = World()
    one, two = world.process("one"), world.process("two", **PAIR)
    one.step()
    two.step()
    world.pass_time(5, one)
    with pytest.raises(ConfigError, match=r"gateway\.standby: gateway 'gw-1' runs without it"):
        two.step()


def test_terms_and_epochs_ascend_over_machines() -> None:
    world = World()
    one = world.process("one", **PAIR)
    one.step()
    one.epoch = 77
    one.keep()
    assert world.records()[-1].epoch == 77, "at once, not at the next renewal"
    two = world.process("two", **PAIR)
    world.pass_time(21, two)
    assert two.holds
    assert two.lease.epoch == 77


def test_a_record_that_kafka_rejects_is_tried_again() -> None:
    world = World()
    one = world.process("one")
    world.log.fail_next("retriable", "no such topic")
    with pytest.raises(RetryableError, match="no such topic"):
        one.step()
    assert one.step() == ""


def test_an_older_gateway_and_foreign_records_are_no_obstacle() -> None:
    world = World()
    for key in (b"tidegate/gw-1/lease", b"tidegate/gw-1/held", b"node/a/lease"):
        world.log.writer().produce("telemetry.gateway-state", key, b'{"session":"x"}', lambda _error: None)
    assert world.process("one").step() == ""


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.floats(0.0, 6.0)), min_size=80, max_size=80),
    st.lists(st.tuples(st.integers(0, 79), st.sampled_from([0, 1, 2]), st.integers(4, 16)), max_size=6),
    st.lists(st.tuples(st.integers(0, 79), st.integers(1, 8)), max_size=2),
)
def test_never_do_two_processes_hold_the_lease(
    turns: list[tuple[int, float]], stops: list[tuple[int, int, int]], hangs: list[tuple[int, int]]
) -> None:
    """Three processes act in any order with any pauses. Some stand still for many turns, and sometimes Kafka reports nothing."""
    world = World()
    processes = [world.process(name, **PAIR) for name in ("a", "b", "c")]
    for place, (who, pause) in enumerate(turns):
        if any(begin <= place < begin + count for begin, count in hangs):
            # What is handed over is in the log, and no report comes.
            world.log.hold(stored=True)
        else:
            world.log.release()
        world.pass_time(pause)
        if not any(one == who and begin <= place < begin + count for begin, one, count in stops):
            processes[who].act()
        assert sum(process.holds for process in world.processes) <= 1, place
        if not processes[who].alive:
            processes[who] = world.process(f"{'abc'[who]}{place}", **PAIR)
