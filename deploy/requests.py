"""Commands that change the tables: the running stream executes them, or this process does under the lock.

A local Delta table allows only one writing process. So a command leaves a request for the writer and waits. If no writer runs,
the command takes the lock, starts Spark and runs the same handler itself.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from deploy.settings import Settings
from ingest.contract.errors import FatalError, TidegateError, UnavailableError
from lakehouse.lock import is_held
from lakehouse.paths import is_local, to_path
from lakehouse.requests import Request, await_answer, run_pending, submit_request

__all__ = ["local_root", "run_request"]

PATIENCE_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 1.0


def run_request(
    settings: Settings,
    request: Request,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    tell: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Return the answer of the request's handler (see `streaming.background_tasks.HANDLERS`).

    Args:
        settings: of the pipeline whose tables it is about.
        request: what to do; it runs at least once, and its handler is idempotent.
        patience_seconds: how long to wait for a writer that is busy. Here, it runs as long as it takes.
        tell: gets a sentence where a person has to wait.

    Raises:
        TidegateError: the request is refused, in the handler's words.
        UnavailableError: the writer did not answer in time; the request stays with it.
        ConfigError: the installed versions do not fit.
    """
    folder = local_root(settings)
    if not is_held(folder):
        return _run_here(settings, tell, lambda handle_request: handle_request(request))
    submit_request(str(folder), request)
    deadline = time.monotonic() + patience_seconds
    try:
        return await_answer(str(folder), request, patience_seconds=patience_seconds, working=_watch(folder))
    except UnavailableError:
        if time.monotonic() > deadline:
            raise
    tell("The writer ended before it answered; the request runs here instead.")
    root = str(folder)
    _run_here(settings, tell, lambda handle_request: {"ran": run_pending(root, handle_request)})
    return await_answer(root, request, patience_seconds=0.0)


def local_root(settings: Settings) -> Path:
    """Return the folder of the tables.

    Raises:
        UnavailableError: they are not on a local disk, so no command can change them.
    """
    root = settings.lake.root
    if not is_local(root):
        message = (
            f"The tables are at {root}, but a command that changes tables needs local ones: it sends its request in files next "
            "to them. Run the command where the tables are local, or stop the stream and use your own Spark session."
        )
        raise UnavailableError(message)
    return to_path(root).absolute()


def _watch(folder: Path) -> Callable[[], bool]:
    """Check whether a writer is still there, at most once a second."""
    looked_at, held = time.monotonic(), True

    def working() -> bool:
        nonlocal looked_at, held
        if time.monotonic() - looked_at > LOOK_SECONDS:
            looked_at, held = time.monotonic(), is_held(folder)
        return held

    return working


def _run_here(
    settings: Settings,
    tell: Callable[[str], object],
    run: Callable[[Callable[[Request], dict[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:
    from deploy.local.artifacts import lake_jars
    from deploy.local.java import find_java
    from ingest.contract.topics import DEAD_LETTERS, READINGS
    from ingest.kafka_login import java_flags
    from lakehouse.derived_tables import ALL_TABLES
    from lakehouse.jvm import JvmOptions
    from monitoring.exporter import CollectorRegistry
    from monitoring.metrics.stream import StreamMetrics
    from streaming.background_tasks import handle_request
    from streaming.locked_writer import one_shot_writer

    tell("No stream is writing these tables; starting Spark here, which takes some seconds.")
    logs = Path(tempfile.mkdtemp(prefix="tidegate-command-"))
    java = find_java()
    jars = lake_jars(settings.lake.root, settings.stream.checkpoint, progress=tell)
    jvm = JvmOptions(java.home, tuple(jars), logs, flags=(*java.gc_options, *java_flags(settings.kafka)))
    metrics = StreamMetrics(CollectorRegistry(), query="command", tables=ALL_TABLES, topics=(READINGS, DEAD_LETTERS))
    try:
        with one_shot_writer(settings.kafka, settings.stream, settings.lake, jvm, metrics) as writer:
            answer = run(lambda request: handle_request(writer, request))
    except TidegateError as error:
        if str(logs) not in str(error):
            shutil.rmtree(logs, ignore_errors=True)
        raise
    except Exception as error:
        what = " ".join(str(error).split())[:300]
        message = (
            f"The request failed in Spark: {what}. Uncommitted changes are not in the tables. See {logs / 'spark.log'}."
        )
        raise FatalError(message) from error
    shutil.rmtree(logs, ignore_errors=True)
    return answer
