"""What is asked beside the look: never waited for, forgotten when it is old, its faults told once."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monitoring.periodic_query import IncompleteError, PeriodicQuery

Wait = Callable[..., Any]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a question that hangs waits for; released at the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.periodic_query.LEAST_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr("monitoring.periodic_query.LEAST_PAUSE_SECONDS", 0.01)


def ended(poll: PeriodicQuery[Any]) -> None:
    poll.stop()
    poll.join(10)


def test_an_answer_is_kept_while_the_next_one_hangs_and_forgotten_then(
    wait_until: Wait, never: threading.Event
) -> None:
    hang, taken = threading.Event(), list[int]()

    def ask() -> int:
        if hang.is_set():
            never.wait()
        return 7

    poll = PeriodicQuery("seven", 0.01, ask, default=0, take=taken.append)
    assert poll.newest == 0
    poll.start()
    wait_until(lambda: poll.newest == 7)
    hang.set()
    wait_until(lambda: poll.newest == 0)
    assert "no answer for" in poll.fault
    assert taken[-2:] == [7, 0]
    never.set()
    wait_until(lambda: poll.newest == 7 and not poll.fault)
    ended(poll)


def test_a_fault_is_told_once_and_again_only_after_it_was_gone(
    wait_until: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int | OSError] = []

    def ask() -> int:
        answer = told[-1]
        if isinstance(answer, OSError):
            raise answer
        return answer

    told.append(OSError("refused"))
    poll = PeriodicQuery("poll seven", 0.01, ask, default=0)
    poll.start()
    wait_until(lambda: poll.fault == "refused")
    told.append(7)
    wait_until(lambda: poll.newest == 7 and not poll.fault)
    told.append(OSError("refused"))
    wait_until(lambda: poll.fault == "refused")
    ended(poll)
    assert caplog.text.count("poll seven has no answer: refused") == 2


def test_part_of_an_answer_is_one_and_a_fault_too(wait_until: Wait, caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> int:
        raise IncompleteError("no second half", 3)

    poll = PeriodicQuery("poll halves", 0.01, ask, default=0)
    poll.start()
    wait_until(lambda: poll.newest == 3 and poll.fault == "no second half")
    ended(poll)
    assert "poll halves has an incomplete answer: no second half" in caplog.text


def test_what_it_holds_is_freed_after_its_last_question(wait_until: Wait, never: threading.Event) -> None:
    asked, freed = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        never.wait()

    poll = PeriodicQuery("holder", 0.01, ask, default=None, at_end=freed.set)
    poll.start()
    wait_until(asked.is_set)
    poll.stop()
    poll.join(0)
    assert not freed.is_set()
    never.set()
    wait_until(freed.is_set)


def test_a_second_start_asks_on_no_second_thread_and_an_end_before_the_start_waits_for_nothing(
    wait_until: Wait,
) -> None:
    by: list[int] = []
    poll = PeriodicQuery("twice", 0.01, lambda: by.append(threading.get_ident()), default=None)
    poll.join(10)
    poll.start()
    poll.start()
    wait_until(lambda: len(by) > 2)
    ended(poll)
    assert len(set(by)) == 1
