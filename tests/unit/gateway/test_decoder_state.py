"""What decoders remember: over new connections, restarts and floods of invented names."""

import tracemalloc

import msgspec
import pytest

from gateway.decoders.parse_cache import MAX_CHARACTERS, cache_topics
from gateway.decoders.state import MAX_KEY_CHARACTERS, MAX_STATE_BYTES, DecoderState
from gateway.decoders.versioned_state import MAX_VALUE_BYTES, VersionStore


class TestState:
    def test_what_is_not_acknowledged_is_forgotten_with_its_connection(self) -> None:
        state = DecoderState([("a", b"found")])
        assert state.put("a", b"1")
        changes = state.take_changes()
        assert changes == [("a", b"1")]
        assert state.take_changes() == []
        state.roll_back()
        assert state.get("a") == b"found"
        assert state.put("a", b"1")
        state.acknowledged(state.take_changes())
        state.roll_back()
        assert state.get("a") == b"1"

    def test_settled_is_what_a_window_of_messages_came_after(self) -> None:
        state = DecoderState([("found", b"1")])
        state.window_messages = 3
        state.put("told", b"1")
        state.acknowledged(state.take_changes())
        for _ in range(2):
            state.take_changes()
        state.take_changes(repeatable=False)
        assert not state.settled("found"), "its message may be one of the window that comes again"
        state.take_changes()
        assert state.settled("found")
        assert not state.settled("told"), "its PUBACK may not have reached the broker"
        state.take_changes()
        assert state.settled("told")
        state.put("told", b"2")
        assert not state.settled("told"), "the newest is not acknowledged"
        state.roll_back()
        assert not state.settled("found"), "on a new connection a window comes again"

    def test_a_newer_change_survives_the_acknowledgement_of_an_older_one(self) -> None:
        state = DecoderState()
        state.put("a", b"1")
        first = state.take_changes()
        state.put("a", b"2")
        state.acknowledged(first)
        assert state.get("a") == b"2"
        state.roll_back()
        assert state.get("a") == b"1"

    def test_a_flood_of_invented_keys_within_a_window_costs_new_ones_only(self) -> None:
        state = DecoderState([("real", b"." * 50)], max_bytes=2000)
        kept = [name for name in (f"k{n:03}" for n in range(100)) if state.put(name, b"." * 100)]
        assert kept == [f"k{n:03}" for n in range(5)]
        assert state.put("real", b"!" * 50), "a change that needs no more room is always taken"
        assert not state.put("real", b"!" * 1000)
        assert state.get("real") == b"!" * 50
        state.roll_back()
        assert state.put("k099", b"." * 100), "what was forgotten takes no room"

    def test_a_key_of_the_length_of_a_hostile_topic_is_not_remembered(self) -> None:
        state = DecoderState()
        assert not state.put("." * (MAX_KEY_CHARACTERS + 1), b"1")
        assert state.take_changes() == []


def tell(state: DecoderState, key: str, value: bytes = b"." * 100) -> list[tuple[str, bytes]]:
    """One message that tells this, with its PUBACK; its changes."""
    assert state.put(key, value)
    changes = state.take_changes()
    state.acknowledged(changes)
    return changes


def hear(state: DecoderState, key: str) -> bytes | None:
    """One message about this key."""
    value = state.get(key)
    assert state.take_changes() == []
    return value


