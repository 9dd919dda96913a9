"""What people see of a start and a log: lines that change, never silence, bounded files."""

import io
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.local.checklist import Checklist
from deploy.local.logs import follow_lines, last_lines, rotate


def part(state: str, detail: str = "", *, age: float = 0.0, seconds: float | None = None) -> dict[str, Any]:
    end = (1, detail) if state == "restarting" else None
    return {"state": state, "since": time.time() - age, "detail": detail, "seconds": seconds, "last_end": end}


def test_without_a_terminal_each_change_is_one_line() -> None:
    out = io.StringIO()
    shown = Checklist(out, tty=False)
    shown.show({"kafka": part("waiting"), "broker": part("ready", "on port 1", seconds=0.5)})
    shown.show({"kafka": part("waiting"), "broker": part("ready", "on port 1", seconds=0.5)})
    shown.show({"kafka": part("restarting", "killed by SIGKILL; starts again in 1 s"), "broker": part("ready")})
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["ok", "broker", "0.5", "s", "on", "port", "1"]
    assert "!!  kafka" in lines[1]
    assert "killed by SIGKILL" in lines[1]


def test_a_silence_is_filled_with_what_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("deploy.local.checklist.time.monotonic", lambda: clock[0])
    out = io.StringIO()
    shown = Checklist(out, tty=False)
    for _ in range(21):
        clock[0] += 0.2
        shown.show({"stream": part("starting", "starting Spark", age=3.0)})
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "  ..  still starting: stream (3 s: starting Spark)"


def test_after_the_start_only_changes_are_news() -> None:
    out = io.StringIO()
    shown = Checklist(out, tty=False)
    shown.skip({"kafka": part("ready"), "topics": part("done")})
    shown.show({"kafka": part("ready"), "topics": part("done")})
    assert out.getvalue() == ""
    killed = part("restarting", "killed by SIGKILL")
    for kafka in (killed, killed, {**part("ready"), "last_end": killed["last_end"]}):
        shown.show({"kafka": kafka, "topics": part("done")})
    assert [line.split()[:2] for line in out.getvalue().splitlines()] == [["!!", "kafka"], ["ok", "kafka"]]


def test_a_restart_between_two_looks_is_news() -> None:
    """A slow supervisor looks again when the part is ready: why it ended must be in the log all the same."""
    out = io.StringIO()
    shown = Checklist(out, tty=False)
    shown.skip({"kafka": part("ready")})
    for end in ((1, "killed by SIGKILL"), (1, "killed by SIGKILL"), (2, "killed by SIGKILL")):
        shown.show({"kafka": {**part("ready"), "last_end": end}})
    lines = out.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["!!", "kafka"], ["ok", "kafka"]] * 2
    assert lines[0].endswith("killed by SIGKILL")


def test_a_part_that_hangs_is_news() -> None:
    out = io.StringIO()
    shown = Checklist(out, tty=False)
    shown.skip({"kafka": part("ready")})
    shown.show({"kafka": part("down", "does not answer")})
    assert out.getvalue().split(None, 2) == ["!!", "kafka", "does not answer\n"]


def test_on_a_terminal_the_block_is_redrawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    shown = Checklist(out, tty=True)
    shown.show({"a": part("starting"), "b": part("waiting", "x" * 100)})
    shown.show({"a": part("ready"), "b": part("waiting")})
    assert out.getvalue().count("\x1b[2A") == 1
    assert max(len(line) for line in out.getvalue().replace("\r\x1b[K", "").splitlines()) <= 43


def test_a_log_is_cut_in_place_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 99 + b"\n")
        assert not rotate(log, max_bytes=100)
        writer.write(b"last\n")
        assert rotate(log, max_bytes=100)
        writer.write(b"first of the new\n")
    assert log.read_bytes() == b"first of the new\n"
    assert last_lines(tmp_path / "part.log.1", 1) == ["last"]


def test_a_log_is_followed_over_its_cut(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("old\n")
    lines = follow_lines([log])
    assert next(lines) is None
    with log.open("a") as out:
        out.write("new\nhalf")
    assert next(lines) == (log, "new")
    assert next(lines) is None
    log.write_text("cut\n")
    assert next(lines) == (log, "cut")
