"""Rows that a change selects, and the files with such rows, found by statistics and columns without a JVM.

A file is rewritten only if its statistics allow a match and its columns have one.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote

from lakehouse.catalog import open_table
from lakehouse.changes import DataFile, table_files
from lakehouse.dataset import dataset_of
from lakehouse.file_stats import may_hold_text
from lakehouse.paths import is_local, table_uri
from streaming.history.device_names import SHORT

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import Column

__all__ = ["MatchedFiles", "RowSelection", "find_matches", "place_of"]

_FILE: Final = "__filename"


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of a device; of one metric, and with event_time in [since, until), where those are given (UTC).

    A table without a column `device` has `named_in`: its columns of text, one of which names the device.
    """

    device: str
    metric: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    named_in: tuple[str, ...] = ()

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Read a selection from a request's arguments: `device`, `metric`, `from`, `to`."""
        since, until = (datetime.fromisoformat(text) if text else None for text in map(arguments.get, ("from", "to")))
        return cls(arguments["device"], arguments.get("metric"), since, until)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for a request: derived tables recalculate no more than these name."""
        named = {
            "device": self.device,
            "metric": self.metric,
            "from": self.since and self.since.isoformat(),
            "to": self.until and self.until.isoformat(),
        }
        return {name: value for name, value in named.items() if value is not None}

    def expression(self) -> "ds.Expression":
        """Return the selection as a condition on the columns of an Arrow dataset."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        if self.named_in:
            kinds = [pc.match_substring_regex(ds.field(name), pattern=self._pattern) for name in self.named_in]
            return reduce(or_, kinds)
        found = ds.field("device") == self.device
        if self.metric is not None:
            found = found & (ds.field("metric") == self.metric)
        if self.since is not None:
            found = found & (ds.field("event_time") >= pa.scalar(self.since, pa.timestamp("us", "UTC")))
        if self.until is not None:
            found = found & (ds.field("event_time") < pa.scalar(self.until, pa.timestamp("us", "UTC")))
        return found

    def condition(self) -> "Column":
        """Return the selection as a Spark condition; it is never null, so that its negation keeps every other row."""
        from pyspark.sql import functions as F

        if self.named_in:
            kinds = [F.coalesce(F.col(f"`{name}`").rlike(self._pattern), F.lit(False)) for name in self.named_in]
            return reduce(or_, kinds)
        found = F.col("device").eqNullSafe(F.lit(self.device))
        if self.metric is not None:
            found = found & (F.col("metric") == F.lit(self.metric))
        if self.since is not None:
            found = found & (F.col("event_time") >= F.lit(self.since))
        if self.until is not None:
            found = found & (F.col("event_time") < F.lit(self.until))
        return found

    @property
    def _pattern(self) -> str:
        """The id with no letter or digit of ASCII next to it, for Arrow's regular expressions and Java's.

        A very short one must be the whole text.
        """
        if len(self.device) < SHORT:
            return rf"\A{re.escape(self.device)}\z"
        return rf"(\A|[^A-Za-z0-9]){re.escape(self.device)}([^A-Za-z0-9]|\z)"


@dataclass(frozen=True, slots=True)
class MatchedFiles:
    """Files of a table's version that hold selected rows, with how many."""

    files: dict[str, int]
    """Path as the log writes it -> rows selected in it."""
    known: dict[str, DataFile]
    version: int
    totals: dict[str, int]
    """Path -> all rows of it, by its footer."""

    @property
    def row_count(self) -> int:
        """Rows selected."""
        return sum(self.files.values())

    @property
    def total_rows(self) -> int:
        """All rows of the files that hold selected ones."""
        return sum(self.totals.values())

    @property
    def data_files(self) -> list[DataFile]:
        """Return the files to rewrite, in the order in which their rows arrived as far as the log tells."""
        found = [self.known[path] for path in self.files]
        return sorted(found, key=lambda file: (sorted(file.partition.items(), key=str), str(_arrival(file)), file.path))


def find_matches(
    root: str,
    name: str,
    selection: RowSelection,
    *,
    columns: tuple[str, ...] = (),
    see: "Callable[[pa.RecordBatch], object] | None" = None,
) -> MatchedFiles:
    """Find the selected rows of a table as of now. `see` gets the asked columns of them, a batch at a time.

    Raises:
        UnavailableError: there is no such table.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    table = open_table(root, name)
    version = table.version()
    known = {file.path: file for file in table_files(root, name, version=version)}
    by_place = {
        place_of(table_uri(root, name), path): path for path, file in known.items() if _may_hold(file, selection)
    }
    whole: Any = dataset_of(table)
    fragments = [fragment for fragment in whole.get_fragments() if fragment.path in by_place]
    dataset = ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
    counts: dict[str, int] = {}
    scanner = dataset.scanner(columns=[*columns, _FILE], filter=selection.expression(), batch_size=65_536)
    for batch in scanner.to_batches():
        for entry in pc.value_counts(batch.column(_FILE)).to_pylist():
            path = by_place[entry["values"]]
            counts[path] = counts.get(path, 0) + entry["counts"]
        if see is not None and batch.num_rows:
            see(batch)
    totals = {by_place[f.path]: f.metadata.num_rows for f in fragments if by_place[f.path] in counts}
    return MatchedFiles(counts, known, version, totals)


def _may_hold(file: DataFile, selection: RowSelection) -> bool:
    """Return whether the statistics in the log allow a selected row."""
    return all(
        may_hold_text(file, column, wanted)
        for column, wanted in _texts(selection)
        if column in file.low or column in file.high
    )


def _texts(selection: RowSelection) -> Iterator[tuple[str, str]]:
    if selection.named_in:
        return
    yield "device", selection.device
    if selection.metric is not None:
        yield "metric", selection.metric


def _arrival(file: DataFile) -> object:
    return file.low.get("landed_at") or file.low.get("received_at") or file.low.get("window_start") or ""


def place_of(uri: str, path: str) -> str:
    """Return the file's name in a dataset."""
    return f"{unquote(uri.removeprefix('file://'))}/{unquote(path)}" if is_local(uri) else unquote(path)
