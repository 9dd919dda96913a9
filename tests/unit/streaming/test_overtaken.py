"""A stream that was overtaken, or whose commit met another one, ends as such: no other error of its work hides that."""

import subprocess
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ingest.contract.errors import FatalError, RetryableError
from ingest.kafka_settings import KafkaSettings
from lakehouse import writer_epoch
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.writer_epoch import CommitConflictError, Fence, FencedError
from monitoring.metrics.stream import StreamMetrics
from streaming import service
from streaming.background_tasks import BackgroundTask, BackgroundTasks
from streaming.derive.deriver import Deriver
from streaming.kafka_source import LandedTopics
from streaming.landing_progress import StreamState
from streaming.maintain import table_maintainer
from streaming.maintain.table_maintainer import TableMaintainer
from streaming.stream_settings import StreamSettings

ROOT = "s3a://lake/tables"


def metrics() -> StreamMetrics:
    return StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=("t",))


def conflicting() -> bool:
    message = "a commit met another one"
    raise CommitConflictError(message)


def failing() -> bool:
    message = "something else"
    raise RuntimeError(message)


def ended_by(run: Callable[[], object]) -> CommitConflictError | None:
    writer: Any = SimpleNamespace(metrics=metrics())
    task = BackgroundTask("derive", 7.0, run)
    chores = BackgroundTasks(writer, [task])
    chores._do(task)
    return chores.conflict


def test_a_conflict_of_a_derived_table_ends_the_stream() -> None:
    """Else the table does not change until a restart: its fence is one commit behind."""
    steps = [SimpleNamespace(name="first", run=failing), SimpleNamespace(name="second", run=conflicting)]
    assert isinstance(ended_by(Deriver(steps).run_pass), CommitConflictError)
    assert ended_by(Deriver(steps[:1]).run_pass) is None


def test_a_conflict_of_maintenance_ends_the_stream_also_after_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    writer: Any = SimpleNamespace(metrics=metrics(), root=ROOT)
    monkeypatch.setattr(table_maintainer, "table_names", lambda root: ["latest", "readings"])
    maintainer = TableMaintainer(writer)
    monkeypatch.setattr(maintainer.__class__, "_pass", lambda _, name, deadline: failing_then_conflicting(name))
    assert isinstance(ended_by(maintainer.run_pass), CommitConflictError)


def failing_then_conflicting(name: str) -> None:
    if name == "readings":
        failing()
    conflicting()


class Landing:
    """A landing service without Spark; `log` is what `readings` answers: an epoch, or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: list[int | OSError]) -> None:
        self.calls: list[str] = []
        self.state = StreamState()
        uri = f"{ROOT}/readings"
        monkeypatch.setitem(writer_epoch._FENCES, uri, Fence(uri, 1, 7))
        monkeypatch.setattr(writer_epoch, "_read", lambda uri: (7, self._answer(log)))
        monkeypatch.setattr(service, "open_check", lambda *given: self._open())
        monkeypatch.setattr(service, "start_landing", lambda *given: self._start())
        jvm = SimpleNamespace(process=SimpleNamespace(wait=self._alive), log="spark.log")
        session: Any = SimpleNamespace(spark=None, jvm=jvm)
        self.service = service.LandingService(
            session, KafkaSettings(), StreamSettings(checkpoint=f"{ROOT}/c"), LakeSettings(root=ROOT), metrics(), self.state,
            lambda offsets: None, LandedTopics(),
        )  # fmt: skip

    def run(self) -> None:
        self.service._land_until(threading.Event())

    def _alive(self, timeout: float) -> int:
        raise subprocess.TimeoutExpired("java", timeout)

    def _answer(self, log: list[int | OSError]) -> int:
        answer = log.pop(0) if len(log) > 1 else log[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _open(self) -> tuple[Any, Any]:
        self.calls.append("open")
        return SimpleNamespace(close=lambda landed: None), None

    def _start(self) -> None:
        self.calls.append("start")
        message = "Commits of the tables are gone."
        raise FatalError(message)


def test_an_overtaken_stream_that_restarts_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(monkeypatch, [2])
    with pytest.raises(FencedError, match="writer epoch 2, this one has 1"):
        landing.run()
    assert landing.calls == []


def test_a_restart_waits_until_the_log_says_who_has_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(monkeypatch, [OSError("Generic S3 error")])
    with pytest.raises(RetryableError, match="Generic S3 error"):
        landing.run()
    assert landing.calls == []


def test_a_store_that_is_away_before_the_first_start_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(root: str, table: str) -> None:
        message = "Generic S3 error"
        raise OSError(message)

    landing = Landing(monkeypatch, [1])
    monkeypatch.setattr(service, "newest_mark", away)
    assert landing.service._is_behind() is False


def test_a_takeover_during_the_start_hides_what_the_checkpoint_seems_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream read a checkpoint that the newer one moves, so it took the newer one's commits for lost ones."""
    landing = Landing(monkeypatch, [1, 2])
    landing.state.set(ready=True, detail="landing")
    with pytest.raises(FencedError):
        landing.run()
    assert landing.calls == ["open", "start"]
    assert landing.state.healthy()[0] is False
    with pytest.raises(FatalError, match="are gone"):
        Landing(monkeypatch, [1]).run()
