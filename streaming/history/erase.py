"""Erasure of one device from every table: the handler of the request `erase`.

It first waits until the landing and the SQL streams have read Kafka, because unread records may contain the device. Each table
is one transaction, with the landed tables first. The derived tables then take in these changes, and their remaining rows of the
device are removed. After a kill at any point, the request continues where it was.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError
from ingest.contract.topics import GATEWAY_STATE
from ingest.topics.offsets import end_offsets
from lakehouse.catalog import table_names
from lakehouse.derived_tables import DERIVED
from lakehouse.requests import Request
from lakehouse.tables import DEAD_LETTERS, TABLES
from streaming.checkpoint import Checkpoint
from streaming.derive.cursor import read_cursor
from streaming.derive.deriver import Deriver, derivations
from streaming.history.journal import device_hash
from streaming.history.log_forgetting import begin_log_again
from streaming.history.naming_letters import NamingLetters, find_naming
from streaming.history.plan_correction import require_device
from streaming.history.plan_erasure import erasable, selection_of
from streaming.history.receipt import ErasureReceipt, kafka_forgets, remarks, table_forgets
from streaming.history.rewrite import applied, rewrite_files, table_of
from streaming.history.selection import find_matches
from streaming.history.traces import forget_state, forget_traces
from streaming.landing_offsets import Offsets, newest_mark
from streaming.sql.applied_streams import load_applied
from streaming.sql.stream_offsets import StreamCheckpoint, checkpoint_path
from streaming.sql.stream_supervisor import supervisor_of
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["erase"]

MOST_PASSES: Final = 20
_NOTHING: Final = {"rows": 0, "files": 0}

LONGEST_WAIT_SECONDS: Final = 120.0
STALLED_SECONDS = 30.0
"""Time without progress after which the wait for unread records ends."""
POLL_SECONDS: Final = 0.1


def erase(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Erase the device that the request's arguments name; return the receipt, which is also kept under `_erasures`.

    Raises:
        TidegateError: no table knows the device.
    """
    device = str(request.arguments["device"])
    receipt = ErasureReceipt(writer.root, request.id)
    if receipt.content.get("state") == "done":
        return receipt.content
    if not receipt.content:
        require_device(writer.root, device)
        receipt.save(**_head(request, device))
    behind = await_positions(writer)
    receipt.save(not_landed=behind.landing, streams_behind=dict(behind.streams))
    hot, rest, unlooked = erasable(writer.root)
    for name in hot:
        _erase_from(writer, request, receipt, device, name)
    receipt.save(derived_tables=_derive(writer, receipt))
    for name in rest:
        _stop_stream(writer, name)
        _erase_from(writer, request, receipt, device, name)
    _begin_logs_again(writer, request, receipt)
    return _finish(writer, receipt, device, unlooked)


def _begin_logs_again(writer: WriterContext, request: Request, receipt: ErasureReceipt) -> None:
    """Begin the log of every table again, also of tables without rows of the device: their older versions may have some."""
    # Source tables come first: the cursors of derived tables may then pass the change.
    for name in sorted(table_names(writer.root), key=lambda each: each not in TABLES):
        entry = receipt.tables.setdefault(name, dict(_NOTHING))
        if "checkpoint" in entry:
            continue
        _stop_stream(writer, name)
        entry["checkpoint"] = begin_log_again(writer, request, name)
        entry["forgotten_at"] = table_forgets(writer.root, name, datetime.now(UTC))
        receipt.save()


def _stop_stream(writer: WriterContext, name: str) -> None:
    """Stop a stream, so that its commits and this one never remove the same files. The next pass starts it again."""
    if (streams := supervisor_of(writer.root)) is not None:
        streams.stop_stream(name)


def _head(request: Request, device: str) -> dict[str, Any]:
    return {
        "id": request.id,
        "state": "begun",
        "device_sha256": device_hash(device),
        "asked_at": request.at,
        "author": request.author,
        "reason": request.mark()["reason"],
    }


def _erase_from(writer: WriterContext, request: Request, receipt: ErasureReceipt, device: str, name: str) -> None:
    known = receipt.tables.get(name, {})
    if "rows" in known:
        return
    if "begun_at_version" in known:
        commit = applied(writer.root, name, request.id, after=known["begun_at_version"])
        if commit is not None:
            _note(writer, receipt, name, {**commit["erased"], "version": commit["version"]})
            return
    selection, naming = selection_of(writer.root, name, device), NamingLetters()
    if name == DEAD_LETTERS.name:
        match, naming = find_naming(writer.root, device)
    else:
        match = find_matches(writer.root, name, selection)
    if not match.files and not naming.files:
        _note(writer, receipt, name, dict(_NOTHING))
        return
    receipt.tables[name] = {"begun_at_version": known.get("begun_at_version", match.version)}
    receipt.save()
    match = naming.joined(match)
    left = match.total_rows - match.row_count
    erased = {"rows": match.row_count, "files": len(match.files)}
    erased |= {"letters_cut": naming.count} if name == DEAD_LETTERS.name else {}
    metadata = {"request": request.mark(), "erased": erased}
    # Copy the cursor into this commit: its reader looks for it only in the newest commits.
    if name not in TABLES and (cursor := read_cursor(writer.root, name)) is not None:
        metadata["derived"] = cursor

    def without(rows: "DataFrame") -> "DataFrame":
        return naming.cut(writer.spark, rows.where(~selection.condition()), device)

    table = table_of(writer.root, name)
    version = rewrite_files(writer, table, match.data_files, without, rows=left, metadata=metadata)
    _note(writer, receipt, name, {**erased, "version": version})