class TestRoom:
    """A state of six keys of 100 bytes that is full: three invented ones were told last."""

    @pytest.fixture
    def full(self) -> DecoderState:
        state = DecoderState(max_bytes=6 * 310)
        state.window_messages = 3
        for key in ("a", "b", "c", "x1", "x2", "x3"):
            tell(state, key)
        return state

    def test_who_was_not_heard_of_for_longest_leaves_also_from_the_log(self, full: DecoderState) -> None:
        hear(full, "a")
        assert tell(full, "new") == [("b", b""), ("new", b"." * 100)]
        assert (full.get("b"), full.get("a"), full.get("c")) == (None, b"." * 100, b"." * 100)
        full.roll_back()
        assert (full.get("b"), full.get("new")) == (None, b"." * 100)

    def test_however_many_are_invented_those_at_work_stay_and_new_ones_come_in(
        self, full: DecoderState, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(1000):
            assert hear(full, "a")
            assert hear(full, "b")
            tell(full, f"x{number}")
        assert tell(full, "new")[-1] == ("new", b"." * 100)
        assert sum(full.get(key) is not None for key in ("c", *(f"x{n}" for n in range(1000)))) == 3
        assert caplog.text.count("making up new names") == 1

    def test_what_a_message_that_may_come_again_was_about_stays(self, full: DecoderState) -> None:
        full.window_messages = 5
        for key in ("x1", "x2", "a", "b", "c"):
            hear(full, key)
        assert full.put("one", b"." * 100), "x3 was heard of before the window"
        full.acknowledged(full.take_changes())
        full.window_messages = 1000
        assert not full.put("two", b"." * 100)
        assert full.get("a") is not None

    def test_nobody_leaves_where_that_would_not_be_enough(self, full: DecoderState) -> None:
        assert not full.put("huge", b"." * 2000)
        assert full.take_changes() == []
        assert full.get("a") is not None

    def test_who_left_for_a_message_that_comes_again_is_back(self, full: DecoderState) -> None:
        assert full.put("new", b"." * 100)
        full.take_changes()
        assert full.get("a") is None
        full.roll_back()
        assert full.get("a") == b"." * 100
        hear(full, "a")
        assert tell(full, "new") == [("b", b""), ("new", b"." * 100)]

    def test_room_is_counted_right_over_every_turn(self, full: DecoderState) -> None:
        full.window_messages, left = 1, 0
        waiting: list[tuple[str, bytes]] = []
        for number in range(200):
            full.put(f"n{number}", b"." * (1 + number * 37 % 100))
            waiting += full.take_changes()
            if number % 3:
                left += sum(not value for _key, value in waiting)
                full.acknowledged(waiting)
                waiting = []
            if number % 7 == 0:
                full.roll_back()
                waiting = []
            held = sum(len(key) + len(full._newest(key) or b"") + 200 for key in full._heard_at)
            assert full._held_bytes == held <= 6 * 310
        assert left > 50

    def test_after_a_restart_a_full_log_is_no_full_state(self, full: DecoderState) -> None:
        log = dict.fromkeys((f"x{n}" for n in range(20)), b"." * 100)
        again = DecoderState(log.items(), max_bytes=6 * 310)
        again.window_messages = 3
        assert tell(again, "new") == [("new", b"." * 100)], "some room is left for who is new"
        assert again.get("x19") is not None, "written last"
        assert again.get("x0") is None
        for _ in range(4):
            hear(again, "x19")
        for key in ("n1", "n2", "n3"):
            assert tell(again, key) == [(key, b"." * 100)], "what was only found may be another gateway's to keep"


class TestTold:
    def test_a_telling_that_comes_again_or_changes_nothing_makes_no_record(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        assert told.learn(b"A", 100)
        assert len(state.take_changes()) == 1
        assert told.learn(b"A", 100)
        assert told.learn(b"A", 200)
        assert state.take_changes() == []
        assert told.contents(150) == [b"A"]

    def test_after_a_restart_the_clock_says_which_one_a_message_belongs_to(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 200)
        told.contents(250)
        found = dict(state.take_changes())
        again = VersionStore(DecoderState(found.items())).entry("k")
        assert again.contents(150) == [b"A"], "it was sent before B was told"
        assert again.contents(100) == [b"A"]
        again.learn(b"B", 200)
        assert again.contents(1) == [b"B"], "by order, whatever the clock says"

    def test_a_message_past_all_older_ones_is_of_the_newest(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 200)
        again = VersionStore(DecoderState(dict(state.take_changes()).items())).entry("k")
        assert again.contents(151) == [b"B"]
        assert again.contents(120) == [b"B"], "nothing comes out of order"

    @pytest.mark.parametrize("time_ms", [110, 150, None])
    def test_a_clock_that_ran_back_at_the_telling_decides_nothing(self, time_ms: int | None) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 50)
        again = VersionStore(DecoderState(dict(state.take_changes()).items())).entry("k")
        assert again.contents(time_ms) == [b"A", b"B"]

    def test_a_message_from_before_the_first_telling_has_none(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        assert told.contents(100) == []
        told.learn(b"A", 200)
        again = VersionStore(DecoderState(dict(state.take_changes()).items())).entry("k")
        assert again.contents(100) == []
        assert again.contents(201) == [b"A"]

    def test_once_settled_the_older_one_is_dropped_from_the_log(self) -> None:
        state = DecoderState()
        state.window_messages = 3
        memory = VersionStore(state)
        for content, time_ms in ((b"A", 100), (b"B", 200)):
            memory.entry("k").learn(content, time_ms)
            changes = state.take_changes()
            state.acknowledged(changes)
        assert len(msgspec.msgpack.decode(changes[0][1])) == 2
        state.roll_back()
        assert memory.entry("k").contents(50) == [b"A"], "the PUBACKs were lost on their way"
        for _ in range(4):
            assert state.take_changes() == []
        assert memory.entry("k").contents(60) == [b"B"], "by order"
        [(_key, value)] = state.take_changes()
        assert len(msgspec.msgpack.decode(value)) == 1
        assert VersionStore(DecoderState([("k", value)])).entry("k").contents(1) == [b"B"]
        memory.entry("k").contents(300)
        assert state.take_changes() == [], "once"

    def test_more_changes_than_are_kept_leave_the_oldest_undecided_not_wrong(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        for number in range(8):
            told.learn(b"%d" % number, 100 * number)
            told.contents(100 * number + 50)
        again = VersionStore(DecoderState(dict(state.take_changes()).items())).entry("k")
        assert again.contents(250) == []
        assert again.contents(450) == [b"4"]
        assert again.contents(750) == [b"7"]

    def test_values_stay_within_a_kafka_record(self) -> None:
        state = DecoderState()
        told = VersionStore(state).entry("k")
        for number in range(4):
            assert told.learn(b"%d" % number * 200_000, 100 * number)
        assert len(state.get("k") or b"") <= MAX_VALUE_BYTES
        assert not told.learn(b"." * (MAX_VALUE_BYTES + 1), 900)
        assert told.contents(950) == [b"3" * 200_000], "what could not be kept was not told"

    @pytest.mark.parametrize("value", [b"", b"\xff", b"\x90", b"\x91\x93\x01", b"{}"])
    def test_a_value_that_is_none_of_ours_is_nothing(self, value: bytes) -> None:
        assert VersionStore(DecoderState([("k", value)])).entry("k").contents(5) == []


class TestBounds:
    def test_what_is_kept_of_keys_is_bounded_by_bytes_and_loses_nothing_known(self) -> None:
        state = DecoderState()
        state.window_messages = 3
        memory = VersionStore(state)
        tracemalloc.start()
        for number in range(600):
            assert memory.entry(f"k{number}").learn(b"%07d" % number + b"." * 300_000, 1)
            state.acknowledged(state.take_changes())
        used, _peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 3 * MAX_STATE_BYTES
        assert memory.entry("k599").contents(2)[0].startswith(b"0000599")
        assert memory.entry("k0").contents(2) == [], "it left the state"

    def test_keys_that_told_nothing_or_are_too_long_cost_nothing(self) -> None:
        state = DecoderState()
        memory = VersionStore(state)
        long = "." * 60_000
        tracemalloc.start()
        for number in range(2000):
            assert memory.entry(f"silent{number}").contents(None) == []
            told = memory.entry(f"{long}{number}")
            assert told.contents(5) == []
            assert not told.learn(b"A", 6)
            memory.entry(f"{number}{long[:1000]}").contents(5)
        used, _peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 2000 * 2000

    def test_the_newest_time_before_the_first_telling_is_kept_over_other_messages(self) -> None:
        state = DecoderState()
        memory = VersionStore(state)
        assert memory.entry("k").contents(100) == []
        memory.entry("other").contents(1)
        memory.entry("k").learn(b"A", 50)
        again = VersionStore(DecoderState(dict(state.take_changes()).items())).entry("k")
        assert again.contents(90) == [b"A", b""], "it may be from before the telling, whose clock ran back"

    def test_a_topic_of_any_length_is_read_and_only_short_ones_are_kept(self) -> None:
        asked: list[str] = []

        @cache_topics
        def read(topic: str) -> int:
            asked.append(topic)
            return len(topic)

        for length in (10, 10, MAX_CHARACTERS + 1, MAX_CHARACTERS + 1, 65_535):
            assert read("t" * length) == length
        assert [len(topic) for topic in asked] == [10, MAX_CHARACTERS + 1, MAX_CHARACTERS + 1, 65_535]
