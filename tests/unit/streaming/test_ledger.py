"""What the ledger, latest and devices read of the tables' logs, without a JVM."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from ingest.contract.outcome import Count, OutcomeRecord
from lakehouse.changes import DataFile, VersionChange
from lakehouse.commit_metadata import CommitMetadata
from lakehouse.create import create_table
from lakehouse.derived_tables import LATEST, LEDGER
from lakehouse.tables import DEAD_LETTERS, DUPLICATES, READINGS
from monitoring.metrics.stream import StreamMetrics
from streaming.derive import devices_derivation as devices
from streaming.derive import ledger
from streaming.derive.derived_table import DerivedTable
from streaming.derive.devices_derivation import DevicesDerivation
from streaming.derive.ledger import HOT_ROWS, LedgerDerivation, cuts_of, minutes_in
from streaming.derive.ledger_progress import (
    KEPT_EPOCHS,
    LedgerCursor,
    Settling,
    forgotten_before,
    has_landed_up_to,
    holes_after,
    later_numbers,
    newest_epochs,
)
from streaming.derive.outcomes import OUTCOME_SCHEMA, OutcomeSums
from streaming.derive.shared_arrivals import (
    SharedArrivals,
    TableChangeReader,
    TableChanges,
    collect_changes,
    erased_device_hash,
    request_device_hash,
)
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Mark
from streaming.stream_settings import StreamSettings


def asked(kind: str, **arguments: Any) -> str:
    return json.dumps({"request": {"kind": kind, "arguments": arguments}})


def landed(version: int, *paths: str) -> VersionChange:
    return VersionChange(version, tuple(DataFile(path) for path in paths), (), '{"app": "a"}')


def changed(version: int, metadata: str | None, *, added: bool = True) -> VersionChange:
    return VersionChange(version, (DataFile("new"),) if added else (), (DataFile("old"),), metadata)


def paths(groups: list[tuple[list[DataFile], frozenset[str]]]) -> list[tuple[list[str], frozenset[str]]]:
    return [([file.path for file in files], hashes) for files, hashes in groups]


def test_landed_files_are_news_and_rearranged_or_expired_rows_are_not() -> None:
    rearranged = VersionChange(6, (), (), None)
    expired = changed(7, '{"retention": 90}', added=False)
    news = collect_changes([landed(5, "a"), rearranged, expired, landed(8, "b", "c")], 4)
    assert news is not None
    assert (news.upto, paths(news.groups)) == (8, [(["a", "b", "c"], frozenset())])
    assert not news.is_empty
    empty = collect_changes([rearranged, expired], 5)
    assert empty is not None
    assert (empty.upto, empty.is_empty) == (7, True)


def test_rows_are_left_out_only_where_they_landed_before_their_device_was_erased() -> None:
    erasure = changed(6, asked("erase", device="x"))
    news = collect_changes(
        [landed(5, "a"), erasure, landed(7, "b"), changed(8, asked("correct", device="y")), landed(9, "c")], 4
    )
    assert news is not None
    assert paths(news.groups) == [(["a"], frozenset({request_device_hash("x")})), (["b", "c"], frozenset())]
    assert (news.corrected, news.erased) == ({"y"}, {request_device_hash("x")})


def test_a_device_that_must_not_be_named_is_known_by_its_hash() -> None:
    for request in (asked("erase", device_sha256=request_device_hash("x")), asked("erase", device="x")):
        assert erased_device_hash(CommitMetadata.parse(request)) == request_device_hash("x")
    for text in (asked("correct", device="x"), "{}", "[]", "", None, '{"request": 1}'):
        assert erased_device_hash(CommitMetadata.parse(text)) is None


def test_a_change_that_no_request_names_cannot_be_followed() -> None:
    assert collect_changes([landed(5, "a"), changed(6, None)], 4) is None


@pytest.fixture
def log(tmp_path: Path) -> TableChangeReader:
    for number in range(4):
        marks = CommitProperties(custom_metadata={"userMetadata": Mark("a", number, {}, {"t": {0: number}}).encode()})
        table = pa.table({"device": [f"d{number}"], "date": ["2026-05-01"]})
        write_deltalake(
            str(tmp_path / "readings"), table, mode="append", partition_by=["date"], commit_properties=marks
        )
    return TableChangeReader(str(tmp_path), READINGS)


def test_a_log_is_followed_from_any_version_and_told_whole_where_it_expired(
    log: TableChangeReader, tmp_path: Path
) -> None:
    assert (log.version, log.news(3).is_empty) == (3, True)
    assert (len(log.news(1).files), log.news(1).whole) == (2, False)
    assert (len(log.news(None).files), log.news(None).whole) == (4, True)
    assert (len(log.news(17).files), log.news(17).whole) == (4, True), "a table made anew"
    write_deltalake(str(tmp_path / "readings"), pa.table({"device": ["d9"], "date": ["2026-05-01"]}), mode="append")
    assert log.news(3).is_empty, "until the next look everybody is told of the same versions"
    log.look()
    assert len(log.news(3).files) == 1
    DeltaTable(str(tmp_path / "readings")).create_checkpoint()
    for version in range(3):
        (tmp_path / "readings" / "_delta_log" / f"{version:020d}.json").unlink()
    again = TableChangeReader(str(tmp_path), READINGS)
    assert (len(again.news(0).files), again.news(0).whole) == (5, True)
    assert len(again.live_after(0)) == 5
    assert len(again.live_after(3)) == 1


def test_a_pass_is_due_once_in_a_while_and_then_for_all(log: TableChangeReader) -> None:
    nothing: Any = None
    often, seldom = SharedArrivals(nothing, log.root), SharedArrivals(nothing, log.root, every_seconds=3600)
    for arrivals, again in ((often, True), (seldom, False)):
        assert [arrivals.begin(), arrivals.begin()] == [True, True]
        arrivals.release()
        assert arrivals.begin() is again


class Without(tuple[Any, frozenset[str]]):
    """Rows, and the devices that were taken out of them."""

    def where(self, condition: str) -> "Without":
        """All of them."""
        assert condition in {"retained IS NOT TRUE", "retain IS NOT TRUE"}
        return self


def test_no_source_brings_an_erased_device_back_to_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An erasure that is killed between two tables leaves the device in some of them."""
    monkeypatch.setattr(devices, "drop_devices", lambda rows, hashes: Without((rows, frozenset(hashes))))
    monkeypatch.setattr(devices, "heard_messages", lambda *parts, count: parts)
    monkeypatch.setattr(devices, "device_rows", lambda *parts: parts)
    arrivals: Any = SimpleNamespace(
        dead_letters=None, ledger=None, rows=lambda *_arguments: "rows", readings_rows=lambda *_arguments: "rows"
    )
    writer: Any = SimpleNamespace(root="", settings=SimpleNamespace(count_retained=False))
    derivation = DevicesDerivation(writer, arrivals)
    derivation._own.erased = {"own"}
    rows: Any = derivation._rows(
        TableChanges(1, erased={"reading"}), TableChanges(1, erased={"letter"}), [DataFile("counts")]
    )
    gone = frozenset({"own", "reading", "letter"})
    assert rows[1:3] == (("rows", gone), (None, gone))


