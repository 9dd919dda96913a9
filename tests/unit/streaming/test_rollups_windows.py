"""Which slices and windows a pass touches, how the watermark moves, and what the log of `readings` asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from lakehouse.file_stats import as_micros
from streaming.derive.reading_changes import ReadingChanges, changes_since
from streaming.derive.windows import DAY_US, HOUR_US, MINUTE_US, SHAPES, ChangedRange, Watermark

ONE, FIVE, HOUR, ROLLING = SHAPES
SECOND_US = 1_000_000


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.table.name)
@pytest.mark.parametrize("minute", [0, 7, 59, 60, 61, 1439, 1440, -1, -61, -1440])
def test_the_slices_of_a_minute_are_those_of_every_window_that_holds_it(shape: Any, minute: int) -> None:
    at = minute * MINUTE_US
    starts = [n for n in range(at - 2 * HOUR_US, at + HOUR_US, MINUTE_US) if n % shape.step == 0]
    wanted = {start - start % shape.slice for start in starts if start <= at < start + shape.length}
    assert shape.slices([at]) == wanted
    assert wanted <= set(shape.slices_between(at, at + MINUTE_US - 1))
    assert DAY_US % shape.slice == 0, "a slice lies within one day"


def test_a_window_closes_when_the_watermark_reaches_its_end() -> None:
    assert ROLLING.closed([0, MINUTE_US], 15 * MINUTE_US) == {0}
    assert ROLLING.closed([0, MINUTE_US], 15 * MINUTE_US - 1) == set()


def test_the_watermark_only_moves_forward_and_follows_the_clock_when_nothing_comes() -> None:
    watermark = Watermark(delay=120 * SECOND_US, idle=60 * SECOND_US, heard_at=1000 * SECOND_US)

    def after(current: int | None, newest: int | None, now: int) -> float | None:
        found = watermark.after(current and current * SECOND_US, newest and newest * SECOND_US, now * SECOND_US)
        return None if found is None else found / SECOND_US

    assert after(None, None, 9000) is None, "nothing was ever seen"
    assert after(None, 1000, 1001) == 880
    assert after(880, 500, 1002) == 880
    assert after(880, None, 1059) == 880
    assert after(880, None, 1060) == 880
    assert after(880, None, 1100) == 920
    assert after(880, 99_000, 1059) == 1059, "a gateway whose clock is ahead makes no window final that has not begun"
    watermark.heard(1100 * SECOND_US)
    assert after(920, None, 1159) == 920


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-01T00:00:01.000Z", 1), ("1970-01-01T01:00:01+01:00", 1), ("1969-12-31T23:59:59.999Z", -0.001),
        ("+10000-01-01", None), (7, None),
    ],
)  # fmt: skip
def test_times_of_the_log(value: object, seconds: float | None) -> None:
    assert as_micros(value) == (None if seconds is None else round(seconds * 1e6))


class Log:
    """The log of a table, written by hand."""

    def __init__(self, root: Path) -> None:
        self.root, self.version = root, 0
        (root / "readings" / "_delta_log").mkdir(parents=True)
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        column = {"name": "device", "type": "string", "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [column]})
        form = {"provider": "parquet", "options": {}}
        metadata = {
            "metaData": {"id": "x", "format": form, "partitionColumns": [], "schemaString": schema, "configuration": {}}
        }
        self._write([protocol, metadata])

    def commit(
        self, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = (), told: dict[str, Any] | None = None
    ) -> None:
        self.version += 1
        self._write(
            [{"commitInfo": {"userMetadata": json.dumps(told or {"app": "x"})}}]
            + [{"add": self._file(name)} for name in add]
            + [{"remove": self._file(name)} for name in remove]
        )

    def _file(self, name: str) -> dict[str, Any]:
        """File `a3` holds readings of the third hour."""
        hour = int(name[1:])
        times = {
            "minValues": {"event_time": f"1970-01-01T{hour:02}:00:00.000Z"},
            "maxValues": {"event_time": f"1970-01-01T{hour:02}:59:00.000Z"},
        }
        stats = json.dumps({"numRecords": 10, **times})
        return {
            "path": name,
            "partitionValues": {"date": "1970-01-01"},
            "size": 1,
            "dataChange": True,
            "stats": stats,
            "modificationTime": 0,
        }

    def _write(self, actions: list[dict[str, Any]]) -> None:
        path = self.root / "readings" / "_delta_log" / f"{self.version:020d}.json"
        path.write_text("\n".join(map(json.dumps, actions)))

    def since(self, version: int | None) -> ReadingChanges:
        news = changes_since(str(self.root), "readings", version)
        assert news is not None
        return news


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def hours(first: int, last: int, device: str | None = None) -> ChangedRange:
    return ChangedRange(device, first * HOUR_US, last * HOUR_US + 59 * MINUTE_US + 1000)


def test_what_was_appended_is_folded(log: Log) -> None:
    log.commit(add=("a1",))
    log.commit(add=("a2", "a3"))
    assert changes_since(str(log.root), "readings", 2) is None
    news = log.since(1)
    assert ([file.path for file in news.files], news.upto, news.rows) == (["a2", "a3"], 2, 20)
    assert log.since(None) == ReadingChanges(2, whole=True)
    assert log.since(500) == ReadingChanges(2, whole=True), (
        "the table was restored or made anew: what was seen is of another one"
    )


def test_a_change_names_its_device_and_range_or_the_files_times_are_its_range(log: Log) -> None:
    log.commit(add=("a1",))
    named = {
        "kind": "correct",
        "arguments": {"device": "d", "from": "1970-01-01T01:30:00+00:00", "to": "1970-01-01T01:40:00+00:00"},
    }
    log.commit(add=("b1",), remove=("a1",), told={"request": named})
    assert log.since(1).ranges == [ChangedRange("d", 90 * MINUTE_US, 100 * MINUTE_US)]
    log.commit(add=("c1", "c2"), remove=("b1",))
    assert log.since(2).ranges == [hours(1, 1), hours(2, 2)]
    log.commit(remove=("c1",), told={"request": {"kind": "erase", "arguments": {"device": "d"}}})
    assert log.since(3).erased
    assert log.since(3).ranges == [hours(1, 1, "d")]


def test_rows_that_another_commit_of_the_same_pass_moved_are_made_anew(log: Log) -> None:
    log.commit(add=("a1", "a5"))
    log.commit(add=("b1",), remove=("a1",), told={"request": {"arguments": {"device": "d"}}})
    news = log.since(0)
    assert [file.path for file in news.files] == ["a5"]
    assert set(news.ranges) == {hours(1, 1), hours(1, 1, "d")}


def test_rows_past_their_age_are_no_news(log: Log) -> None:
    log.commit(add=("a1", "a5"))
    log.commit(remove=("a1",), told={"retention": {"days": []}})
    news = log.since(1)
    assert (news.files, news.ranges, news.upto, news.expired) == ([], [], 2, DAY_US)
    assert log.since(0).ranges == [hours(1, 1)]
