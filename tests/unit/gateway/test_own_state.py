"""What a gateway knows of itself after a restart: numbers of devices, and the filters of its session."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.delivery.sequence import SequenceTracker
from gateway.memory.restart_state import GatewayState, is_own_state
from gateway.memory.state_watch import SharedIdDetector
from ingest.contract.outcome import OutcomeRecord
from ingest.contract.topics import GATEWAY_STATE
from ingest.memory import MemoryLog


class Gateway:
    """One process: its tracker, and what it writes of itself."""

    def __init__(self, log: MemoryLog, outcomes: list[OutcomeRecord], session: str = "gate@b:1883") -> None:
        self.writer, self.outcomes, self.seconds = log.writer(), outcomes, 0.0
        self.tracker = SequenceTracker()
        self.own = GatewayState(
            "gw-1",
            session,
            self.tracker,
            wall_ms=lambda: 1_000_000_000 + int(self.seconds * 1000),
            clock=lambda: self.seconds,
        )
        found = {(record.key or b"").decode(): record.value for record in log.records(GATEWAY_STATE)}
        since = self.own.load([(key, value) for key, value in found.items() if value])
        if since is not None:
            self.own.replay(outcomes)

    def count(self, *numbers: tuple[str, int, int]) -> tuple[int, int]:
        """One outcome of these messages; returns its gap and reordered."""
        found = self.tracker.follow(numbers)
        highs = [(d, b, self.tracker.high(d, b)) for d, b in {(d, b): None for d, b, _ in numbers}]
        outcome = OutcomeRecord(1, "gw-1", 1, 1, 1, [], 1, [(d, b, high) for d, b, high in highs if high is not None])
        self.outcomes.append(outcome)
        self.own.follow(outcome)
        return sum(one[1] for one in found), sum(one[2] for one in found)

    def save(self, **more: Any) -> None:
        self.own.save(self.writer, **more)
        self.writer.flush(1)


def test_a_gap_over_a_restart_is_counted() -> None:
    log, outcomes = MemoryLog(), []
    first = Gateway(log, outcomes)
    first.save()
    first.count(("d", 7, 49), ("d", 7, 50))
    first.save(stopped=True)
    assert Gateway(log, []).count(("d", 7, 100)) == (49, 0), "from what was written at the stop"
    assert Gateway(log, outcomes).count(("e", 7, 100)) == (0, 0)


def test_after_a_kill_the_outcomes_say_what_was_acknowledged() -> None:
    log, outcomes = MemoryLog(), []
    first = Gateway(log, outcomes)
    first.save()
    first.count(("d", 7, 50))
    second = Gateway(log, outcomes)
    assert second.count(("d", 7, 50), ("d", 7, 51)) == (0, 0), "the redelivery and the next one are no gap"
    assert second.count(("d", 7, 61)) == (9, 0)


def test_a_late_number_over_a_restart_is_reordered() -> None:
    log, outcomes = MemoryLog(), []
    first = Gateway(log, outcomes)
    assert first.count(("d", 7, 1), ("d", 7, 5)) == (3, 0)
    first.save(stopped=True)
    assert Gateway(log, outcomes).count(("d", 7, 3), ("d", 7, 3)) == (0, 1)


def test_it_is_written_about_once_a_minute_and_when_the_filters_change() -> None:
    log, outcomes = MemoryLog(), []
    gateway = Gateway(log, outcomes)
    gateway.save()
    written = len(log.records(GATEWAY_STATE))
    for number in range(200):
        gateway.count(("d", 7, number))
        gateway.seconds += 0.1
        gateway.save()
    assert len(log.records(GATEWAY_STATE)) == written
    gateway.own.filters = ("hall1/#",)
    gateway.save()
    assert len(log.records(GATEWAY_STATE)) == written + 2
    gateway.seconds += 60
    gateway.save()
    assert len(log.records(GATEWAY_STATE)) == written + 3, "nothing of devices changed"
    assert all(is_own_state((record.key or b"").decode()) for record in log.records(GATEWAY_STATE))
    assert Gateway(log, outcomes).own.filters == ("hall1/#",)


def test_a_stop_is_written_though_a_save_is_on_its_way() -> None:
    log, outcomes = MemoryLog(), []
    first = Gateway(log, outcomes)
    first.count(("d", 7, 49))
    first.own.save(first.writer)
    first.count(("d", 7, 50))
    first.save(stopped=True)
    assert Gateway(log, [], session="other@b:1883").own.shared_with is None, "the first one said that it stopped"
    assert Gateway(log, []).count(("d", 7, 52)) == (1, 0)


def test_what_was_on_its_way_to_a_lost_writer_is_written_again() -> None:
    log, outcomes = MemoryLog(), []
    gateway = Gateway(log, outcomes)
    gateway.save()
    gateway.count(("d", 7, 50))
    log.hold()
    gateway.seconds += 60
    gateway.own.save(gateway.writer)
    gateway.writer.abort()
    log.release()
    gateway.writer = log.writer()
    gateway.own.reopen()
    gateway.save()
    assert Gateway(log, []).tracker.high("d", 7) == 50


def test_another_live_gateway_of_this_id_is_noticed() -> None:
    log = MemoryLog()
    Gateway(log, [], "one@b:1883").save()
    assert Gateway(log, [], "two@b:1883").own.shared_with == "one@b:1883"
    assert Gateway(log, [], "one@b:1883").own.shared_with is None, "itself, started again"
    Gateway(log, [], "one@b:1883").save(stopped=True)
    assert Gateway(log, [], "two@b:1883").own.shared_with is None


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 30)), max_size=60),
    st.lists(st.sampled_from(["keep", "save", "stop", "kill"]), min_size=60, max_size=60),
)
def test_restarts_change_no_gap(numbers: list[tuple[str, int, int]], events: list[str]) -> None:
    """Against one process without a restart: as many gaps; late numbers as late, but what a kill forgot of them."""
    whole, log, outcomes = SequenceTracker(), MemoryLog(), []
    gateway = Gateway(log, outcomes)
    gateway.save()
    is_killed = False
    for number, event in zip(numbers, events, strict=False):
        gap, late = gateway.count(number)
        expected = whole.see(*number)
        assert gap == expected[0]
        assert late == expected[1] or (is_killed and late < expected[1])
        if event == "save":
            gateway.seconds += 61
        if event in ("save", "stop"):
            gateway.save(stopped=event == "stop")
        if event in ("stop", "kill"):
            is_killed |= event == "kill"
            gateway = Gateway(log, outcomes)


def looks(gateway: Gateway, log: MemoryLog) -> SharedIdDetector:
    def newer(key: str, since: Mapping[int, int] | None) -> tuple[list[bytes], dict[int, int]]:
        records = log.records(GATEWAY_STATE)
        values = [] if since is None else [one.value for one in records[since[0] :] if one.key == key.encode()]
        return [value for value in values if value], {0: len(records)}

    watch = SharedIdDetector("gw-1", gateway.own.key, gateway.own.process, newer, clock=lambda: gateway.seconds)
    assert watch.look() == "", "the first look only finds the end"
    return watch


@pytest.mark.parametrize("session", ["two@b:1883", "one@b:1883"], ids=["another session", "a copy with its own broker"])
def test_two_that_run_see_each_other_until_one_stops(session: str) -> None:
    log = MemoryLog()
    first = Gateway(log, [], "one@b:1883")
    first.save()
    first_watch = looks(first, log)
    second = Gateway(log, [], session)
    second_watch = looks(second, log)
    second.save()
    assert second.own.process in first_watch.look()
    assert session in first_watch.look(), "nothing new, and it holds"
    assert second_watch.look() == "", "the first wrote nothing since"
    first.seconds = second.seconds = 60
    first.save()
    assert first.own.process in second_watch.look()
    second.save(stopped=True)
    assert first_watch.look() == ""
    second.seconds += 179
    assert second_watch.look()
    second.seconds += 1
    assert second_watch.look() == "", "killed, or moved to another id"


def test_what_an_earlier_process_wrote_is_no_other_gateway() -> None:
    log = MemoryLog()
    Gateway(log, [], "one@b:1883").save()
    again = Gateway(log, [], "two@b:1883")
    watch = looks(again, log)
    again.save()
    log.writer().produce(GATEWAY_STATE, again.own.key.encode(), b"{", lambda _failure: None)
    log.writer().produce(GATEWAY_STATE, b"tidegate/gw-2/held", b'{"session":"x"}', lambda _failure: None)
    assert watch.look() == ""
