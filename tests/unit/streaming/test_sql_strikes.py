"""A SQL stream that ran at two ends of Spark's JVM in ten minutes waits for a person; a kill of all processes is no strike."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from monitoring.metrics.stream import StreamMetrics
from streaming.sql import stream_supervisor
from streaming.sql.applied_streams import AppliedStream, applied_names
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.stream_status import read_status
from streaming.sql.stream_supervisor import StreamSupervisor
from streaming.sql.strikes import clear_strikes, is_out, note_strikes

TEXT = "-- sink: table\nSELECT device FROM readings\n"
SHAPE = CheckpointShape(
    body="SELECT device FROM readings", sources=("readings",), tables=(), state=(), columns=(("device", "string"),),
    sinks=("table",), key=None, watermark=None, late="drop", trigger_seconds=1.0, partitions=2,
)  # fmt: skip


class Scene:
    """One supervisor after the other over the same tables; `starts` are the streams that they started."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.starts, self.jvm_runs = str(root), list[str](), True
        monkeypatch.setattr(stream_supervisor, "resolve_incarnation", lambda _, stream: stream)
        monkeypatch.setattr(stream_supervisor, "start_stream", lambda _, stream, __: self._start(stream))
        monkeypatch.setattr(stream_supervisor, "progress_of", lambda *_: [])
        monkeypatch.setattr(stream_supervisor, "_pool", lambda *_: nullcontext())
        AppliedStream("greedy", TEXT, "i1", "{}", SHAPE, {}).save(self.root)

    def _start(self, stream: AppliedStream) -> Any:
        self.starts.append(stream.name)
        return SimpleNamespace(failure=lambda: None, query=None, sink=None, stop=lambda: None)

    def session(self) -> StreamSupervisor:
        """A supervisor after one pass."""
        self.jvm_runs = True
        metrics = StreamMetrics(CollectorRegistry(), query="land", tables=(), topics=())
        writer: Any = SimpleNamespace(
            root=self.root, metrics=metrics, kafka=SimpleNamespace(bootstrap_servers="kafka:9092"),
            spark=SimpleNamespace(sparkContext=None), jvm_runs=lambda: self.jvm_runs,
        )  # fmt: skip
        found = StreamSupervisor(writer, make_mirror=lambda _: SimpleNamespace(mirror=None, close=lambda: None))
        found.run()
        return found

    def lose_the_jvm(self) -> None:
        streams = self.session()
        self.jvm_runs = False
        streams.close()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield Scene(tmp_path, monkeypatch)
    if left := stream_supervisor.supervisor_of(str(tmp_path)):
        left.close()


def test_two_ends_of_the_jvm_keep_a_stream_stopped_until_a_person_asks(scene: Scene) -> None:
    scene.lose_the_jvm()
    scene.lose_the_jvm()
    assert len(scene.starts) == 2
    for _ in range(2):
        scene.session().run()
    assert len(scene.starts) == 2, "also over another start"
    state = read_status(scene.root)[1]["greedy"]
    assert state["state"] == "failed"
    assert "Then run `tidegate streams apply greedy`." in state["detail"]
    streams = scene.session()
    assert streams.retry_stream("greedy")
    streams.run()
    assert len(scene.starts) == 3


def test_a_stop_in_good_order_is_no_strike(scene: Scene) -> None:
    for _ in range(3):
        scene.session().close()
    assert len(scene.starts) == 3


def test_a_request_that_replaces_the_stream_starts_it_again(scene: Scene) -> None:
    scene.lose_the_jvm()
    scene.lose_the_jvm()
    streams = scene.session()
    streams.stop_stream("greedy")
    streams.run()
    assert len(scene.starts) == 3


@pytest.mark.parametrize(("apart", "out"), [(599.0, True), (601.0, False)])
def test_strikes_that_are_far_apart_do_not_count_together(tmp_path: Path, apart: float, out: bool) -> None:
    root = str(tmp_path)
    for at in (0.0, 1000.0, 1000.0 + apart):
        note_strikes(root, ["a"], at)
    assert is_out(root, "a") == out
    assert not is_out(root, "b")
    clear_strikes(root, "a")
    assert not is_out(root, "a")


def test_the_file_is_no_stream(tmp_path: Path) -> None:
    note_strikes(str(tmp_path), ["a"])
    assert applied_names(str(tmp_path)) == []