def at(minute: int, second: float = 0.0) -> datetime:
    return datetime(2026, 5, 1, 12, minute, tzinfo=UTC).replace(second=int(second))


def file(low: int, high: int, rows: int = 1, column: str = "minute") -> DataFile:
    ends = {"low": {column: at(low).isoformat()}, "high": {column: at(high).isoformat()}}
    return DataFile(f"{low}-{high}", {"date": "2026-05-01"}, rows, 1, ends["low"], ends["high"])


def test_the_minutes_of_files_come_from_their_statistics() -> None:
    nothing: Any = None
    assert minutes_in([file(3, 5, column="received_at"), file(9, 9, column="received_at")], nothing) == {
        at(3), at(4), at(5), at(9),
    }  # fmt: skip


def test_a_file_that_grew_is_divided_and_others_stay_apart() -> None:
    assert cuts_of([file(0, 9, HOT_ROWS)], {at(9)}) == []
    assert cuts_of([file(0, 9, HOT_ROWS + 1)], {at(9), at(10)}) == [at(9)]
    assert cuts_of([file(0, 3, HOT_ROWS + 1), file(4, 9)], {at(2), at(9)}) == [at(4)]


def cursor(**more: Any) -> LedgerCursor:
    seen = {"readings": 0, "dead_letters": 0, "upto": {}, "ends": {"r": {"0": 0}}, "all_landed": True, "unsettled": []}
    return LedgerCursor.of({**seen, "outcomes": {"0": 7, "1": 5}, **more})


