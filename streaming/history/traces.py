"""Erasure of a device's traces outside of the tables: in files, and in the state of the gateways in Kafka.

The files are identities, journals, answers to requests, copies of repairs, and records that SQL streams sent under lost plans.
Running gateways are asked to forget the device too.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import TidegateError
from ingest.contract.forget import FORGET_KEY, encode_forget
from ingest.contract.shared_input import is_shared_input
from ingest.contract.topics import GATEWAY_STATE
from ingest.gateway_state import read_state
from ingest.kafka_settings import KafkaSettings
from ingest.manual_producer import OutgoingRecord, send_outgoing
from lakehouse.atomic_file import write_json, write_text
from lakehouse.paths import is_local, to_path
from lakehouse.requests import DONE
from lakehouse.requests import FOLDER as REQUESTS
from streaming.dedup_index import DedupIndex, points_folder
from streaming.executors.parts_folder import drop_parts
from streaming.history.device_names import DeviceNames
from streaming.history.journal import CorrectionJournal
from streaming.identity_snapshot import SNAPSHOT_FILE
from streaming.lost_records import REPAIR_FOLDER
from streaming.sql.applied_streams import FOLDER as STREAMS
from streaming.sql.stream_supervisor import supervisor_of
from streaming.writer_context import WriterContext

__all__ = ["forget_state", "forget_traces", "plan_replacements"]

REDRIVES: Final = "_redrive"

_OWN: Final = "tidegate/"
"""Key of a gateway's own state: a JSON object by device with each device's last numbers."""
_LEAST_NAME: Final = 4
"""Shorter ids occur in values by chance, so only keys are compared with them."""


def forget_traces(writer: WriterContext, device: str) -> dict[str, Any]:
    """Remove the device from all files under the root that this process writes; return what was found.

    The journal of `tidegate dlq` names dead letters by Kafka offset; only its `why` may name a device.
    """
    _forget_identities(writer, device)
    names = DeviceNames(device)
    sent = _forget_sent(writer.root, names)
    return {
        "identities": "forgotten",
        "corrections_renamed": CorrectionJournal(writer.root).forget(device, names.hidden),
        "answers_deleted": _forget_answers(writer.root, names),
        "redrives_renamed": _forget_redrives(writer.root, names),
        "repair_copies_deleted": _forget_copies(writer.root, names),
        **({"sent_records_forgotten": sent} if sent else {}),  # only after a lost plan
    }


def _forget_identities(writer: WriterContext, device: str) -> None:
    if writer.seen is not None:
        writer.seen.forget(device)
        return
    drop_parts(writer.spark, writer.root)
    snapshot = to_path(writer.root) / SNAPSHOT_FILE
    if is_local(writer.root) and snapshot.exists():
        held = DedupIndex(snapshot)
        held.load(writer.root, horizon_days=writer.settings.horizon_days)
        held.forget(device)
        held.close()
    elif is_local(writer.root):
        shutil.rmtree(
            points_folder(snapshot), ignore_errors=True
        )  # without names: the next start reads it from the table


def _forget_answers(root: str, names: DeviceNames) -> int:
    """Delete answers whose arguments, reason or result name the device."""
    deleted = 0
    for path in (_local(root) / REQUESTS / DONE).glob("*.json"):
        if names.in_file(path):
            path.unlink(missing_ok=True)
            deleted += 1
    return deleted


def _forget_redrives(root: str, names: DeviceNames) -> int:
    """Replace the device's id in the journal of redrives; the entries stay."""
    changed = 0
    for path in (_local(root) / REDRIVES).glob("[!.]*.jsonl"):
        lines = path.read_text("utf-8").splitlines()
        fresh = [json.dumps(names.hidden(json.loads(line))) if names.in_text(line) else line for line in lines]
        if fresh != lines:
            changed += sum(old != new for old, new in zip(lines, fresh, strict=True))
            write_text(path, "".join(f"{line}\n" for line in fresh))
    return changed


def _forget_copies(root: str, names: DeviceNames) -> int:
    """Delete copies of repairs that name the device, without their reports. A part of a copy would be useless."""
    deleted = 0
    for copy in [path for path in (_local(root) / REPAIR_FOLDER).glob("*") if path.is_dir()]:
        report = copy / "report.json"
        files = [path for path in copy.rglob("*") if path.is_file() and path != report]
        if any(map(names.in_file, files)):
            for path in copy.iterdir():
                if path != report:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            deleted += 1
        if report.exists() and names.in_file(report):
            write_json(report, names.hidden(json.loads(report.read_text("utf-8"))))
    return deleted


def _forget_sent(root: str, names: DeviceNames) -> int:
    """Delete records that streams still compare with their topics. A stream sends such a record again if it comes again."""
    forgotten = 0
    for path in (_local(root) / STREAMS).glob("[!.]*.sent"):
        if not any(names.in_text(text) for text in _texts(path)):
            continue
        if (streams := supervisor_of(root)) is not None:  # a running stream would write the file again
            streams.stop_stream(path.stem)
        data = json.loads(path.read_text("utf-8"))
        for left in (data["before"], data["after"]):
            kept = [one for one in left["records"] if not any(map(names.in_text, one[:2]))]
            forgotten += len(left["records"]) - len(kept)
            left["records"] = kept
        write_json(path, data)
    return forgotten


def _texts(path: Path) -> Iterator[str | None]:
    """Keys and values in a file of `SentFile`."""
    data = json.loads(path.read_text("utf-8"))
    return (text for side in ("before", "after") for one in data[side]["records"] for text in one[:2])


def _local(root: str) -> Path:
    return to_path(root)


def forget_state(kafka: KafkaSettings, device: str, *, topic: str = GATEWAY_STATE) -> dict[str, Any]:
    """Replace the records of the gateways' state that name the device; return their number, or why that was not possible."""
    try:
        records = [OutgoingRecord(encode_forget(device), FORGET_KEY.encode())]
        records += [
            OutgoingRecord(value, key.encode())
            for key, value in plan_replacements(read_state(kafka, topic=topic), device)
        ]
        sent = send_outgoing(kafka, topic, records)
    except TidegateError as error:
        return {"replaced": 0, "why": str(error)}
    if sent.failed or sent.acknowledged < len(records):
        return {"replaced": 0, "why": sent.why or "not all records were acknowledged"}
    return {"replaced": len(records) - 1}


def plan_replacements(found: Iterable[tuple[str, bytes]], device: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield each key that names the device, with its value without the device; None removes the key.

    A decoder's state of a node is removed as a whole: the gateway asks the node for it again at its next message.
    """
    names = DeviceNames(device)
    for key, value in found:
        if is_shared_input(key):
            continue  # a registry of people; the receipt says so
        if key.startswith(_OWN):
            numbers = _object(value)
            if device in numbers:
                yield key, json.dumps({name: each for name, each in numbers.items() if name != device}).encode()
        elif f"/{device}/" in f"/{key}/" or (
            len(device) >= _LEAST_NAME and (names.in_text(key) or names.in_bytes(value))
        ):
            yield key, None


def _object(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
