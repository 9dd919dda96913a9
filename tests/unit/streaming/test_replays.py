"""Which readings of retained messages are stored already: by topic and payload, whatever identity they have there."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.create import create_table
from lakehouse.tables import DUPLICATES, READINGS
from streaming.duplicate_rows import CountedDuplicates, read_counted_duplicates
from streaming.replay_filter import REPLAY_COLUMNS, ReplayFilter, make_replay_lookup
from tests.support.copies import COPIES

AT = datetime(2026, 5, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("mqtt_topic", pa.string()),
        ("payload_hash", pa.int64()), ("retained", pa.bool_()), ("partition", pa.int32()), ("offset", pa.int64()),
    ]
)  # fmt: skip
COUNTED = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("readings_dropped", pa.int64())])
NO_COPIES = COPIES.empty_table()


def row(said: int | None, *, retained: bool | None = True, offset: int = 0, **more: Any) -> dict[str, Any]:
    known = {"device": "d", "metric": "t", "index": 0, "mqtt_topic": "a/d", "partition": 0}
    return known | {"payload_hash": said, "retained": retained, "offset": offset} | more


def rows(*each: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(each), schema=SCHEMA).select(REPLAY_COLUMNS)


def found(batch: pa.Table, *stored: pa.Table, copies: pa.Table = NO_COPIES, **more: Any) -> list[int]:
    """Numbers of the rows that are left out, where the table holds these."""
    return list(ReplayFilter(lambda wanted: stored, **more).add_stored(batch, copies)["row"].to_pylist())


def test_a_replay_is_found_by_topic_and_payload_and_only_there() -> None:
    batch = rows(
        row(1), row(2), row(3, mqtt_topic="b/d"), row(4, metric="u"), row(5, index=1), row(6, device="e"),
        row(7, retained=False), row(8, retained=None), row(None),
    )  # fmt: skip
    stored = rows(*(row(said, retained=None) for said in (1, 3, 4, 5, 6, 7, 8, None)))
    assert found(batch, stored) == [1], "a live message that says the same again is news"


def test_the_live_delivery_may_be_in_the_same_batch_and_copies_stay_copies() -> None:
    batch = rows(row(1, retained=False), row(1, offset=1), row(2, offset=2), row(2, offset=2, metric="u"))
    copies = pa.Table.from_pylist(
        [{"row": 3, "partition": 0, "offset": 2, "position": 0, "replayed": False}], schema=COPIES
    )
    left_out = ReplayFilter(lambda wanted: [rows(row(2, metric="u"))]).add_stored(batch, copies)
    assert left_out.to_pylist() == [
        {"row": 2, "partition": 0, "offset": 1, "position": 0, "replayed": True},
        {"row": 3, "partition": 0, "offset": 2, "position": 0, "replayed": False},
        {"row": 4, "partition": 0, "offset": 2, "position": 1, "replayed": True},
    ]


def test_a_look_up_ends_with_what_it_wants_or_with_its_time() -> None:
    now, asked = [0.0], [0]

    def stored() -> Iterator[pa.Table]:
        for said in (1, 2, 3, 4):
            asked[0] += 1
            now[0] += 6.0
            yield rows(row(said))

    replays = ReplayFilter(lambda wanted: stored(), clock=lambda: now[0])
    assert replays.add_stored(rows(row(1)), NO_COPIES).num_rows == 1
    assert asked == [1], "nothing is looked for behind what was found"
    assert replays.add_stored(rows(row(4)), NO_COPIES).num_rows == 0, "its time was over: it is stored, as a replay"
    assert asked == [2]
    now[0] += 300.0
    assert replays.add_stored(rows(row(2)), NO_COPIES).num_rows == 1, "its share has grown again"


def counted(*records: tuple[int, int], end: int = 10) -> CountedDuplicates:
    """What an earlier run left out: (offset, readings) of partition 0, for all records below `end`."""
    each = [{"partition": 0, "offset": offset, "readings_dropped": dropped} for offset, dropped in records]
    return CountedDuplicates(((0, end),), pa.Table.from_pylist(each, schema=COUNTED))


def test_a_batch_that_is_run_again_leaves_out_what_was_counted_and_nothing_else() -> None:
    """Its look-up has another time than that of the first run, which was killed before `readings`."""
    batch = rows(row(1), row(2, offset=1), row(2, offset=1, metric="u"), row(3, offset=2), row(4, offset=12))
    stored = rows(*(row(said) for said in (1, 2, 3, 4)))

    def again(first: CountedDuplicates | None, *found: pa.Table) -> list[int]:
        return list(ReplayFilter(lambda wanted: found).add_stored(batch, NO_COPIES, first)["row"].to_pylist())

    assert again(None, stored) == [1, 2, 4, 5]
    assert again(counted((0, 1), (1, 2), (2, 1))) == [1, 2, 3, 4], "though nothing is found any more"
    assert again(counted(), stored) == [5], "the first run had no time left: it counted none"
    assert again(counted((1, 1)), stored) == [2, 5], "of a record that is stored in part"
    assert again(counted((1, 1), end=2), stored) == [2, 4, 5]


def test_such_a_batch_takes_its_time() -> None:
    now, batch = [0.0], rows(row(1), row(1, metric="u"))

    def slow(wanted: pa.Table) -> Iterator[pa.Table]:
        for said in (7, 8, 1):
            now[0] += 60.0
            yield rows(row(said))

    found = ReplayFilter(slow, clock=lambda: now[0]).add_stored(batch, NO_COPIES, counted((0, 1)))
    assert found["row"].to_pylist() == [1]


def test_what_was_counted_is_read_back(tmp_path: Path) -> None:
    create_table(str(tmp_path), DUPLICATES, log_retention_hours=24)
    table = DeltaTable(str(tmp_path / "duplicates"))
    made = [
        {
            **dict.fromkeys(("received_at", "kafka_time", "landed_at"), AT + timedelta(days=day)),
            "device": "d", "partition": 0, "offset": offset, "readings_dropped": offset, "whole": True, "date": AT.date(),
        }
        for day, offset in ((0, 1), (0, 2), (9, 1))
    ]  # fmt: skip
    write_deltalake(table, pa.Table.from_pylist(made, schema=pa.schema(table.schema().to_arrow())), mode="append")
    batch = pa.table(
        {"received_at": pa.array([AT] * 2, pa.timestamp("us", "UTC")), "offset": pa.array([1, 3], pa.int64())}
    )
    found = read_counted_duplicates(str(tmp_path), batch, [(0, 7)])
    assert found.records.to_pylist() == [{"partition": 0, "offset": 1, "readings_dropped": 1}]
    assert found.ends == ((0, 7),)


SAID = st.integers(0, 3)
STORED: list[pa.Table] = []
REPLAYS = ReplayFilter(lambda wanted: STORED, clock=lambda: 0.0)
MESSAGES = st.lists(st.tuples(SAID, st.booleans()), max_size=20)


@settings(max_examples=40)
@given(st.lists(MESSAGES, max_size=5))
def test_any_order_of_deliveries_leaves_each_retained_message_once(batches: list[list[tuple[int, bool]]]) -> None:
    """A live delivery is always a row; a replay is one where nothing of its topic and payload was there before."""
    table: list[dict[str, Any]] = []
    model: list[tuple[int, bool]] = []
    for number, batch in enumerate(batches):
        # The landing's own identities leave one of equal replays within a batch, and in its horizon.
        sent = [row(said, retained=is_replay, offset=i) for i, (said, is_replay) in enumerate(batch)]
        seen = {(said, True) for said, is_replay in model if is_replay}
        copies = []
        for place, (said, is_replay) in enumerate(batch):
            if is_replay and (said, True) in seen:
                copies.append({"row": place + 1, "partition": 0, "offset": place, "position": 0, "replayed": False})
            if is_replay:
                seen.add((said, True))
        STORED[:] = [rows(*table)]
        known = pa.Table.from_pylist(copies, schema=COPIES)
        out = REPLAYS.add_stored(rows(*sent), known)["row"].to_pylist() if sent else []
        table += [each for place, each in enumerate(sent) if place + 1 not in out]
        live_now = {said for said, is_replay in batch if not is_replay}
        for said, is_replay in batch:
            if not is_replay or (said not in live_now and said not in {one for one, _ in model}):
                model.append((said, is_replay))
        assert sorted((each["payload_hash"], each["retained"]) for each in table) == sorted(model), number


def test_the_table_is_asked_file_by_file_however_long_ago(tmp_path: Path) -> None:
    create_table(str(tmp_path), READINGS, log_retention_hours=24)
    table = DeltaTable(str(tmp_path / "readings"))
    for day, device in enumerate(("d", "d", "z")):
        at = AT + timedelta(days=30 * day)
        times = dict.fromkeys(("event_time", "received_at", "kafka_time", "landed_at"), at)
        made = {**row(day, device=device, retained=None), **times, "time_source": "gateway", "date": at.date()}
        write_deltalake(table, pa.Table.from_pylist([made], schema=pa.schema(table.schema().to_arrow())), mode="append")
    pieces = [piece.num_rows for piece in make_replay_lookup(str(tmp_path))(rows(row(0)))]
    assert pieces == [0, 1], "the file of another device is not opened, the newest comes first"
    replays = ReplayFilter(make_replay_lookup(str(tmp_path)))
    assert replays.add_stored(rows(row(0), row(9), row(2, device="z")), NO_COPIES)["row"].to_pylist() == [1, 3]
