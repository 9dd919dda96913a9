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
from lakehouse.tables import READINGS
from streaming.replays import REPLAY_COLUMNS, Replays, make_replay_lookup

AT = datetime(2026, 5, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("mqtt_topic", pa.string()),
        ("payload_hash", pa.int64()), ("retained", pa.bool_()), ("partition", pa.int32()), ("offset", pa.int64()),
    ]
)  # fmt: skip
COPIES = pa.schema([("row", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64()), ("position", pa.int64())])
NO_COPIES = COPIES.empty_table()


def row(said: int | None, *, retained: bool | None = True, offset: int = 0, **more: Any) -> dict[str, Any]:
    known = {"device": "d", "metric": "t", "index": 0, "mqtt_topic": "a/d", "partition": 0}
    return known | {"payload_hash": said, "retained": retained, "offset": offset} | more


def rows(*each: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(each), schema=SCHEMA).select(REPLAY_COLUMNS)


def found(batch: pa.Table, *stored: pa.Table, copies: pa.Table = NO_COPIES, **more: Any) -> list[int]:
    """Numbers of the rows that are left out, where the table holds these."""
    return list(Replays(lambda wanted: stored, **more).add_stored(batch, copies)["row"].to_pylist())


def test_a_replay_is_found_by_topic_and_payload_and_only_there() -> None:
    batch = rows(
        row(1), row(2), row(3, mqtt_topic="b/d"), row(4, metric="u"), row(5, index=1), row(6, device="e"),
        row(7, retained=False), row(8, retained=None), row(None),
    )  # fmt: skip
    stored = rows(*(row(said, retained=None) for said in (1, 3, 4, 5, 6, 7, 8, None)))
    assert found(batch, stored) == [1], "a live message that says the same again is news"


def test_the_live_delivery_may_be_in_the_same_batch_and_copies_stay_copies() -> None:
    batch = rows(row(1, retained=False), row(1, offset=1), row(2, offset=2), row(2, offset=2, metric="u"))
    copies = pa.Table.from_pylist([{"row": 3, "partition": 0, "offset": 2, "position": 0}], schema=COPIES)
    left_out = Replays(lambda wanted: [rows(row(2, metric="u"))]).add_stored(batch, copies)
    assert left_out.to_pylist() == [
        {"row": 2, "partition": 0, "offset": 1, "position": 0},
        {"row": 3, "partition": 0, "offset": 2, "position": 0},
        {"row": 4, "partition": 0, "offset": 2, "position": 1},
    ]


def test_a_look_up_ends_with_what_it_wants_or_with_its_time() -> None:
    now, asked = [0.0], [0]

    def stored() -> Iterator[pa.Table]:
        for said in (1, 2, 3, 4):
            asked[0] += 1
            now[0] += 6.0
            yield rows(row(said))

    replays = Replays(lambda wanted: stored(), clock=lambda: now[0])
    assert replays.add_stored(rows(row(1)), NO_COPIES).num_rows == 1
    assert asked == [1], "nothing is looked for behind what was found"
    assert replays.add_stored(rows(row(4)), NO_COPIES).num_rows == 0, "its time was over: it is stored, as a replay"
    assert asked == [2]
    now[0] += 300.0
    assert replays.add_stored(rows(row(2)), NO_COPIES).num_rows == 1, "its share has grown again"


SAID = st.integers(0, 3)
STORED: list[pa.Table] = []
REPLAYS = Replays(lambda wanted: STORED, clock=lambda: 0.0)
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
                copies.append({"row": place + 1, "partition": 0, "offset": place, "position": 0})
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
    replays = Replays(make_replay_lookup(str(tmp_path)))
    assert replays.add_stored(rows(row(0), row(9), row(2, device="z")), NO_COPIES)["row"].to_pylist() == [1, 3]
