"""Logs of several partitions that are cut back, in any order with kills, lost checkpoints, new partitions and new topics."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from ingest.contract.errors import RetryableError
from ingest.read.record_names import RecordName
from lakehouse.create import create_table
from lakehouse.paths import table_uri
from lakehouse.tables import DUPLICATES, READINGS
from streaming.commit_marker import LastNames
from streaming.landing_offsets import Mark, newest_of, next_era, parse_mark
from streaming.lost_records import LostRecords
from streaming.stored_times import stored_times
from tests.support.cut_log import TOPIC, PartedLog, PartedTables

COUNTED = ("append", "land", "cut", "cut and the clock set back", "killed after readings", "killed after letters")
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*COUNTED, "append", "land", "restart", "lose checkpoint", "add a partition", "make anew"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=40,
)


def ready() -> PartedTables:
    tables = PartedTables(PartedLog())
    assert tables.start() == []
    return tables


def assert_landed_once(tables: PartedTables) -> None:
    """After a last start each record that Kafka holds is in each table that wants it, and no record is there twice."""
    log = tables.log
    for part in log.ends():
        log.append(part, 2)
    tables.restart()
    while tables.position != log.ends():
        tables.land(5)
    for name, rows in tables.rows.items():
        assert len(rows) == len(set(rows)), f"{name}: landed twice"
        held = {(part, each) for part, records in enumerate(log.parts) for each in records}
        assert {(part, each) for part, each in held if name == "readings" or each.offset % 2} <= set(rows), (
            f"{name}: skipped"
        )


@given(STEPS)
def test_in_any_order_each_record_is_landed_once(steps: list[tuple[str, int, int]]) -> None:
    tables = ready()
    for step, which, count in steps:
        log = tables.log
        part = which % len(log.parts)
        if step == "append":
            log.append(part, count)
        elif step == "land":
            tables.land(count)
        elif step.startswith("killed"):
            tables.land(count, killed_after=step.split()[-1])
            tables.restart()
        elif step.startswith("cut"):
            log.cut(part, count, clock_back=30 if "clock" in step else 0)
            log.append(part, (7 * count + which) % 13)
            tables.restart()
        elif step == "add a partition":
            if len(log.parts) < 4:
                log.parts.append([])
                log.append(len(log.parts) - 1, count)
        elif step == "make anew":
            log.remake()
            log.append(part, 2 * count)
            tables.restart()
        else:
            tables.position = tables.position if step == "restart" else None
            tables.restart()
    assert_landed_once(tables)


def test_a_new_checkpoint_that_divides_a_batch_in_another_way_lands_nothing_twice() -> None:
    tables = ready()
    tables.log.append(0, 9)
    tables.land(9)
    # The batch is read again; of each partition less fits into it, since another one has records now.
    tables.position = None
    tables.log.append(1, 9)
    tables.restart()
    tables.land(4)
    tables.restart()
    assert_landed_once(tables)


def test_a_cut_of_a_partition_that_was_added_in_the_newest_batch_skips_nothing_of_it() -> None:
    tables = ready()
    tables.log.parts.append([])
    tables.log.append(2, 6)
    tables.land(6, killed_after="readings")
    tables.log.cut(2, 1)
    tables.log.append(2, 5)
    tables.restart()
    assert_landed_once(tables)


@pytest.mark.parametrize("back", [40, 200, 5_000])
def test_a_clock_of_kafka_that_was_set_back_with_the_cut_moves_no_edge(back: int) -> None:
    tables = ready()
    for _ in range(5):
        tables.log.append(0, 20)
        tables.land(20)
    tables.log.cut(0, 30, clock_back=back)
    tables.log.append(0, 100)
    assert tables.start() == [LostRecords(TOPIC, 0, 100, 70)]


def test_a_name_that_came_too_late_is_made_up_for_by_a_row() -> None:
    tables = ready()
    tables.log.append(0, 10)
    tables.land(10)
    tables.is_late = True
    tables.log.append(0, 10)
    tables.land(10)
    tables.log.append(0, 10)
    assert tables.start() == []
    tables.log.cut(0, 15)
    tables.log.append(0, 30)
    assert tables.start() == [LostRecords(TOPIC, 0, 20, 15)]


def test_a_new_leader_after_a_name_that_came_too_late_has_the_rows_compared() -> None:
    answers: list[tuple[dict[str, dict[int, RecordName]], bool]] = [
        ({}, False),
        ({TOPIC: {0: RecordName(29, 1, 9, 9)}}, True),
        ({TOPIC: {0: RecordName(9, 0, 1, 1)}}, True),
    ]
    names = LastNames({TOPIC: {0: RecordName(9, 0, 1, 1)}}, lambda _wanted, _seconds: answers.pop(0))
    names.begin({TOPIC: {0: 10}}, {TOPIC: {0: 20}})
    names.before()
    names.begin({TOPIC: {0: 20}}, {TOPIC: {0: 30}})
    names.close()
    with pytest.raises(RetryableError, match="a partition 0 has a new leader"):
        names.before()


def test_a_plan_of_a_former_topic_is_refused_and_not_run() -> None:
    tables = ready()
    tables.log.append(1, 7)
    tables.land(6, killed_after="readings")
    tables.log.remake()
    tables.log.append(0, 3)
    assert tables.start() == [LostRecords(TOPIC, 1, 6, 0)]


def test_the_newest_mark_does_not_depend_on_a_clock() -> None:
    old = Mark("first", 90, {}, {}, era=1, at_ms=2_000_000_000_000)
    new = Mark("second", 0, {}, {}, era=2, at_ms=0)
    assert newest_of([old, new]) == newest_of([new, old]) == new
    assert parse_mark(new.encode()) == new
    assert (next_era([old, new], "second"), next_era([old, new, None], None), next_era([], "x")) == (2, 3, 1)
    # Marks of an older version have no number: their times must do, and a new one comes after them.
    before = Mark("zero", 5, {}, {}, at_ms=5)
    assert newest_of([Mark("other", 1, {}, {}, at_ms=6), before]).at_ms == 6  # type: ignore[union-attr]
    assert newest_of([before, new]) == new


def test_times_of_stored_rows_are_found_by_partition_and_offset(tmp_path: Path) -> None:
    root, at = str(tmp_path), datetime(2026, 5, 1, tzinfo=UTC)
    times = stored_times(root, TOPIC)
    assert times(TOPIC, 1, range(9), 0) == {}, "before there is a table"
    rows = [(READINGS, 1, 4, 0), (READINGS, 1, 5, 250_000), (READINGS, 2, 6, 0), (DUPLICATES, 1, 6, 1_000)]
    for table, part, offset, more in rows:
        create_table(root, table, log_retention_hours=24)
        kinds = {"timestamp": pa.timestamp("us", "UTC"), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
        kinds |= {"double": pa.float64(), "date": pa.date32(), "array<string>": pa.list_(pa.string())}
        kinds |= {"map<string,string>": pa.map_(pa.string(), pa.string())}
        schema = pa.schema([pa.field(c.name, kinds.get(c.type, pa.string()), c.nullable) for c in table.columns])
        usual: dict[str, Any] = {"timestamp": at, "bigint": 0, "int": 0, "boolean": True, "date": at.date()}
        row = {c.name: None if c.nullable else usual.get(c.type, "x") for c in table.columns}
        row |= {"partition": part, "offset": offset, "kafka_time": at.replace(microsecond=more), "date": at.date()}
        write_deltalake(table_uri(root, table.name), pa.Table.from_pylist([row], schema), mode="append")
    ms = int(at.timestamp() * 1000)
    assert times(TOPIC, 1, range(9), ms) == {4: {ms}, 5: {ms + 250}, 6: {ms + 1}}
    assert times(TOPIC, 1, range(5, 6), ms) == {5: {ms + 250}}
    assert times("letters", 1, range(9), ms) == {}
    assert times(TOPIC, 1, range(9), ms + 3 * 86_400_000) == {}, "what landed long before is not read"
