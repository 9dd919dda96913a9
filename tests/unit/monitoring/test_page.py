"""The board that all viewers share, and runbooks as HTML."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from monitoring.page.page_api import PageError
from monitoring.page.runbooks import RUNBOOKS, runbook_html, runbook_page
from monitoring.page.snapshot_broadcaster import KEPT_SECONDS, SnapshotBroadcaster, encode_ascii_json


def snapshot(at: float, **point: float | None) -> dict[str, Any]:
    return {"at": at, "point": point}


def test_the_board_keeps_half_an_hour_of_points_in_lists_of_one_length() -> None:
    board = SnapshotBroadcaster()
    for second in range(0, 4000, 2):
        board.publish(snapshot(second, lag=float(second), rows=None))
    history = board.history()
    assert history["at"] == history["series"]["lag"]
    assert history["at"][0] == 3998 - KEPT_SECONDS
    assert len(history["series"]["rows"]) == len(history["at"]) == KEPT_SECONDS / 2 + 1


def test_a_figure_that_is_new_has_no_past() -> None:
    board = SnapshotBroadcaster()
    board.publish(snapshot(1, lag=1.0))
    board.publish(snapshot(2, lag=2.0, rows=5.0))
    assert board.history()["series"] == {"lag": [1.0, 2.0], "rows": [None, 5.0]}


def test_who_listens_is_woken_after_the_snapshot_is_there() -> None:
    board, seen = SnapshotBroadcaster(), []
    board.listen(lambda: seen.append(board.encoded))
    board.publish(snapshot(1))
    assert seen == [b'{"at":1,"point":{}}']
    assert board.event == b'event: snapshot\ndata: {"at":1,"point":{}}\n\n'


def test_readers_never_see_half_of_a_board() -> None:
    board, faults, done = SnapshotBroadcaster(), [], threading.Event()
    board.publish(snapshot(0, lag=0.0))

    def read() -> None:
        while not done.is_set():
            found = board.history()
            if len(found["at"]) != len(found["series"]["lag"]):
                faults.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for second in range(2000):
        board.publish(snapshot(second, lag=1.0))
    done.set()
    for reader in readers:
        reader.join()
    assert not faults


def test_numbers_that_json_has_no_words_for_are_null_and_text_stays_text() -> None:
    odd = {"a": [float("nan"), 1.5, (float("inf"), {"b": -float("inf")})], "c": "</script>\u2028\x00é", "d": True}
    encoded = encode_ascii_json(odd)
    assert encoded.isascii()
    assert b"\n" not in encoded
    assert json.loads(encoded) == {"a": [None, 1.5, [None, {"b": None}]], "c": "</script>\u2028\x00é", "d": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Hostile.md").write_text(
        "## Meaning\n\n<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n[x](javascript:alert(1)) "
        "[y](data:text/html,<script>) [z](https://example.org)\n\n<div onclick=a>\n\n| a | b |\n|---|---|\n| `<b>` | 2 |\n",
        encoding="utf-8",
    )
    return tmp_path


def test_html_in_a_runbook_is_text(folder: Path) -> None:
    found = runbook_html("Hostile", folder)
    for tag in ("<script", "<img", "<div", 'href="javascript', 'href="data'):
        assert tag not in found.lower()
    assert "&lt;script&gt;" in found
    assert '<a href="https://example.org">z</a>' in found
    assert "<td><code>&lt;b&gt;</code></td>" in found


def test_the_page_of_a_runbook_holds_no_inline_script_or_style(folder: Path) -> None:
    found = runbook_page("Hostile", folder)
    assert found.startswith("<!doctype html>")
    assert "<style" not in found
    assert " style=" not in found
    assert found.count("<script") == found.count('<script src="/assets/') == 1


@pytest.mark.parametrize("name", ["", "../Hostile", "Hostile.md", "a/b", "Hostile\x00", "Nobody", "H" * 200])
def test_what_is_no_runbook_is_told_so(folder: Path, name: str) -> None:
    with pytest.raises(PageError) as told:
        runbook_html(name, folder)
    assert told.value.status == 404


def test_every_shipped_runbook_can_be_read() -> None:
    names = sorted(path.stem for path in RUNBOOKS.glob("*.md"))
    assert names
    for name in names:
        assert "<h2>Meaning</h2>" in runbook_html(name)
