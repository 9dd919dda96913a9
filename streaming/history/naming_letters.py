"""Removal of payloads from dead letters of other devices, or of none, that name an erased device.

A message of several devices is kept whole in the dead letter of each rejected device. One device cannot be removed from an
arbitrary payload, so the whole payload is removed, and its length and SHA-256 stay. The letter itself stays for the audit.
"""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lakehouse.catalog import open_table
from lakehouse.dataset import dataset_of
from lakehouse.frames import local_rows
from lakehouse.paths import table_uri
from lakehouse.tables import DEAD_LETTERS
from streaming.history.device_names import DeviceNames
from streaming.history.selection import MatchedFiles, RowSelection, find_matches, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CUT", "NamingLetters", "find_naming"]

CUT: Final = "erased: the message names a device that was erased"
"""Value of `got` in a dead letter that was cut."""
_NAMED: Final = ("source_topic", "partition", "offset")
_TEXTS: Final = ("path", "wanted", "mqtt_topic", "message_id", "trace")
_SEARCHED: Final = ("payload", "payload_text", "got", *_TEXTS)

_Letter = tuple[str, int, int]


class NamingLetters:
    """The letters found, with the SHA-256 of their payload, how many each file holds, and all rows of such a file."""

    def __init__(self) -> None:
        self.hashes: dict[_Letter, str | None] = {}
        self.files: dict[str, int] = {}
        self.totals: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Letters that are cut."""
        return sum(self.files.values())

    def cut(self, spark: "SparkSession", rows: "DataFrame", device: str) -> "DataFrame":
        """The rows with these letters cut; the same rows in the same order."""
        if not self.hashes:
            return rows
        from pyspark.sql import functions as F

        listed = [(*name, digest) for name, digest in self.hashes.items()]
        kinds = "tidegate_topic string, tidegate_partition int, tidegate_offset bigint, tidegate_sha256 string"
        cut = F.broadcast(local_rows(spark, listed, kinds))
        pairs = zip(_NAMED, ("tidegate_topic", "tidegate_partition", "tidegate_offset"), strict=True)
        joined = rows.join(cut, [F.col(own) == F.col(other) for own, other in pairs], "left")
        # A letter of the device itself goes as a whole.
        chosen = F.col("tidegate_topic").isNotNull() & ~F.col("device").eqNullSafe(F.lit(device))
        values = {
            "payload": F.expr("X''"),
            "payload_text": F.lit(None).cast("string"),
            "payload_sha256": F.coalesce("payload_sha256", "tidegate_sha256"),
            "got": F.lit(CUT),
            **dict.fromkeys(_TEXTS, F.lit(None).cast("string")),
        }
        changed = {name: F.when(chosen, value).otherwise(F.col(name)) for name, value in values.items()}
        return joined.withColumns(changed).select(*rows.columns)

    def joined(self, own: MatchedFiles) -> MatchedFiles:
        """The match with the files of these letters too, of which no row goes."""
        more = {path: rows for path, rows in self.totals.items() if path not in own.files}
        return replace(own, files=own.files | dict.fromkeys(more, 0), totals=own.totals | more)


def find_naming(root: str, device: str) -> tuple[MatchedFiles, NamingLetters]:
    """The rows of the device in `dead_letters`, and the letters of others that name it; reads every letter's payload."""
    import pyarrow.dataset as ds

    own, names, found = (
        find_matches(root, DEAD_LETTERS.name, RowSelection(device)),
        DeviceNames(device),
        NamingLetters(),
    )
    table = open_table(root, DEAD_LETTERS.name)
    table.load_as_version(own.version)
    places = {place_of(table_uri(root, DEAD_LETTERS.name), path): path for path in own.known}
    others = ds.field("device").is_null() | (ds.field("device") != device)
    columns = [*_NAMED, *_SEARCHED, "__filename"]
    dataset: Any = dataset_of(table)
    for batch in dataset.scanner(columns=columns, filter=others, batch_size=64).to_batches():
        for row in batch.to_pylist():
            if not names.in_row({name: row[name] for name in _SEARCHED}):
                continue
            payload = row["payload"]
            found.hashes[_name(row)] = hashlib.sha256(payload).hexdigest() if payload else None
            path = places[row["__filename"]]
            found.files[path] = found.files.get(path, 0) + 1
    fragments = ((places[each.path], each) for each in dataset.get_fragments())
    found.totals = {path: each.metadata.num_rows for path, each in fragments if path in found.files}
    return own, found


def _name(row: dict[str, Any]) -> _Letter:
    return row["source_topic"], row["partition"], row["offset"]
