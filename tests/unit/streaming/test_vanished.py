"""Commits that are gone without a trace: what the marks, the checkpoint and the cursors of derived tables say of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.java import Java
from deploy.local.kafka import EmbeddedKafka
from lakehouse.data_files import sync_files
from streaming.landing_offsets import Mark, Offsets
from streaming.vanished_commits import FinishedBatch, VanishedCommits, find_vanished_commits, replay_from

START: Offsets = {"a": {0: 5}}
END: Offsets = {"a": {0: 9}}
VERSIONS = {"readings": 7, "dead_letters": 3, "duplicates": 0}
MARK = Mark("app", 4, START, END, versions=VERSIONS, follows=("dead_letters",), at_ms=9)
AFTER = VERSIONS | {"readings": 8}
JAVA = Java(Path("/java"), Path("/java/bin/java"), (17, 0, 9), False, "test")
UNKNOWN = VanishedCommits("", -1, -1)

CASES: dict[str, tuple[Mark | None, dict[str, int], FinishedBatch | None, list[VanishedCommits]]] = {
    "all is there": (MARK, AFTER | {"dead_letters": 4}, FinishedBatch("app", 4, END), []),
    "killed between two tables, the batch comes again": (MARK, AFTER, FinishedBatch("app", 3, START), []),
    "what should follow is not there": (
        MARK,
        AFTER,
        FinishedBatch("app", 4, END),
        [VanishedCommits("dead_letters", 3, 4)],
    ),
    "the checkpoint is gone too": (MARK, AFTER | {"dead_letters": 2}, None, [VanishedCommits("dead_letters", 2, 3)]),
    "the checkpoint is past every mark": (
        MARK,
        AFTER | {"dead_letters": 4},
        FinishedBatch("app", 5, {"a": {0: 12}}),
        [UNKNOWN],
    ),
    "a new partition is past every mark": (
        MARK,
        AFTER | {"dead_letters": 4},
        FinishedBatch("app", 5, {"a": {0: 9, 1: 1}}),
        [UNKNOWN],
    ),
    "a new checkpoint without a mark of its own": (MARK, AFTER, FinishedBatch("other", 0, END), []),
    "a new checkpoint whose marks are gone": (MARK, AFTER, FinishedBatch("other", 0, {"a": {0: 12}}), [UNKNOWN]),
    "a new checkpoint that began behind every mark": (
        MARK,
        AFTER,
        FinishedBatch("other", -1, {"a": {0: 12}}),
        [UNKNOWN],
    ),
    "a mark of an older version": (replace(MARK, versions={}), {}, FinishedBatch("app", 9, {"a": {0: 99}}), []),
    "no mark at all, and a batch is done": (None, {}, FinishedBatch("app", 0, END), [UNKNOWN]),
    "nothing was landed yet": (None, {}, None, []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_gone_is_known_from_what_is_left(case: str) -> None:
    mark, versions, reached, gone = CASES[case]
    assert find_vanished_commits(mark, versions, reached) == gone


def test_a_new_checkpoint_may_begin_behind_every_mark_where_a_loss_was_accepted() -> None:
    assert find_vanished_commits(MARK, AFTER, FinishedBatch("other", -1, {"a": {0: 12}}), passed_over=True) == []
    assert find_vanished_commits(MARK, AFTER | {"dead_letters": 2}, FinishedBatch("other", -1, END)) == [
        VanishedCommits("dead_letters", 2, 3)
    ]


def test_records_are_read_again_from_the_newest_batch_that_the_table_is_known_to_have() -> None:
    marks = [
        replace(MARK, batch=batch, starts={"a": {0: batch}}, versions={"dead_letters": letters}, at_ms=batch)
        for batch, letters in ((1, 1), (2, 2), (3, 2), (4, 3))
    ]
    assert replay_from(VanishedCommits("dead_letters", 2, 3), marks, marks[-1], {}) == {"a": {0: 3}}
    assert replay_from(VanishedCommits("dead_letters", 0, 3), marks, marks[-1], {}) == {"a": {0: 0}}
    assert replay_from(UNKNOWN, marks, marks[-1], {}) == END
    grown = replace(marks[-1], ends={"a": {0: 10, 1: 4}})
    assert replay_from(VanishedCommits("dead_letters", 2, 3), marks, grown, {}) == {"a": {0: 3, 1: 0}}, "added since"
    # Without a mark, the checkpoint may be one that a repair began in the middle of what is lost now.
    assert replay_from(UNKNOWN, [], None, START) == {"a": {0: 0}}


def test_files_and_then_the_folders_that_name_them_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("date=1/a", "date=1/b", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    synced = list[str]()
    monkeypatch.setattr("os.fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    sync_files(tmp_path, ["date=1/a", "date=1/b", "c"])
    assert synced == ["a", "b", "c", "date=1", tmp_path.name]


@pytest.mark.parametrize(("records", "line"), [(0, None), (1, "log.flush.interval.messages=1\n")])
def test_the_embedded_kafka_syncs_its_log_where_that_is_asked(records: int, line: str | None, tmp_path: Path) -> None:
    part = EmbeddedKafka(tmp_path, JAVA, 1, 2, flush_records=records)
    told = part._properties(tmp_path)
    assert ("log.flush.interval" in told) == bool(line)
    assert line is None or line in told
