"""Positive receipts: records that Spark has stored, as messages on `tidegate/receipts/<device>`. Pure.

    {"stored": 3, "first": "bs:1:7", "last": "bs:1:9", "message_ids": ["bs:1:7", "bs:1:8", "bs:1:9"],
     "partition": 0, "offset": 4711, "received_at": "2026-11-28T06:01:15.131Z"}

`stored` counts messages of the device up to this offset since the receipt before; first and last (with `message_ids`
between them, at most 20) are identities, null if the device gives none. Stored means: in the table, or dropped because
the same identity is. A lost receipt is not sent again: a device that must be certain asks the table.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from gateway.decoders.shape import Reply
from gateway.replies.receipts import receipt_topic
from gateway.safe_text import show_text
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.log import LogRecord

__all__ = ["stored_receipts"]

MAX_IDS: Final = 20


def stored_receipts(records: Iterable[LogRecord], gateway: str) -> list[Reply]:
    """Return one receipt per device and partition for the records of `gateway`; other gateways send their own."""
    found: dict[tuple[str, int], list[tuple[int, ReadingRecord]]] = {}
    for record in records:
        try:
            message = decode_record(record.value or b"")
        except msgspec.DecodeError:
            continue  # no Tidegate gateway wrote it: it became a dead letter
        if message.gateway == gateway:
            found.setdefault((message.device, record.partition), []).append((record.offset, message))
    return [_receipt(device, partition, messages) for (device, partition), messages in found.items()]


def _receipt(device: str, partition: int, messages: list[tuple[int, ReadingRecord]]) -> Reply:
    offset, last = messages[-1]
    ids = [_known_by(message) for _, message in messages]
    at = datetime.fromtimestamp(last.received_us / 1e6, UTC).isoformat(timespec="milliseconds")
    told = {
        "stored": len(messages),
        "first": ids[0],
        "last": ids[-1],
        "message_ids": [known for known in ids[:MAX_IDS] if known is not None],
        "partition": partition,
        "offset": offset,
        "received_at": at.replace("+00:00", "Z"),
    }
    return Reply(receipt_topic(device), json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


def _known_by(message: ReadingRecord) -> str | None:
    """Return the message's identity, or that of its last item if each has its own."""
    own = message.message_id or next((r.message_id for r in reversed(message.readings) if r.message_id), None)
    return None if own is None else show_text(own)
