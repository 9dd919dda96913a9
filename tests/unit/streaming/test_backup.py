"""A backup holds versions that belong together, whatever is committed meanwhile, and is restored whole or not at all."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from typer.testing import CliRunner

from deploy.cli import app
from ingest.contract.errors import ConfigError, FatalError, RetryableError, UnavailableError
from lakehouse.changes import newest_version
from lakehouse.commit_metadata import custom_metadata
from lakehouse.health import examine_log
from lakehouse.lock import WriterLock
from lakehouse.table_copy import check_copy, copy_table
from lakehouse.tables import TABLES
from streaming.backup import back_up, read_backup, restore
from streaming.landing_offsets import Mark, newest_mark, newest_of
from streaming.vanished_commits import refuse_vanished

pytestmark = pytest.mark.promise("P9")


class Site:
    """Tables that a landing and a derivation write: each batch commits to two tables and then to a derived one."""

    def __init__(self, folder: Path) -> None:
        self.root, self.checkpoint, self.batches = folder / "tables", folder / "checkpoints" / "land", 0
        for name in (*TABLES, "latest"):
            self.write(name, {})
        self.land()

    def write(self, name: str, told: dict[str, Any]) -> None:
        properties = CommitProperties(custom_metadata=custom_metadata(told))
        rows = pa.table({"batch": pa.array([self.batches] if told else [], pa.int64())})
        write_deltalake(str(self.root / name), rows, mode="append", commit_properties=properties)

    def version(self, name: str) -> int:
        return newest_version(str(self.root), name)

    def land(self) -> None:
        for name in ("dead_letters", "readings"):
            versions = {each: self.version(each) for each in TABLES}
            ends = ({"r": {0: self.batches}}, {"r": {0: self.batches + 1}})
            mark = Mark("app", self.batches, *ends, versions=versions, era=1)
            self.write(name, json.loads(mark.encode()))
        self.write("latest", {"derived": {"readings": self.version("readings"), "watermark": 10**15}})
        self.batches += 1


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def batches_in(root: Path, name: str = "readings") -> list[int]:
    found: list[int] = sorted(DeltaTable(str(root / name)).to_pyarrow_table()["batch"].to_pylist())
    return found


def expect_startable(root: Path) -> None:
    """What the stream checks before it starts on tables without a checkpoint; and that the rows are those of the marks."""
    marks = {name: newest_mark(str(root), name) for name in TABLES}
    refuse_vanished(str(root), newest_of(marks.values()), None)
    for name in ("dead_letters", "readings"):
        mark = marks[name]
        assert mark is not None
        assert batches_in(root, name) == list(range(mark.ends["r"][0]))


def test_versions_that_were_read_between_commits_belong_together(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [5]

    def read(root: str, name: str) -> int:
        found = newest_version(root, name)
        if left[0]:
            left[0] -= 1
            site.land()
        return found

    monkeypatch.setattr("streaming.consistent_versions.newest_version", read)
    report = back_up(site.root, tmp_path / "backup")
    assert left == [0], "the tables changed between the reads"
    assert {each.name for each in report.tables} == {*TABLES, "latest"}
    expect_startable(tmp_path / "backup" / "tables")

    monkeypatch.setattr("streaming.consistent_versions.ROUNDS", 0)
    left[0] = 5
    with pytest.raises(RetryableError, match="Try again"):
        back_up(site.root, tmp_path / "other")


def test_backups_while_batches_land_are_whole_and_share_unchanged_files(site: Site, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set() and site.batches < 40:
            site.land()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        first = back_up(site.root, tmp_path / "first")
        second = back_up(site.root, tmp_path / "second", former=tmp_path / "first")
    finally:
        stop.set()
        writer.join()
    assert read_backup(tmp_path / "first").to_dict() == json.loads(json.dumps(first.to_dict()), object_hook=int_keys)
    for report, folder in ((first, tmp_path / "first"), (second, tmp_path / "second")):
        expect_startable(folder / "tables")
        mark = newest_of(newest_mark(str(folder / "tables"), name) for name in TABLES)
        assert mark is not None
        assert report.offsets == mark.starts
    name = f"tables/readings/_delta_log/{0:020d}.json"
    assert os.path.samefile(tmp_path / "first" / name, tmp_path / "second" / name)
    assert not os.path.samefile(tmp_path / "first" / name, site.root.parent / name), "the original is not shared"
    shutil.rmtree(tmp_path / "first")
    restore(tmp_path / "second", tmp_path / "new" / "tables", tmp_path / "new" / "checkpoints" / "land")
    expect_startable(tmp_path / "new" / "tables")
    assert not os.path.samefile(tmp_path / "second" / name, tmp_path / "new" / name)
    assert not (tmp_path / "new" / "tables" / "_restore").exists()


def int_keys(data: dict[str, Any]) -> dict[Any, Any]:
    return {int(key) if key.isdigit() else key: value for key, value in data.items()}


def test_a_log_that_is_cleaned_and_a_checkpoint_that_is_newer_do_not_disturb_a_copy(site: Site, tmp_path: Path) -> None:
    for _ in range(3):
        site.land()
    folder = site.root / "readings"
    copy_table(folder, 2, tmp_path / "before" / "readings")
    assert batches_in(tmp_path / "before") == [0, 1]
    DeltaTable(str(folder)).create_checkpoint()
    for version in (0, 1):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    found = copy_table(folder, site.version("readings"), tmp_path / "after" / "readings")
    assert (found.version, found.files) == (4, 4)
    assert batches_in(tmp_path / "after") == [0, 1, 2, 3]
    # A copy of a version before the newest checkpoint does not name this checkpoint.
    site.land()
    DeltaTable(str(folder)).create_checkpoint()
    copy_table(folder, 4, tmp_path / "older" / "readings")
    assert not (tmp_path / "older" / "readings" / "_delta_log" / "_last_checkpoint").exists()
    assert examine_log(tmp_path / "older" / "readings").newest == 4
    assert batches_in(tmp_path / "older") == [0, 1, 2, 3]
    with pytest.raises(FatalError, match="cannot be copied at version 1"):
        copy_table(folder, 1, tmp_path / "gone" / "readings")


def test_files_next_to_the_tables_belong_to_a_backup_and_waste_does_not(site: Site, tmp_path: Path) -> None:
    lock = WriterLock(site.root, what="tables")  # a stream runs
    wanted = {"_seen.parquet", "_seen_points/1.bin", "_corrections.jsonl", "_streams/s.json", "_streams/s.position",
              "_erasures/1.json", "_requests/1.json", "_repair/next_start.json"}  # fmt: skip
    waste = {"_seen.parquet.77", "_requests/done/0.json", "_requests/.2.json.7", "_repair/20261130T1/report.json",
             "_restore/readings/x", ".hidden"}  # fmt: skip
    for name in wanted | waste:
        (site.root / name).parent.mkdir(parents=True, exist_ok=True)
        (site.root / name).write_text(name)
    back_up(site.root, tmp_path / "backup")
    lock.close()
    copied = tmp_path / "backup" / "tables"
    found = {str(path.relative_to(copied)) for path in copied.glob("_*/**/*") if path.is_file()}
    found |= {path.name for path in copied.iterdir() if path.is_file()}
    assert found == wanted


@pytest.mark.parametrize("changes", [1, 100])
def test_a_change_by_a_person_meanwhile_begins_the_copy_again(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    journal, left = site.root / "_corrections.jsonl", [changes]

    def read(root: str, name: str) -> int:
        if left[0]:
            left[0] -= 1
            with journal.open("a") as file:
                file.write("{}\n")
        return newest_version(root, name)

    monkeypatch.setattr("streaming.consistent_versions.newest_version", read)
    if changes > 1:
        with pytest.raises(RetryableError, match="during each of 5 tries"):
            back_up(site.root, tmp_path / "backup")
        return
    back_up(site.root, tmp_path / "backup")
    assert (tmp_path / "backup" / "tables" / journal.name).read_text() == "{}\n"


def test_a_backup_that_was_killed_is_not_a_backup(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("streaming.backup.write_json", interrupted)
        back_up(site.root, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
    with pytest.raises(FatalError, match=r"backup\.partial exists already"):
        back_up(site.root, tmp_path / "backup")
    with pytest.raises(UnavailableError, match="is not a backup"):
        restore(tmp_path / "backup.partial", tmp_path / "new", site.checkpoint)
    with pytest.raises(UnavailableError, match="is not a backup"):
        back_up(site.root, tmp_path / "other", former=tmp_path / "backup.partial")
    assert not (tmp_path / "new").exists()


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_restore_replaces_nothing_and_leaves_nothing_by_halves(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = back_up(site.root, tmp_path / "backup")
    (site.checkpoint / "offsets").mkdir(parents=True)
    (site.checkpoint.parent / "streams" / "s").mkdir(parents=True)
    with pytest.raises(FatalError, match=r"mv \S+/checkpoints/land .*mv \S+/streams .*mv \S+/tables \S+/tables\.lost"):
        restore(tmp_path / "backup", site.root, site.checkpoint)
    new, checkpoint = tmp_path / "new" / "tables", tmp_path / "new" / "checkpoints" / "land"
    lock = WriterLock(new, what="tables")
    with pytest.raises(FatalError, match="is writing the tables"):
        restore(tmp_path / "backup", new, checkpoint)
    lock.close()

    # Killed while it moves the copies into their places: the stream does not start on what is there.
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("streaming.backup.Path.rename", moved_but("readings"))
        restore(tmp_path / "backup", new, checkpoint)
    mark = newest_of(newest_mark(str(new), name) for name in TABLES)
    with pytest.raises(FatalError, match="table readings is at version -1"):
        refuse_vanished(str(new), mark, None)
    with pytest.raises(FatalError, match=rf"mv {new} {new}\.lost"):
        restore(tmp_path / "backup", new, checkpoint)
    new.rename(tmp_path / "tables.lost")
    assert restore(tmp_path / "backup", new, checkpoint) == report
    expect_startable(new)
    for name in (*TABLES, "latest"):
        check_copy(new / name, report.to_dict()["tables"][name]["version"])


def moved_but(last: str) -> Callable[[Path, Path], Path]:
    move = Path.rename

    def rename(path: Path, to: Path) -> Path:
        if path.name == last:
            raise KeyboardInterrupt
        return move(path, to)

    return rename


def damage(backup: Path, how: str) -> None:
    readings = backup / "tables" / "readings"
    if how == "file":
        next(readings.glob("*.parquet")).unlink()
    elif how == "commit":
        (readings / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    else:
        shutil.rmtree(readings)


@pytest.mark.parametrize("how", ["file", "commit", "table"])
def test_a_damaged_backup_is_rejected_and_nothing_is_restored(site: Site, tmp_path: Path, how: str) -> None:
    back_up(site.root, tmp_path / "backup")
    damage(tmp_path / "backup", how)
    with pytest.raises(FatalError) as caught:
        restore(tmp_path / "backup", tmp_path / "new", site.checkpoint)
    assert "readings" in str(caught.value)
    assert not list((tmp_path / "new").glob("*/_delta_log"))


@pytest.fixture
def command(site: Site, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    config = tmp_path / "t.toml"
    config.write_text(f'[lake]\nroot = "{site.root}"\n[stream]\ncheckpoint = "{site.checkpoint}"\n')

    def run(*words: str, where: tuple[str, ...] = ("--config", str(config))) -> Any:
        return CliRunner().invoke(app, [*words, *where])

    before = os.umask(0o022)
    yield run
    os.umask(before)


def test_the_commands_say_what_they_copied_and_reject_what_they_do_not_know(
    command: Callable[..., Any], site: Site, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    done = command("backup", str(backup), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["tables"]["readings"]["version"] == site.version("readings")
    assert backup.stat().st_mode & 0o077 == 0, "others cannot read it"
    again = command("backup", str(tmp_path / "second"), "--reuse", str(backup))
    assert "4 tables" in again.stderr
    assert "as of 20" in again.stderr
    data = tmp_path / "new run"
    restored = command("restore", str(backup), where=("--data", str(data)))
    assert restored.exit_code == 0, restored.stderr
    assert batches_in(data / "tables") == batches_in(site.root)

    manifest = backup / "backup.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    refused = command("restore", str(backup), where=("--data", str(tmp_path / "third")))
    assert isinstance(refused.exception, ConfigError)
    assert "has format 2, but this version of Tidegate reads up to format 1" in str(refused.exception)
    shutil.rmtree(site.root)
    assert isinstance(command("backup", str(tmp_path / "none")).exception, UnavailableError)


def test_tables_in_a_bucket_are_left_to_its_own_tools(command: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "bucket.toml"
    config.write_text('[lake]\nroot = "s3://bucket/tables"\n')
    for words in (["backup", str(tmp_path / "x")], ["restore", str(tmp_path / "x")]):
        assert "not s3://bucket/tables" in str(command(*words, where=("--config", str(config))).exception)
