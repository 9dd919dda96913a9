"""What decoders remember: over new connections, restarts and floods of invented names."""

import msgspec
import pytest

from gateway.decoders.state import DecoderState
from gateway.decoders.told import MAX_VALUE_BYTES, Memory


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

    def test_a_flood_of_invented_keys_costs_new_ones_only(self) -> None:
        state = DecoderState([("real", b"." * 50)], max_bytes=2000)
        kept = [name for name in (f"k{n:03}" for n in range(100)) if state.put(name, b"." * 100)]
        assert kept == [f"k{n:03}" for n in range(5)]
        assert state.put("real", b"!" * 50), "a change that needs no more room is always taken"
        assert not state.put("real", b"!" * 1000)
        assert state.get("real") == b"!" * 50
        state.roll_back()
        assert state.put("k099", b"." * 100), "what was forgotten takes no room"


class TestTold:
    def test_a_telling_that_comes_again_or_changes_nothing_makes_no_record(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        assert told.learn(b"A", 100)
        assert len(state.take_changes()) == 1
        assert told.learn(b"A", 100)
        assert told.learn(b"A", 200)
        assert state.take_changes() == []
        assert told.contents(150) == [b"A"]

    def test_after_a_restart_the_clock_says_which_one_a_message_belongs_to(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 200)
        told.contents(250)
        found = dict(state.take_changes())
        again = Memory(DecoderState(found.items())).told("k")
        assert again.contents(150) == [b"A"], "it was sent before B was told"
        assert again.contents(100) == [b"A"]
        again.learn(b"B", 200)
        assert again.contents(1) == [b"B"], "by order, whatever the clock says"

    def test_a_message_past_all_older_ones_is_of_the_newest(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 200)
        again = Memory(DecoderState(dict(state.take_changes()).items())).told("k")
        assert again.contents(151) == [b"B"]
        assert again.contents(120) == [b"B"], "nothing comes out of order"

    @pytest.mark.parametrize("time_ms", [110, 150, None])
    def test_a_clock_that_ran_back_at_the_telling_decides_nothing(self, time_ms: int | None) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        told.learn(b"A", 100)
        told.contents(150)
        told.learn(b"B", 50)
        again = Memory(DecoderState(dict(state.take_changes()).items())).told("k")
        assert again.contents(time_ms) == [b"A", b"B"]

    def test_a_message_from_before_the_first_telling_has_none(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        assert told.contents(100) == []
        told.learn(b"A", 200)
        again = Memory(DecoderState(dict(state.take_changes()).items())).told("k")
        assert again.contents(100) == []
        assert again.contents(201) == [b"A"]

    def test_once_settled_the_older_one_is_dropped_from_the_log(self) -> None:
        state = DecoderState()
        state.window_messages = 3
        memory = Memory(state)
        for content, time_ms in ((b"A", 100), (b"B", 200)):
            memory.told("k").learn(content, time_ms)
            changes = state.take_changes()
            state.acknowledged(changes)
        assert len(msgspec.msgpack.decode(changes[0][1])) == 2
        state.roll_back()
        assert memory.told("k").contents(50) == [b"A"], "the PUBACKs were lost on their way"
        for _ in range(4):
            assert state.take_changes() == []
        assert memory.told("k").contents(60) == [b"B"], "by order"
        [(_key, value)] = state.take_changes()
        assert len(msgspec.msgpack.decode(value)) == 1
        assert Memory(DecoderState([("k", value)])).told("k").contents(1) == [b"B"]
        memory.told("k").contents(300)
        assert state.take_changes() == [], "once"

    def test_more_changes_than_are_kept_leave_the_oldest_undecided_not_wrong(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        for number in range(8):
            told.learn(b"%d" % number, 100 * number)
            told.contents(100 * number + 50)
        again = Memory(DecoderState(dict(state.take_changes()).items())).told("k")
        assert again.contents(250) == []
        assert again.contents(450) == [b"4"]
        assert again.contents(750) == [b"7"]

    def test_values_stay_within_a_kafka_record(self) -> None:
        state = DecoderState()
        told = Memory(state).told("k")
        for number in range(4):
            assert told.learn(b"%d" % number * 200_000, 100 * number)
        assert len(state.get("k") or b"") <= MAX_VALUE_BYTES
        assert not told.learn(b"." * (MAX_VALUE_BYTES + 1), 900)
        assert told.contents(950) == [b"3" * 200_000], "what could not be kept was not told"

    @pytest.mark.parametrize("value", [b"", b"\xff", b"\x90", b"\x91\x93\x01", b"{}"])
    def test_a_value_that_is_none_of_ours_is_nothing(self, value: bytes) -> None:
        assert Memory(DecoderState([("k", value)])).told("k").contents(5) == []
