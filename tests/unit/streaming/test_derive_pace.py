"""Derived tables are updated soon while somebody asks for them or much comes in, and seldom else."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse.looks import last_look, note_look, watch_looks
from lakehouse.query import run_sql
from lakehouse.requests import pending_requests
from streaming.derive.pace import DerivePace
from streaming.stream_settings import StreamSettings


class Pace:
    """A pace with a clock and a count of rows of the test's own; nobody has looked."""

    def __init__(self, root: Path, idle_seconds: float = 30.0) -> None:
        self.root, self.now, self.rows = str(root), 1000.0, 0
        settings = StreamSettings(derive_idle_seconds=idle_seconds)
        self.pace = DerivePace(self.root, settings, lambda: self.rows, clock=lambda: self.now)
        looked_before(root, 3600.0)

    def after(self, seconds: float, rows: int) -> bool:
        self.now, self.rows = self.now + seconds, self.rows + rows
        return self.pace.wanted()


def looked_before(root: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(root / "_requests" / "looked", (then, then))


def test_the_first_pass_does_not_wait(tmp_path: Path) -> None:
    assert Pace(tmp_path).pace.wanted()


@pytest.mark.parametrize(
    ("seconds", "rows", "wanted"),
    [(7.0, 0, False), (7.0, 1399, False), (7.0, 1400, True), (29.9, 560, False), (29.9, 5990, True), (30.0, 0, True)],
)
def test_a_pass_waits_at_a_low_rate(tmp_path: Path, seconds: float, rows: int, wanted: bool) -> None:
    scene = Pace(tmp_path)
    scene.rows = 5000
    scene.pace.begin()
    assert scene.after(seconds, rows) == wanted


def test_a_query_of_a_derived_table_is_a_look_and_others_are_none(tmp_path: Path) -> None:
    for name in ("ledger", "readings"):
        write_deltalake(str(tmp_path / name), pa.table({"device": ["pump-1"]}))
    scene = Pace(tmp_path)
    scene.pace.begin()
    run_sql(scene.root, "SELECT * FROM readings")
    run_sql(scene.root, "SELECT * FROM ledger", person=False)
    assert not scene.after(7.0, 0)
    run_sql(scene.root, "SELECT * FROM ledger")
    assert scene.after(0.0, 0)
    looked_before(tmp_path, 61.0)
    assert not scene.after(0.0, 0), "a minute later it is as if nobody had looked"


def test_a_shorter_idle_time_is_obeyed(tmp_path: Path) -> None:
    scene = Pace(tmp_path, idle_seconds=5.0)
    scene.pace.begin()
    assert scene.after(7.0, 0)


def test_who_may_not_write_there_only_reads(tmp_path: Path) -> None:
    """A query makes no file: a writer of another user could not touch it."""
    note_look(str(tmp_path))
    note_look("s3://bucket/tables")
    assert list(tmp_path.iterdir()) == []
    assert (last_look(str(tmp_path)), last_look("s3://bucket/tables")) == (0.0, 0.0)


def test_the_file_is_no_request_and_another_start_of_the_writer_is_no_look(tmp_path: Path) -> None:
    root = str(tmp_path)
    watch_looks(root)
    watch_looks("s3://bucket/tables")
    assert last_look(root) > 0
    looked_before(tmp_path, 3600.0)
    before = last_look(root)
    watch_looks(root)
    assert last_look(root) == before
    assert list(pending_requests(root)) == []
