"""Look-up of a message's records: in Kafka, and in the logs of the tables for the commits that stored their rows.

Only the Kafka record has QoS, DUP and RETAIN of the message.
"""

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import msgspec

from deploy.trace.messages import RecordOrigin, TracedMessage
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import TidegateError
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogRecord
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.changes import newest_version
from lakehouse.commit_metadata import metadata_text
from lakehouse.paths import log_name, table_uri
from streaming.landing_offsets import Mark, parse_mark

__all__ = ["CommitLookup", "RecordLookup", "TableLog", "look_up_records"]

CONNECT_SECONDS: Final = 1.0
STALL_SECONDS: Final = 5.0
NEAR_OFFSETS: Final = 1000
"""Records at most this many offsets apart are read together, with the records between them."""
_BACK: Final = 3
"""Versions before the first young one that are also read: the machine's clock may have been set in between."""
_FORTH: Final = 500


@dataclass(frozen=True, slots=True)
class RecordLookup:
    """Result for one record. `found` is `yes`, `expired`, `replaced` or `not asked`; `why` explains the last three.

    `time_ms` is Kafka's time in epoch ms; `facts` has QoS and flags.
    """

    found: str
    why: str | None = None
    time_ms: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def look_up_records(kafka: KafkaSettings, messages: Iterable[TracedMessage]) -> dict[RecordOrigin, RecordLookup]:
    """Look for the records of these messages. If Kafka does not answer, the result says that it was not asked."""
    wanted = {origin: message for message in messages for origin in message.origins}
    if not wanted:
        return {}
    if silent := _silent(kafka.bootstrap_servers):
        return dict.fromkeys(wanted, RecordLookup("not asked", silent))
    found: dict[RecordOrigin, RecordLookup] = {}
    try:
        for topic, origins in groupby(sorted(wanted, key=_place), key=lambda origin: origin.topic):
            found |= _in_topic(kafka, topic, list(origins), wanted)
    except TidegateError as error:
        return found | {origin: RecordLookup("not asked", str(error)) for origin in wanted if origin not in found}
    return found


def _place(origin: RecordOrigin) -> tuple[str, int, int]:
    return origin.topic, origin.partition, origin.offset


def _silent(servers: str) -> str | None:
    """Return why no server answers; None if one listens. A Kafka client would notice this only at its deadline."""
    why = ""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            address = (host.strip("[]") or server.strip(), int(port) if port.isdecimal() else 9092)
            socket.create_connection(address, CONNECT_SECONDS).close()
        except OSError as error:
            why = f"Kafka at {server.strip()} does not answer ({error.strerror or error})"
        else:
            return None
    return why


def _in_topic(
    kafka: KafkaSettings, topic: str, origins: list[RecordOrigin], wanted: Mapping[RecordOrigin, TracedMessage]
) -> dict[RecordOrigin, RecordLookup]:
    begins, ends = begin_offsets(kafka, topic), end_offsets(kafka, topic)
    found, there = {}, []
    for origin in origins:
        oldest, end = begins.get(origin.partition, 0), ends.get(origin.partition, 0)
        if origin.offset < oldest:
            found[origin] = RecordLookup(
                "expired", f"retention deleted it; the oldest record left is at offset {oldest}"
            )
        elif origin.offset >= end:
            found[origin] = RecordLookup("replaced", f"the topic ends at offset {end}, so it was recreated")
        else:
            there.append(origin)
    for run in _runs(there):
        first = run[0]
        read = read_range(
            kafka,
            topic,
            {first.partition: first.offset},
            {first.partition: run[-1].offset + 1},
            stall_seconds=STALL_SECONDS,
        )
        by_offset = {origin.offset: origin for origin in run}
        for record in (each for batch in read for each in batch if each.offset in by_offset):
            origin = by_offset[record.offset]
            found[origin] = _judged(record, topic, wanted[origin])
    gone = RecordLookup("expired", "this offset no longer has a record")
    return found | {origin: gone for origin in there if origin not in found}


