"""What `tidegate repair` finds in folders that were broken by hand, what it would do, and that it does it."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from typer.testing import CliRunner

from deploy.cli import app
from ingest.contract.errors import ConfigError, FatalError
from ingest.kafka_settings import KafkaSettings
from lakehouse.create import create_table
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.health import examine_log, refuse_damaged
from lakehouse.lock import WriterLock
from lakehouse.tables import DUPLICATES, READINGS
from streaming.checkpoint import LocalCheckpoint
from streaming.dedup_index import DedupIndex
from streaming.landing_offsets import Mark, newest_mark
from streaming.lost_records import read_start_instruction
from streaming.repair_run import DROP_FLAG, RepairExamination, RepairSubject, apply, examine_pipeline
from streaming.start_landing import first_offsets

ROWS = 10


class Site:
    """Tables of four landed batches with a checkpoint of them, as a stream leaves both."""

    def __init__(self, folder: Path) -> None:
        self.root, self.checkpoint = folder / "tables", folder / "checkpoint"
        create_table(str(self.root), READINGS, log_retention_hours=24)
        for name in ("metadata", "sources/0/0"):
            (self.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text('{"id":"app"}')
        (self.checkpoint / "sources/0/0").write_text('\0v1\n{"r":{"0":0}}')
        for batch in range(4):
            self.land(batch)
        (self.root / "_seen.parquet").write_bytes(b"")
        self.patient = RepairSubject.of(str(self.root), str(self.checkpoint), None)

    def land(self, batch: int) -> None:
        for name, text in (
            ("offsets", f'v1\n{{}}\n{{"r":{{"0":{(batch + 1) * ROWS}}}}}'),
            ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
        ):
            (self.checkpoint / name).mkdir(exist_ok=True)
            (self.checkpoint / name / str(batch)).write_text(text)
            (self.checkpoint / name / f".{batch}.crc").write_bytes(b"crc")
        mark = Mark("app", batch, {"r": {0: batch * ROWS}}, {"r": {0: (batch + 1) * ROWS}})
        self.write("readings", ROWS, mark.encode())

    def write(self, name: str, rows: int, told: str) -> None:
        table = DeltaTable(str(self.root / name))
        now = datetime.now(UTC) - timedelta(seconds=1)
        known = {
            "device": "d", "metric": "t", "event_time": now, "time_source": "device", "received_at": now, "kafka_time": now,
            "landed_at": now, "index": 0, "date": now.date(), "readings_dropped": 1, "whole": True,
        }  # fmt: skip
        schema = pa.schema(table.schema().to_arrow())
        data = pa.Table.from_pylist([{key: known.get(key) for key in schema.names}] * rows, schema=schema)
        write_deltalake(
            table, data, mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": told})
        )

    def commit(self, version: int, name: str = "readings") -> Path:
        return self.root / name / "_delta_log" / f"{version:020d}.json"

    def findings(self) -> RepairExamination:
        return examine_pipeline(self.patient)

    def serious(self) -> list[str]:
        return [each.what for each in self.findings().findings if not each.harmless]

    def apply(self, *flags: str) -> list[str]:
        return apply(self.patient, flags, note={"author": "me"})[1]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def refusal(site: Site) -> str:
    """Why the stream would not start, in the order in which it looks."""
    try:
        refuse_damaged(str(site.root), ALL_TABLES)
        LocalCheckpoint(site.checkpoint).verify()
        newest_mark(str(site.root), "readings")
    except FatalError as error:
        return str(error)
    return ""


def test_what_is_whole_is_left_alone(site: Site) -> None:
    (finding,) = site.findings().findings
    assert finding.harmless
    assert "known identities" in finding.what
    assert site.findings().left([]) == []
    assert refusal(site) == ""
    site.apply()
    assert list(site.findings().findings) == []
    assert list((site.root / "_repair").glob("*/_seen.parquet"))
    assert newest_mark(str(site.root), "readings") is not None


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def put(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


GARBAGE = "v1\n\x00\x00garbage"
DAMAGES: dict[str, tuple[Callable[[Path], object], str, int | None]] = {
    # what is done, what is said, and the batch that Spark goes on after (None: a new checkpoint)
    "metadata missing": (remove("metadata"), "metadata", None),
    "metadata torn": (put("metadata", '{"i'), "metadata", None),
    "newest offsets empty": (put("offsets/3", ""), "`offsets/3` is damaged", 2),
    "newest offsets garbage": (put("offsets/3", GARBAGE), "`offsets/3` is damaged", 2),
    "newest offsets missing": (remove("offsets/3"), "`offsets/3` is missing", 2),
    "the offsets before torn": (put("offsets/2", GARBAGE), "`offsets/2` is damaged", 1),
    "the offsets before missing": (remove("offsets/2"), "`offsets/2` is missing", 1),
    "newest commit torn": (put("commits/3", ""), "`commits/3` is damaged", 2),
    "two commits missing": (
        lambda folder: [remove(f"commits/{n}")(folder) for n in (2, 3)],
        "`commits/2` is missing",
        1,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_refused_and_goes_back_to_its_last_good_batch(site: Site, damage: str) -> None:
    do, said, good = DAMAGES[damage]
    do(site.checkpoint)
    assert said in refusal(site)
    assert "tidegate repair" in refusal(site)
    before = sorted(site.checkpoint.rglob("*"))
    (what,) = site.serious()
    assert said in what
    assert sorted(site.checkpoint.rglob("*")) == before
    site.apply()
    checkpoint = LocalCheckpoint(site.checkpoint)
    assert refusal(site) == ""
    assert site.serious() == []
    if good is None:
        assert not checkpoint.begun()
    else:
        assert max(int(path.name) for path in (site.checkpoint / "commits").iterdir() if path.name.isdigit()) == good
        assert checkpoint.next_offsets() == {"r": {0: (good + 1) * ROWS}}
    assert not (site.checkpoint / "offsets" / ".3.crc").exists() or good == 3


def test_an_old_gap_in_the_checkpoint_is_no_fault(site: Site) -> None:
    (site.checkpoint / "offsets" / "0").unlink()
    assert refusal(site) == ""
    assert site.serious() == []


def test_a_planned_batch_that_never_ran_is_no_fault(site: Site) -> None:
    (site.checkpoint / "commits" / "3").unlink()
    assert refusal(site) == ""


@pytest.mark.parametrize("torn", ["empty", "half"])
def test_a_torn_newest_commit_is_set_aside_and_its_batch_comes_again(site: Site, torn: str) -> None:
    create_table(str(site.root), ALL_TABLES["rollups_1m"], log_retention_hours=24)
    create_table(str(site.root), ALL_TABLES["latest"], log_retention_hours=24)
    site.write("rollups_1m", 0, json.dumps({"derived": {"readings": 4}}))
    site.write("latest", 0, json.dumps({"derived": {"readings": 3}}))
    data = site.commit(4).read_bytes()
    site.commit(4).write_bytes(b"" if torn == "empty" else data[: len(data) // 2])
    said = refusal(site)
    assert "its commit 4 is empty or torn" in said
    assert "tidegate repair" in said
    site.apply()
    assert refusal(site) == ""
    mark = newest_mark(str(site.root), "readings")
    assert mark is not None
    assert (DeltaTable(str(site.root / "readings")).version(), mark.batch) == (3, 2)
    # A new checkpoint begins after the batch that is whole; the identities of the torn one are forgotten.
    assert read_start_instruction(str(site.root)).replay == {"r": {0: 3 * ROWS}}
    assert not LocalCheckpoint(site.checkpoint).begun()
    assert not (site.root / "_seen.parquet").exists()
    # What was derived from the torn version is made anew; what was not is left.
    assert not (site.root / "rollups_1m").exists()
    assert (site.root / "latest").exists()
    (report,) = (site.root / "_repair").glob("*/report.json")
    assert json.loads(report.read_text())["author"] == "me"


def test_a_torn_commit_in_the_middle_takes_the_later_landed_ones_with_it(site: Site) -> None:
    site.commit(3).write_bytes(b"")
    site.apply()
    assert DeltaTable(str(site.root / "readings")).version() == 2
    assert read_start_instruction(str(site.root)).replay == {"r": {0: 2 * ROWS}}


def test_the_mark_before_a_torn_commit_may_lie_far_back_in_a_log_that_was_cut(site: Site) -> None:
    for number in range(3):
        site.write("readings", 1, json.dumps({"maintain": number}))
    DeltaTable(str(site.root / "readings")).create_checkpoint()
    site.land(4)
    for version in (0, 1, 2, 3, 5, 6):
        site.commit(version).unlink()
    site.commit(8).write_bytes(b"")
    assert "its commit 8 is empty or torn" in refusal(site)
    site.apply()
    assert refusal(site) == ""
    assert read_start_instruction(str(site.root)).replay == {"r": {0: 4 * ROWS}}


def test_a_torn_count_of_copies_goes_back_to_nothing_older_than_the_newest_batch(site: Site) -> None:
    """Its mark before may be weeks old, and Kafka's records of that time gone: `readings` has them all."""
    create_table(str(site.root), DUPLICATES, log_retention_hours=24)
    for batch in (0, 3):
        mark = Mark("app", batch, {"r": {0: batch * ROWS}}, {"r": {0: (batch + 1) * ROWS}})
        site.write("duplicates", 1, mark.encode())
    site.commit(2, "duplicates").write_bytes(b"")
    (finding,) = [each for each in site.findings().findings if not each.harmless]
    assert "unaccounted" in finding.then
    site.apply()
    assert refusal(site) == ""
    assert DeltaTable(str(site.root / "duplicates")).version() == 1
    assert read_start_instruction(str(site.root)).replay == {}
    marks = [newest_mark(str(site.root), name) for name in ("readings", "duplicates")]
    assert first_offsets(marks, {}) == {"r": {0: 3 * ROWS}}


