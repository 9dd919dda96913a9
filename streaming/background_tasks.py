"""Work of the writing process next to landing: requests, derived tables, maintenance, one after the other on one thread.

A task that fails is counted and runs again later; it never stops the landing, unless another writer has the tables. Tasks run in
Spark's pool `chores`, so a batch of the landing goes first.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from ingest.contract.errors import TidegateError
from lakehouse.paths import is_local
from lakehouse.requests import Request, run_pending
from lakehouse.writer_epoch import CommitConflictError
from streaming.derive.deriver import Deriver, derivations
from streaming.derive.pace import DerivePace
from streaming.writer_context import WriterContext

__all__ = ["CHORE_NAMES", "BackgroundTask", "BackgroundTasks", "handle_request", "make_background_tasks"]

logger = logging.getLogger("tidegate.streaming.chores")

TICK_SECONDS: Final = 0.25
STREAMS_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
TRIES_OF_AN_END: Final = 3
"""Tries that a failure counts for when Spark ended under it: what takes too much memory must not end it a third time."""

HANDLERS: Final[dict[str, str]] = {
    "streams.apply": "streaming.sql.handlers:apply_stream",
    "streams.drop": "streaming.sql.handlers:drop_stream",
    "streams.plan": "streaming.sql.handlers:plan_stream",
    "streams.rewind": "streaming.sql.rewind:rewind_stream",
    "streams.swap": "streaming.sql.swap:swap_stream",
    "correct": "streaming.history.correct:correct",
    "maintain": "streaming.maintain.request:maintain",
    "erase": "streaming.history.erase:erase",
}
"""Kind of a request -> `module:function`, called with (writer, request); returns what the command prints as JSON."""

CHORE_NAMES: Final = ("requests", "derive", "maintain", "streams")


@dataclass(slots=True)
class BackgroundTask:
    """Something to be done every so often; `run` returns quickly where there is nothing to do. `close` ends it for good.

    `rest` is how many times as long as a run the pause after it lasts at least, so that landing gets the machine in between.
    A run that is due waits until it is `wanted`.
    """

    name: str
    every_seconds: float
    run: Callable[[], object]
    due_at: float = 0.0
    close: Callable[[], object] = lambda: None
    rest: float = 0.0
    wanted: Callable[[], bool] = lambda: True
    failures: int = field(default=0, init=False)


def make_background_tasks(writer: WriterContext) -> list[BackgroundTask]:
    """All background tasks of the writing process. Requests and SQL streams are files next to tables, which must be local."""
    from streaming.maintain.table_maintainer import TableMaintainer
    from streaming.sql.stream_supervisor import StreamSupervisor

    deriver = Deriver(derivations(writer))
    writer.background_tasks["derive"] = deriver.run_pass
    pace = DerivePace(writer.root, writer.settings, lambda: writer.metrics.readings_landed)

    def derive_pass() -> bool:
        pace.begin()
        return deriver.run_pass()

    derive = BackgroundTask("derive", writer.settings.derive_seconds, derive_pass, rest=1.0, wanted=pace.wanted)
    maintain = BackgroundTask("maintain", writer.settings.maintain_seconds, TableMaintainer(writer).run_pass)
    if not is_local(writer.root):
        return [derive, maintain]
    streams = StreamSupervisor(writer)
    return [
        BackgroundTask(
            "requests",
            TICK_SECONDS,
            lambda: run_pending(
                writer.root, lambda request: handle_request(writer, request), weigh=lambda: _weigh_failure(writer)
            ),
        ),
        derive,
        BackgroundTask("streams", STREAMS_SECONDS, streams.run, close=streams.close),
        maintain,
    ]


def _weigh_failure(writer: WriterContext) -> int:
    if writer.is_cancelled():
        return 0
    return 1 if writer.jvm_runs() else TRIES_OF_AN_END


def handle_request(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Run one request.

    Raises:
        TidegateError: it is refused; the message is for the person who asked.
    """
    target = HANDLERS.get(request.kind)
    if target is None:
        message = f"This version has no request of kind {request.kind!r}; it has {', '.join(sorted(HANDLERS))}."
        raise TidegateError(message)
    module, function = target.split(":")
    answer: dict[str, Any] = getattr(import_module(module), function)(writer, request)
    return answer


class BackgroundTasks:
    """Thread that runs the background tasks. `conflict` is the error of a commit after which this process may write no more."""

    def __init__(self, writer: WriterContext, chores: Sequence[BackgroundTask]) -> None:
        self._writer, self._chores = writer, chores
        self._stop = threading.Event()
        self.conflict: CommitConflictError | None = None
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the running task finish; no other begins."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for chore in self._chores:
            try:
                chore.close()
            except Exception as error:
                logger.warning("cannot close %s: %s", chore.name, " ".join(str(error).split())[:300])

    def _run(self) -> None:
        self._writer.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "chores")
        while not self._stop.wait(TICK_SECONDS):
            for chore in self._chores:
                if not self._stop.is_set() and time.monotonic() >= chore.due_at and chore.wanted():
                    self._do(chore)

    def _do(self, chore: BackgroundTask) -> None:
        began = time.monotonic()
        try:
            with self._writer.metrics.chore_duration.labels(chore.name).time():
                chore.run()
            ended = time.monotonic()
            chore.failures, chore.due_at = 0, ended + max(chore.every_seconds, chore.rest * (ended - began))
        except CommitConflictError as error:
            self.conflict = error
            self._stop.set()
        except Exception as error:
            if self._stop.is_set():
                logger.debug("%s ended with the stream", chore.name, exc_info=error)
                return
            chore.failures += 1
            self._writer.metrics.chore_failures.labels(chore.name).inc()
            pause = min(chore.every_seconds * 2**chore.failures, LONGEST_PAUSE_SECONDS)
            chore.due_at = time.monotonic() + pause
            text = str(error) if isinstance(error, TidegateError) else " ".join(str(error).split())[:300]
            logger.warning("%s failed; next try in %.0f s: %s", chore.name, pause, text)
            logger.debug("traceback of the failed chore", exc_info=error)