def test_outcomes_are_counted_again_only_in_a_topic_that_was_made_anew() -> None:
    grown, shortened = {0: 9, 1: 5, 2: 1}, {0: 9, 1: 3}
    for known, found in (("a", "a"), (None, "a"), ("a", None)):
        assert cursor(topic=known).starts(grown, found) == {0: 7, 1: 5, 2: 0}
        assert cursor(topic=known).starts(shortened, found) == {0: 7, 1: 3}
    assert cursor(topic="a").starts(grown, "b") == {0: 0, 1: 0, 2: 0}
    assert cursor().topic is None, "as older versions wrote it"
    assert (cursor().copies_known, cursor().holes) == (False, {}), "as older versions wrote it"
    known = replace(cursor(topic="a"), copies_known=True, duplicates=3, holes={"g": {"5": [[1, 4]]}})
    assert LedgerCursor.of(json.loads(json.dumps(known.encode()))) == known


@pytest.mark.parametrize(
    ("ends", "kept"),
    [({0: 7, 1: 5}, None), ({0: 7, 1: 3}, {"outcomes": {0: 7, 1: 3}, "topic": "a"})],
    ids=["nothing came", "a power cut took some"],
)
def test_a_shortened_topic_is_noted_at_once_so_that_what_comes_next_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: dict[int, int], kept: dict[str, Any] | None
) -> None:
    for table in (READINGS, DEAD_LETTERS, DUPLICATES, LEDGER):
        create_table(str(tmp_path), table, log_retention_hours=24)
    asked_for: list[list[str]] = []

    def ids(_kafka: object, names: list[str]) -> dict[str, str]:
        asked_for.append(names)
        return {"o": "a"}

    monkeypatch.setattr(ledger, "end_offsets", lambda _kafka, _topic: ends)
    monkeypatch.setattr(ledger, "topic_ids", ids)
    nothing: Any = None
    writer: Any = SimpleNamespace(
        root=str(tmp_path), kafka=None, topics=LandedTopics("r", "d", "o"), background_tasks={},
        settings=StreamSettings(checkpoint=str(tmp_path / "checkpoint")),
        metrics=StreamMetrics(CollectorRegistry(), query="land", tables=["ledger"], topics=["r"]),
    )  # fmt: skip
    derivation = LedgerDerivation(writer, SharedArrivals(nothing, writer.root))
    derivation._own.refresh()
    derivation._own.cursor = cursor(topic="a").encode()
    committed: list[dict[str, Any]] = []
    monkeypatch.setattr(
        derivation._own, "replace", lambda rows, _files, seen: committed.append({"rows": rows, **seen(None)})
    )
    assert derivation.run() is (kept is not None)
    assert [{name: each[name] for name in ("rows", "outcomes", "topic")} for each in committed] == (
        [{"rows": None, **kept}] if kept else []
    )
    assert asked_for == ([["o"]] if kept else []), "only where there is something to read"


def test_the_last_numbers_are_kept_by_the_order_in_which_their_epochs_were_heard() -> None:
    nothing: Any = None
    upto = later_numbers({"g": {"7": 5, "9": 3}}, OutcomeSums(nothing, {"g": {"7": 4, "2": 1}, "h": {"1": 1}}))
    assert upto == {"g": {"9": 3, "2": 1, "7": 5}, "h": {"1": 1}}
    many = {"g": {str(n): n for n in range(100)}}
    assert next(iter(newest_epochs(many, many)["g"])) == "36"
    assert later_numbers({}, None) == {}


def test_epochs_are_forgotten_under_continuous_load_too() -> None:
    upto = {"g": {str(n): 1 for n in range(100)}}
    assert newest_epochs(upto, {}) == upto, "the landing is behind"
    before = {"g": {str(n): 1 for n in range(90)}}
    assert list(newest_epochs(upto, before)["g"]) == [str(n) for n in range(36, 100)]
    before["g"]["7"] = 0  # counted on since
    del before["g"]["9"]  # heard of since
    assert list(newest_epochs(upto, before)["g"]) == ["7", "9", *(str(n) for n in range(36, 100))]