def _runs(origins: list[RecordOrigin]) -> list[list[RecordOrigin]]:
    runs: list[list[RecordOrigin]] = []
    for origin in origins:
        last = runs[-1][-1] if runs else None
        if last and last.partition == origin.partition and origin.offset - last.offset <= NEAR_OFFSETS:
            runs[-1].append(origin)
        else:
            runs.append([origin])
    return runs


def _judged(record: LogRecord, topic: str, message: TracedMessage) -> RecordLookup:
    """Return whether this is the message's record. Another one means that the topic was recreated."""
    try:
        value: Any = (decode_record if topic == READINGS else decode_dead_letter)(record.value or b"")
    except msgspec.DecodeError:
        # A record that no gateway wrote has no name to compare.
        found = "yes" if message.number is None else "replaced"
        return RecordLookup(found, None if found == "yes" else "another record is at its offset", record.timestamp_ms)
    name = (value.gateway, value.epoch, value.number)
    if message.number is not None and name != (message.gateway, message.epoch, message.number):
        return RecordLookup("replaced", "another message is at its offset, so the topic was recreated")
    facts = {"qos": value.qos, "dup": value.dup, "retain": value.retain}
    return RecordLookup("yes", None, record.timestamp_ms, facts)


@dataclass(frozen=True, slots=True)
class CommitLookup:
    """Version and time of a commit, or the reason why they are unknown."""

    version: int | None = None
    at: datetime | None = None
    why: str | None = None


class TableLog:
    """Log of one table. Each entry is read only when needed: about twenty of a hundred thousand.

    A version is found by the offsets in the commits' marks, not by files. So the answer stays right after maintenance has
    joined files. The time of a commit is that of its log entry (`commitInfo.timestamp`), some milliseconds before readers see
    it.
    """

    def __init__(self, root: str, table: str) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self._newest, self.table = newest_version(root, table), table
        self._files: Any = PyFileSystem(DeltaStorageHandler(table_uri(root, table))) if self._newest >= 0 else None
        self._known: dict[int, tuple[int, Mark | None] | None] = {}

    def commit_of(self, topic: str, partition: int, offset: int, landed_at: datetime) -> CommitLookup:
        """Return the version whose batch stored this record; `landed_at` is when that batch began."""
        if self._newest < 0:
            return CommitLookup(why=f"there is no table {self.table}")
        first = self._first_since(int(landed_at.timestamp() * 1000))
        for version in range(max(0, first - _BACK), min(first + _FORTH, self._newest) + 1):
            entry = self._entry(version)
            mark = entry[1] if entry is not None else None
            if entry is None or mark is None:
                continue
            begin = mark.starts.get(topic, {}).get(partition, 0)
            if begin <= offset < mark.ends.get(topic, {}).get(partition, 0):
                return CommitLookup(version, datetime.fromtimestamp(entry[0] / 1000, UTC))
            if begin > offset and version >= first:
                break
        return CommitLookup(why=self._why_not(first))

    def _why_not(self, first: int) -> str:
        if first > 0 and self._entry(first - 1) is None:
            return f"the log of {self.table} no longer reaches back to it (stream log retention)"
        return f"no commit in the log of {self.table} names its offset"

    def _first_since(self, at_ms: int) -> int:
        """Return the first version that was committed at or after this time. Entries that are missing in the log are older."""
        low, high = 0, self._newest + 1
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if entry is None or entry[0] < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, version: int) -> tuple[int, Mark | None] | None:
        if version not in self._known:
            self._known[version] = self._read(version)
        return self._known[version]

    def _read(self, version: int) -> tuple[int, Mark | None] | None:
        try:
            with self._files.open_input_stream(log_name(version)) as stream:
                lines = stream.readall().decode("utf-8").splitlines()
            info = next(entry["commitInfo"] for entry in map(json.loads, lines) if "commitInfo" in entry)
            return int(info["timestamp"]), parse_mark(metadata_text(info))
        except (FileNotFoundError, ValueError, KeyError, StopIteration):
            return None  # missing or damaged; `tidegate repair` reports that
