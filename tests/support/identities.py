"""Behaviour of the two indexes of identities, the driver's and that of executors.

`from tests.support.identities import IdentityCases`; a test class with the fixture `seen` inherits the cases.
"""

from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from streaming.dedup_index import KEY_COLUMNS

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()),
        ("boot", pa.int64()), ("seq", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64()),
    ]
)  # fmt: skip


class Index(Protocol):
    def add(self, rows: pa.Table, landed_at: datetime) -> None: ...

    def duplicates(self, rows: pa.Table) -> pa.Table: ...

    def forget(self, device: str) -> None: ...


def row(
    offset: int,
    *,
    metric: str = "t",
    device: str = "d",
    message_id: str | None = None,
    seq: int | None = None,
    **more: Any,
) -> Any:
    if seq is not None:
        message_id, more = f"bs:7:{seq}", {"boot": 7, **more}
    found = {"index": 0, "boot": None, "partition": 0} | more
    return found | {"device": device, "metric": metric, "message_id": message_id, "seq": seq, "offset": offset}


def rows(*each: Any) -> pa.Table:
    return pa.Table.from_pylist(list(each), schema=SCHEMA).select(KEY_COLUMNS)


def dropped(seen: Index, table: pa.Table) -> list[tuple[int, int]]:
    found = seen.duplicates(table).to_pylist()
    return sorted((each["offset"], each["position"]) for each in found)


class IdentityCases:
    def test_a_redelivered_message_is_dropped_and_its_neighbours_stay(self, seen: Index) -> None:
        seen.add(rows(row(1, seq=1), row(2, seq=2), row(3, seq=4)), NOW)
        assert dropped(seen, rows(row(9, seq=2), row(10, seq=3), row(11, seq=4), row(12, seq=5))) == [(9, 0), (11, 0)]

    def test_a_metric_that_was_not_stored_is_not_lost_with_a_redelivery(self, seen: Index) -> None:
        seen.add(rows(row(1, seq=1, metric="t")), NOW)
        assert dropped(seen, rows(row(9, seq=1, metric="t"), row(9, seq=1, metric="humidity"))) == [(9, 0)]

    def test_copies_within_a_batch_are_dropped_but_for_the_first(self, seen: Index) -> None:
        batch = rows(row(1, seq=1), row(1, seq=1, metric="h"), row(2, seq=1), row(2, seq=1, metric="h"), row(3, seq=2))
        assert dropped(seen, batch) == [(2, 0), (2, 1)]

    def test_rows_without_identity_are_never_dropped(self, seen: Index) -> None:
        batch = rows(row(1), row(2), row(2))
        assert dropped(seen, batch) == []
        seen.add(batch, NOW)
        assert dropped(seen, batch) == []

    def test_other_identities_are_compared_whole(self, seen: Index) -> None:
        seen.add(rows(row(1, message_id="mp:a"), row(2, message_id="rt:b")), NOW)
        batch = rows(row(3, message_id="mp:a"), row(4, message_id="mp:b"), row(5, message_id="rt:b"))
        assert dropped(seen, batch) == [(3, 0), (5, 0)]

    def test_the_same_number_of_another_device_boot_or_index_is_no_copy(self, seen: Index) -> None:
        seen.add(rows(row(1, seq=1)), NOW)
        other_boot = row(3, seq=1) | {"message_id": "bs:8:1", "boot": 8}
        assert dropped(seen, rows(row(2, seq=1, device="e"), other_boot, row(4, seq=1, index=1))) == []

    def test_the_largest_number_there_is_folds_without_overflow(self, seen: Index) -> None:
        for offset in (1, 2):
            seen.add(rows(row(offset, seq=2**63 - 1), row(offset + 2, seq=0)), NOW)
        assert dropped(seen, rows(row(9, seq=2**63 - 1), row(10, seq=2**63 - 2), row(11, seq=0))) == [(9, 0), (11, 0)]

    def test_an_erased_device_is_forgotten_and_no_other(self, seen: Index) -> None:
        numbered = [row(1, seq=1), row(2, seq=1, device="e")]
        seen.add(rows(*numbered, row(3, message_id="mp:a"), row(4, message_id="mp:a", device="e")), NOW)
        seen.forget("d")
        assert dropped(seen, rows(*numbered, row(3, message_id="mp:a"), row(4, message_id="mp:a", device="e"))) == [
            (2, 0), (4, 0),
        ]  # fmt: skip
