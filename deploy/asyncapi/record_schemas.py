"""JSON schemas of messages and records, from the types that the product encodes and decodes, in the words of draft 7.

AsyncAPI's own schemas are draft 7, and msgspec and pydantic write draft 2020-12: the difference here is that of tuples.
"""

from typing import Any, Final

import msgspec

from gateway.decoders.native import native_schema
from ingest.contract.dead_letter import DeadLetterRecord
from ingest.contract.outcome import OutcomeRecord
from ingest.contract.reading import ReadingRecord
from ingest.contract.reasons import Reason

__all__ = ["RECEIPTS", "REF", "payload_schemas"]

REF: Final = "#/components/schemas/{name}"
_TEXT: Final = {"type": ["string", "null"]}
_RECEIVED: Final = {"type": "string", "format": "date-time", "description": "Receive time in UTC."}
RECEIPTS: Final[dict[str, dict[str, Any]]] = {
    "RejectionReceipt": {
        "description": "A message was rejected, or parts of it. `count` parts were; the receipt names the first.",
        "type": "object",
        "required": ["reason", "topic", "received_at", "partial", "count"],
        "properties": {
            "reason": {"enum": [reason.value for reason in Reason]},
            "path": {**_TEXT, "description": "JSON path of the rejected part."},
            "got": _TEXT,
            "wanted": _TEXT,
            "profile": {**_TEXT, "description": "Validation profile that rejected it, as name@version."},
            "message_id": _TEXT,
            "topic": {"type": "string"},
            "received_at": _RECEIVED,
            "partial": {"type": "boolean", "description": "True if the other parts of the message were stored."},
            "count": {"type": "integer", "minimum": 1},
            "held_back": {"type": "integer", "minimum": 1, "description": "Earlier receipts that were not sent."},
        },
    },
    "RestartWarning": {
        "description": "The device counts again under the same boot.",
        "type": "object",
        "required": ["warning", "got", "wanted", "received_at"],
        "properties": {
            "warning": {"const": "sequence_restarted"},
            "got": {"type": "string"},
            "wanted": {"type": "string"},
            "received_at": _RECEIVED,
        },
    },
    "StoredReceipt": {
        "description": "Messages of the device up to this offset are in the table, or were dropped as copies of stored ones.",
        "type": "object",
        "required": ["stored", "message_ids", "partition", "offset", "received_at"],
        "properties": {
            "stored": {"type": "integer", "minimum": 1},
            "first": _TEXT,
            "last": _TEXT,
            "message_ids": {"type": "array", "items": {"type": "string"}},
            "partition": {"type": "integer", "minimum": 0},
            "offset": {"type": "integer", "minimum": 0},
            "received_at": _RECEIVED,
        },
    },
}
"""The gateway writes receipts without a type (gateway/replies/receipts.py); a test compares them with real ones."""


def payload_schemas() -> dict[str, dict[str, Any]]:
    """Return name -> schema: the native message, receipts, and the records of Kafka. References are those of `REF`."""
    _, records = msgspec.json.schema_components([ReadingRecord, DeadLetterRecord, OutcomeRecord], ref_template=REF)
    item, quantity = native_schema()
    return {
        "NativeMessage": {
            "description": "One item, or an array of items. An array has an outcome for each item.",
            "anyOf": [_ref("NativeItem"), {"type": "array", "items": _ref("NativeItem")}],
        },
        "NativeItem": _draft_7(item, {"_Quantity": "NativeQuantity"}),
        "NativeQuantity": _draft_7(quantity, {}),
        **RECEIPTS,
        **{name: _draft_7(schema, {}) for name, schema in records.items()},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REF.format(name=name)}


def _draft_7(schema: Any, renamed: dict[str, str]) -> Any:
    """Return the schema with tuples as draft 7 has them, and with references to the components."""
    if isinstance(schema, list):
        return [_draft_7(each, renamed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _draft_7(value, renamed) for name, value in schema.items()}
    if "prefixItems" in found:
        found["items"], found["additionalItems"] = found.pop("prefixItems"), False
    reference = str(found.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        found["$ref"] = REF.format(name=renamed.get(name, name))
    return found