def test_what_kafka_cannot_give_again_is_left_to_a_person(site: Site) -> None:
    site.write("readings", 1, json.dumps({"request": {"kind": "correct"}}))
    site.commit(3).write_bytes(b"")
    (finding,) = [each for each in site.findings().findings if not each.harmless]
    assert finding.by_hand
    assert "version 5" in finding.then
    site.apply()
    assert "its commit 3 is empty or torn" in refusal(site)


STREAM_MARK = {"stream": "alarms", "incarnation": "i", "batch": 0, "offsets": {"r": {"0": 10}}}


def add_others(site: Site) -> None:
    """A SQL stream's table with its shadow, and a Delta table of somebody else under the same root."""
    (site.root / "_streams").mkdir()
    (site.root / "_streams" / "alarms.json").write_text("{}")
    for name in ("alarms", "alarms__shadow", "theirs"):
        told = json.dumps(STREAM_MARK) if name != "theirs" else ""
        properties = CommitProperties(custom_metadata={"userMetadata": told})
        for _ in range(2):
            write_deltalake(site.root / name, pa.table({"a": [1]}), mode="append", commit_properties=properties)


def test_a_torn_commit_leaves_tables_that_are_not_derived_from_it(site: Site) -> None:
    add_others(site)
    site.commit(4).write_bytes(b"")
    (finding,) = [each for each in site.findings().findings if not each.harmless]
    assert "alarms" not in finding.then
    site.apply()
    assert refusal(site) == ""
    for name in ("alarms", "alarms__shadow", "theirs"):
        assert DeltaTable(str(site.root / name)).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_a_table_that_no_stream_makes_anew_by_itself_is_left_to_a_person(site: Site, damage: str) -> None:
    add_others(site)
    for name in ("alarms", "alarms__shadow", "theirs"):
        if damage == "torn":
            site.commit(1, name).write_bytes(b"")
        else:
            Path(DeltaTable(str(site.root / name)).file_uris()[0]).unlink()
    live, shadow, theirs = (each for each in site.findings().findings if not each.harmless)
    assert live.by_hand and shadow.by_hand and theirs.by_hand
    assert "tidegate streams rewind alarms --swap" in live.then
    assert "tidegate streams rewind alarms --since" in shadow.then
    assert "from a backup" in theirs.then
    assert "rewind" not in theirs.then
    site.apply()
    assert all((site.root / name).exists() for name in ("alarms", "alarms__shadow", "theirs"))
    assert len(site.serious()) == 3
    assert site.findings().notes == [], "what Kafka holds is looked at all the same"