def _note(writer: WriterContext, receipt: ErasureReceipt, name: str, entry: dict[str, Any]) -> None:
    receipt.tables[name] = {**entry, "forgotten_at": table_forgets(writer.root, name, datetime.now(UTC))}
    receipt.save()


def _derive(writer: WriterContext, receipt: ErasureReceipt) -> str:
    """Run the derivations until they have taken in the landed and the erased rows, so that the device does not come back."""
    run = writer.background_tasks.get("derive") or Deriver(derivations(writer)).run_pass
    try:
        for _ in range(MOST_PASSES):
            if run_soon := writer.background_tasks.get("run_soon"):
                run_soon()  # a pass that is not due yet reports no changes either
            if not run() or _have_seen(writer.root, receipt):
                return "up to date"
    except TidegateError as error:
        return f"not all tables are up to date; check later and erase again if the device is back: {error}"
    return f"not up to date after {MOST_PASSES} passes; check later and erase again if the device is back"


def _have_seen(root: str, receipt: ErasureReceipt) -> bool:
    """Return whether every derived table has read the versions in which the device left its source tables."""
    versions = {name: receipt.tables.get(name, {}).get("version", -1) for name in TABLES}
    cursors = [read_cursor(root, name) or {} for name in DERIVED if name in table_names(root)]
    return all(
        cursor.get(name, -1) >= version for cursor in cursors for name, version in versions.items() if name in cursor
    )


def _finish(writer: WriterContext, receipt: ErasureReceipt, device: str, unlooked: list[str]) -> dict[str, Any]:
    now = datetime.now(UTC)
    state = forget_state(writer.kafka, device)
    kafka = kafka_forgets(writer.kafka, writer.topics.names, now)
    if GATEWAY_STATE in kafka and "why" in state:
        kafka[GATEWAY_STATE] = {
            "forgotten_at": None,
            "why": f"the state of the gateways was not replaced: {state['why']}",
        }
    stateful = [name for name, applied in load_applied(writer.root).items() if applied.shape.stateful]
    content = receipt.content
    dates = [entry["forgotten_at"] for entry in (*receipt.tables.values(), *kafka.values()) if entry["forgotten_at"]]
    receipt.save(
        state="done",
        at=now.isoformat(timespec="seconds"),
        rows=sum(entry["rows"] for entry in receipt.tables.values()),
        beside_tables=forget_traces(writer, device),
        letters_cut=receipt.tables.get(DEAD_LETTERS.name, {}).get("letters_cut", 0),
        without_device_column=unlooked,
        gateway_state=state,
        kafka=kafka,
        forgotten_at=max(dates),
        without_date=[name for name, entry in kafka.items() if not entry["forgotten_at"]],
        streams_with_state=stateful,
        remarks=remarks(kafka, content["not_landed"], content["streams_behind"], stateful),
    )
    return receipt.content


@dataclass(frozen=True, slots=True)
class UnreadRecords:
    """Numbers of unread records in Kafka; `landing` is None if they are unknown."""

    landing: int | None
    streams: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Number of all unread records."""
        return (self.landing or 0) + sum(self.streams.values())


def await_positions(writer: WriterContext) -> UnreadRecords:
    """Wait until the present records in Kafka are read; return those still unread after 120 s, or after 30 s without progress."""
    try:
        ends = {topic: end_offsets(writer.kafka, topic) for topic in writer.topics.names}
        found = _unread(writer, ends)
        moved_at, deadline = time.monotonic(), time.monotonic() + LONGEST_WAIT_SECONDS
        while found.total and writer.seen is not None and time.monotonic() < min(deadline, moved_at + STALLED_SECONDS):
            time.sleep(POLL_SECONDS)
            now = _unread(writer, ends)
            found, moved_at = now, time.monotonic() if now.total < found.total else moved_at
    except TidegateError:
        return UnreadRecords(None)
    return found


def _unread(writer: WriterContext, ends: Offsets) -> UnreadRecords:
    done = Checkpoint(writer.spark, writer.settings.checkpoint).next_offsets()
    if done is None:
        mark = newest_mark(writer.root, "readings")
        done = mark.ends if mark is not None else {}
    streams = {}
    for name, stream in load_applied(writer.root).items():
        path = checkpoint_path(writer.settings.checkpoint, name, stream.incarnation)
        at = StreamCheckpoint(writer.spark, path).next_offsets() or stream.start
        # A stream reads only some of the topics.
        if count := _unread_count(at, {topic: parts for topic, parts in ends.items() if topic in at}):
            streams[name] = count
    return UnreadRecords(_unread_count(done, ends), streams)


def _unread_count(done: Offsets, ends: Offsets) -> int:
    return sum(
        max(0, end - done.get(topic, {}).get(part, 0)) for topic, parts in ends.items() for part, end in parts.items()
    )
