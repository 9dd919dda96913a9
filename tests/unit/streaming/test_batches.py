"""What `foreachBatch` gets: a stop waits for the batch in hand, the next one is refused, and a failure is kept."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ingest.contract.errors import RetryableError
from streaming.batches import BatchRunner

ROWS: Any = None


class NotedLock:
    """The lock of a runner; `asked` is set once somebody asks for it."""

    def __init__(self, lock: Any) -> None:
        self._lock, self.asked = lock, threading.Event()

    def __enter__(self) -> None:
        self.asked.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Scripted(BatchRunner):
    """Notes the batches; `hold` keeps one in hand until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.done = list[int](), list[int]()
        self.hold = threading.Event()
        self.hold.set()

    def _write(self, rows: Any, number: int) -> None:
        self.began.append(number)
        assert self.hold.wait(30)
        if number == 13:
            raise SystemExit(rows)
        self.done.append(number)


def test_a_stop_waits_for_the_batch_in_hand_and_refuses_the_next(wait_until: Callable[..., Any]) -> None:
    batches = Scripted()
    batches.hold.clear()
    writing = threading.Thread(target=batches, args=(ROWS, 1))
    writing.start()
    wait_until(lambda: batches.began == [1])
    busy: Any = NotedLock(batches._busy)
    batches._busy = busy
    stopping = threading.Thread(target=batches.stop)
    stopping.start()
    assert busy.asked.wait(30)
    assert stopping.is_alive() and not batches._stopping
    batches.hold.set()
    stopping.join(30)
    assert batches.done == [1]
    with pytest.raises(RetryableError, match="between two batches"):
        batches(ROWS, 2)
    writing.join(30)
    assert (batches.began, batches.failure) == ([1], None), "a refused batch is no failure of the query"


def test_what_ended_the_query_is_kept_whatever_it_is() -> None:
    batches = Scripted()
    with pytest.raises(SystemExit) as raised:
        batches(ROWS, 13)
    assert batches.failure is raised.value