@pytest.mark.parametrize(
    ("all_landed", "older_landed", "told"), [(True, True, "new"), (False, True, "old"), (False, False, None)]
)
def test_what_has_landed_is_that_of_the_pass_before_where_records_came_since(
    *, all_landed: bool, older_landed: bool, told: str | None
) -> None:
    upto = {"new": {"g": {"1": 5}}, "old": {"g": {"1": 3}}}
    settling = Settling({}, at(1), at(0), all_landed=all_landed, older_landed=older_landed, forgotten={})
    assert cursor(upto=upto["new"]).landed_upto(cursor(upto=upto["old"]), settling) == upto.get(str(told), {})


def test_only_a_gateway_whose_epochs_were_forgotten_has_forgotten_ones() -> None:
    upto = {
        "old": {str(n): 1 for n in range(90, 90 + KEPT_EPOCHS)},
        "young": {str(n): 1 for n in range(KEPT_EPOCHS - 1)},
    }
    assert forgotten_before(upto) == {"old": 90}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(0, 20))
def test_the_numbers_that_are_counted_are_known_in_any_order_of_the_outcomes(
    lengths: list[int], chance: Random, before: int
) -> None:
    """Each outcome counts the range after the one before it; some never come, and they come in any order."""
    nothing: Any = None
    ends = list(accumulate(lengths, initial=before))
    ranges = [(low + 1, high) for low, high in pairwise(ends)]
    chance.shuffle(ranges)
    upto: dict[str, dict[str, int]] = {}
    holes: dict[str, dict[str, list[list[int]]]] = {}
    counted: set[int] = set()
    for first, last in ranges[: chance.randint(1, len(ranges))]:
        news = OutcomeSums(nothing, {"g": {"7": last}}, first={"g": {"7": first}})
        upto, holes = later_numbers(upto, news), holes_after(holes, upto, news)
        counted |= set(range(first, last + 1))
        in_holes = {number for low, high in holes.get("g", {}).get("7", []) for number in range(low, high + 1)}
        assert {number for number in range(1, upto["g"]["7"] + 1) if number not in in_holes} == counted


def test_the_landing_has_come_to_an_end_only_in_every_partition() -> None:
    assert has_landed_up_to({}, {})
    assert has_landed_up_to({"a": {0: 5, 1: 2}}, {"a": {0: 5}})
    assert not has_landed_up_to({"a": {0: 5}}, {"a": {0: 5, 1: 1}})
    assert has_landed_up_to({}, {"a": {0: 0}})


def test_the_schema_of_outcomes_is_that_of_the_contract() -> None:
    for struct in (OutcomeRecord, Count):
        for each in msgspec.structs.fields(struct):
            # A gateway alone reads the highest numbers, at its start.
            assert each.name == "sequences" or f"{each.name} " in OUTCOME_SCHEMA, each.name


def test_what_others_commit_to_a_table_of_ours_is_taken_in(tmp_path: Path) -> None:
    create_table(str(tmp_path), LATEST, log_retention_hours=24)
    writer: Any = SimpleNamespace(root=str(tmp_path))
    own = DerivedTable(writer, LATEST)
    own.refresh()
    assert (own.cursor, own.files, own.erased) == (None, {}, set())
    now = datetime(2026, 5, 1, tzinfo=UTC)
    row = {"device": "d", "metric": "m", "event_time": now, "received_at": now, "updated_at": now}
    rows = pa.Table.from_pylist([row], schema=pa.schema(DeltaTable(str(tmp_path / "latest")).schema().to_arrow()))
    metadata = {"request": {"kind": "erase", "arguments": {"device": "x"}}, "derived": {"readings": 7}}
    marks = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)})
    write_deltalake(str(tmp_path / "latest"), rows, mode="append", commit_properties=marks)
    for each in (own, DerivedTable(writer, LATEST)):
        each.refresh()
        assert (each.cursor, len(each.files), each.erased) == ({"readings": 7}, 1, {request_device_hash("x")})