@pytest.mark.parametrize("torn", ["empty", "half"])
def test_the_first_landed_commit_may_be_the_torn_one(
    tmp_path: Path, torn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    shutil.rmtree(site.root / "readings")
    create_table(str(site.root), READINGS, log_retention_hours=24)
    site.land(0)
    data = site.commit(1).read_bytes()
    site.commit(1).write_bytes(b"" if torn == "empty" else data[: len(data) // 2])
    monkeypatch.setattr("streaming.repair_run.begin_offsets", lambda kafka, topic: {0: 0})
    monkeypatch.setattr("streaming.repair_run.end_offsets", lambda kafka, topic: {0: ROWS})
    monkeypatch.setattr("streaming.repair_run.topic_ids", lambda kafka, topics: {})
    away = KafkaSettings(bootstrap_servers="127.0.0.1:9")
    site.patient = RepairSubject.of(str(site.root), str(site.checkpoint), away)
    (what,) = site.serious()
    assert "its commit 1 is empty or torn" in what
    assert "again after the fix" in site.findings().notes[0]
    site.apply()
    assert refusal(site) == ""
    assert site.findings() == RepairExamination([], [])
    assert DeltaTable(str(site.root / "readings")).version() == 0
    assert not LocalCheckpoint(site.checkpoint).begun()


@pytest.mark.parametrize("damage", ["hint", "checkpoint", "checkpoint gone"])
def test_a_torn_checkpoint_of_the_log_is_set_aside(site: Site, damage: str) -> None:
    table = site.root / "readings"
    DeltaTable(str(table)).create_checkpoint()
    site.land(4)
    (parquet,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    if damage == "hint":
        (table / "_delta_log" / "_last_checkpoint").write_text("{")
    elif damage == "checkpoint":
        parquet.write_bytes(parquet.read_bytes()[:200])
    else:
        parquet.unlink()
    assert "tidegate repair" in refusal(site)
    site.apply()
    assert refusal(site) == ""
    found = DeltaTable(str(table))
    assert (found.version(), found.to_pyarrow_table().num_rows) == (5, 5 * ROWS)


def test_a_torn_checkpoint_without_the_log_before_it_is_left_to_a_person(site: Site) -> None:
    table = site.root / "readings"
    DeltaTable(str(table)).create_checkpoint()
    (parquet,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    parquet.write_bytes(b"PAR1")
    for version in range(5):
        site.commit(version).unlink()
    assert "is torn" in refusal(site)
    assert examine_log(table).newest == -1
    assert [each.by_hand for each in site.findings().findings if not each.harmless] == [True]


def test_missing_data_files_are_dropped_only_where_that_is_asked(site: Site) -> None:
    table = site.root / "readings"
    lost = DeltaTable(str(table)).file_uris()[0]
    Path(lost).unlink()
    (finding,) = [each for each in site.findings().findings if not each.harmless]
    assert f"1 data file with {ROWS} rows" in finding.what
    assert "r 0@" in finding.what
    assert site.findings().left([]) == [finding]
    with pytest.raises(FatalError, match="tidegate repair"):
        DedupIndex().load(str(site.root), horizon_days=8)
    site.apply()
    assert site.serious() != []
    site.apply(DROP_FLAG)
    DedupIndex().load(str(site.root), horizon_days=8)
    assert site.serious() == []
    found = DeltaTable(str(table))
    assert found.to_pyarrow_table().num_rows == 3 * ROWS
    mark = newest_mark(str(site.root), "readings")
    assert mark is not None
    assert mark.batch == 3, "a repair is no landed batch"


def test_leftovers_are_set_aside_and_a_derived_table_is_made_anew(site: Site) -> None:
    create_table(str(site.root), ALL_TABLES["latest"], log_retention_hours=24)
    site.commit(0, "latest").write_bytes(b"")
    (site.root / "readings" / "_delta_log" / ".00000000000000000005.json.2f0a.tmp").write_bytes(b"x")
    (site.root / "_seen.parquet.123").write_bytes(b"x")
    site.apply()
    assert list(site.findings().findings) == []
    assert not (site.root / "latest").exists()
    assert list((site.root / "_repair").glob("*/latest/_delta_log"))


def test_a_running_writer_is_not_repaired_under(site: Site) -> None:
    (site.checkpoint / "metadata").unlink()
    lock = WriterLock(site.root, what="tables")
    try:
        assert "A writer is running" in site.findings().notes[0]
        with pytest.raises(FatalError, match="is writing the tables in"):
            site.apply()
    finally:
        lock.close()
    assert (site.checkpoint / "offsets" / "3").exists()


def test_the_lock_of_a_repair_is_no_running_writer(site: Site) -> None:
    (site.checkpoint / "metadata").unlink()
    assert apply(site.patient, (), note={})[0].notes == []


def test_a_repair_killed_anywhere_leaves_a_stream_that_refuses(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.commit(4).write_bytes(b"")
    whole, moves = shutil.move, [0]

    def move(*arguments: Any) -> object:
        moves[0] += 1
        if moves[0] > limit:
            raise RuntimeError("killed here")
        return whole(*arguments)

    monkeypatch.setattr("streaming.repair_run.shutil.move", move)
    limit = -1
    while limit < 20:
        limit, moves[0] = limit + 1, 0
        try:
            site.apply()
            break
        except RuntimeError:
            assert refusal(site) != "" or not LocalCheckpoint(site.checkpoint).begun()
    assert limit > 1
    assert refusal(site) == ""
    assert read_start_instruction(str(site.root)).replay == {"r": {0: 3 * ROWS}}


def test_an_object_store_is_refused() -> None:
    with pytest.raises(ConfigError, match="local disk"):
        RepairSubject.of("s3://b/tables", "/tmp/c", None)


def test_the_command_says_first_and_does_then(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.topics.admin.TIMEOUT_SECONDS", 0.2)
    config = tmp_path / "config.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "127.0.0.1:9"\n[lake]\nroot = "{site.root}"\n[stream]\ncheckpoint = "{site.checkpoint}"\n'
    )
    (site.checkpoint / "metadata").unlink()

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["repair", "--config", str(config), *arguments])

    first = run()
    assert first.exit_code == 1
    assert "Would be done: sets the checkpoint aside" in first.stdout
    assert "tidegate repair --apply" in first.stderr
    assert (site.checkpoint / "offsets" / "3").exists()
    assert run("--apply", "--dry-run").exit_code == 2
    done = run("--apply", "--json", "--author", "me")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["applied"], told["left"]) == (True, 0)
    assert not (site.checkpoint / "offsets").exists()
    assert "Nothing is broken" in run().stdout
