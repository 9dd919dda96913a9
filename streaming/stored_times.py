"""Kafka's times of the stored records, which show whether a log is still the same even if a clock was set.

Marks name only one record per batch, and a name that came late is missing. Each stored reading has its offset and its time.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from lakehouse.dataset import dataset_of, read_in_turn
from lakehouse.tables import DUPLICATES, READINGS

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = ["StoredTimes", "Times", "no_times", "stored_times"]

Times = dict[int, set[int]]
"""offset -> the times (ms) at which Kafka appended its record; several where a log was cut back before."""
StoredTimes = Callable[[str, int, range, int], Times]
"""Function that returns the stored records at these offsets of a partition; none that landed before the time (ms)."""

_SLACK: Final = timedelta(days=1)
"""Largest lag of the landing's clock behind Kafka's."""


def no_times(_topic: str, _part: int, _offsets: range, _since_ms: int) -> Times:
    """Return no times, for a topic whose times no table keeps."""
    return {}


def stored_times(root: str, readings_topic: str) -> StoredTimes:
    """Return the times of the topic of readings, from `readings` and `duplicates`. A dead letter does not keep Kafka's time."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from lakehouse.paths import table_uri

    def times(topic: str, part: int, offsets: range, since_ms: int) -> Times:
        found: Times = {}
        if topic != readings_topic or not offsets:
            return found
        since = datetime.fromtimestamp(max(0, since_ms) / 1000, UTC) - _SLACK
        wanted = (ds.field("partition") == part) & (ds.field("offset") >= offsets.start)
        wanted = wanted & (ds.field("offset") < offsets.stop)
        wanted = wanted & (ds.field("landed_at") >= pa.scalar(since, pa.timestamp("us", "UTC")))
        for uri in (table_uri(root, table.name) for table in (READINGS, DUPLICATES)):
            if DeltaTable.is_deltatable(uri):
                _add(found, dataset_of(DeltaTable(uri)), wanted)
        return found

    return times


def _add(found: Times, rows: "ds.Dataset", wanted: "ds.Expression") -> None:
    for batch in read_in_turn(rows, ["offset", "kafka_time"], wanted):
        columns: Any = batch.to_pydict()
        for offset, at in zip(columns["offset"], columns["kafka_time"], strict=True):
            found.setdefault(offset, set()).add(round(at.timestamp() * 1000))
