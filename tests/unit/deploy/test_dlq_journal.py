"""The journal of redrives: whole after a kill, joined when it is long, read when it changed, and of one writer."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.dlq import journal as journal_module
from deploy.dlq.journal import RedriveJournal, read_journal
from ingest.contract.errors import FatalError
from tests.support.dead_letters import Lake

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "the tables")


def test_a_killed_process_leaves_no_lock_and_no_torn_journal(lake: Lake) -> None:
    lake.receive("site/attic/t", b"1")
    code = (
        "import os, signal, sys\n"
        "from deploy.dlq.journal import RedriveJournal\n"
        "journal = RedriveJournal(sys.argv[1], 1)\n"
        "os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)\n"
        "journal.append([journal.entry(('t', 0, 0, 1, 1), 'accepted')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, lake.root], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == -9
    assert read_journal(lake.root).num_rows == 0
    assert lake.redrive("site/#", run=2).accepted == 1


def journal_files(lake: Lake) -> list[str]:
    return sorted(path.name for path in Path(lake.root, "_redrive").glob("*.jsonl"))


def write_runs(lake: Lake, runs: range, *, monkeypatch: pytest.MonkeyPatch, at: datetime) -> None:
    """Each run redrives letter 0 and one of its own."""
    monkeypatch.setattr("deploy.dlq.journal.datetime", type("At", (datetime,), {"now": lambda _zone: at}))
    for run in runs:
        journal = RedriveJournal(lake.root, run)
        journal.append(
            [journal.entry(("t", 0, offset, 1, 1), "refused" if run % 2 else "accepted") for offset in (0, run)]
        )
        journal.close()
    monkeypatch.undo()


def test_a_long_journal_is_joined_without_letters_that_are_gone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    write_runs(lake, range(1000, 1040), monkeypatch=monkeypatch, at=now - timedelta(days=93))
    write_runs(lake, range(1040, 1080), monkeypatch=monkeypatch, at=now)
    before = {row["offset"]: row for row in read_journal(lake.root).to_pylist()}
    assert before[0]["attempts"] == 80
    journal = RedriveJournal(lake.root, 2000)
    # Killed before what was joined is removed: nothing counts twice.
    monkeypatch.setattr("deploy.dlq.journal._Folder.remove_replaced", lambda _folder: None)
    journal.join_files(90)
    monkeypatch.undo()
    wanted = {offset: row for offset, row in before.items() if offset == 0 or offset >= 1040}
    assert len(journal_files(lake)) == 81
    assert {row["offset"]: row for row in read_journal(lake.root).to_pylist()} == wanted
    journal.join_files(90)
    assert len(journal_files(lake)) == 81  # one file counts: it is not joined again
    journal.append([journal.entry(("t", 0, 0, 1, 1), "accepted")])
    journal.close()
    found = {row["offset"]: row for row in read_journal(lake.root).to_pylist()}
    assert (found[0]["attempts"], found[0]["ending"]) == (81, "accepted")
    write_runs(lake, range(3000, 3070), monkeypatch=monkeypatch, at=now)
    journal = RedriveJournal(lake.root, 4000)
    journal.join_files(0)
    journal.close()
    assert journal_files(lake) == ["joined-3069-000000.jsonl"]
    found = {row["offset"]: row for row in read_journal(lake.root).to_pylist()}
    assert found[0]["attempts"] == 151
    assert found.keys() == {*wanted, *range(3000, 3070)}


def test_a_journal_that_did_not_change_is_not_read_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    one_file = journal_module._Folder.read
    monkeypatch.setattr(
        "deploy.dlq.journal._Folder.read", lambda folder, name: read.append(name) or one_file(folder, name)
    )
    journal = RedriveJournal(lake.root, 1000)
    for count in range(1, 4):
        journal.append([journal.entry(("t", 0, count, 1, 1), "accepted")])
        assert read_journal(lake.root).num_rows == count
        assert read_journal(lake.root).num_rows == count
    journal.close()
    assert read == [f"1000-00000{number}.jsonl" for number in range(3)]


def test_a_journal_that_cannot_be_written_is_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    lake.receive("site/attic/t", b"1")
    with monkeypatch.context() as patch, pytest.raises(FatalError, match=r"redrive journal in .*_redrive \(No space"):
        patch.setattr(os, "fsync", full)
        lake.redrive("site/#", run=1)
    assert lake.redrive("site/#", run=2).accepted == 1


def test_one_redrive_at_a_time(lake: Lake) -> None:
    journal = RedriveJournal(lake.root, 1)
    try:
        with pytest.raises(FatalError, match=f"Process {os.getpid()} is writing the redrive journal"):
            RedriveJournal(lake.root, 2)
    finally:
        journal.close()
    RedriveJournal(lake.root, 3).close()
