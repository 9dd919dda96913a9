"""Takes an erased device out of what gateways keep of it in Kafka, and asks those that run to forget it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ingest.contract.errors import TidegateError
from ingest.contract.forget import FORGET_KEY, encode_forget
from ingest.contract.topics import GATEWAY_STATE
from ingest.gateway_state import read_state
from ingest.kafka_settings import KafkaSettings
from ingest.manual_producer import OutgoingRecord, send_outgoing
from streaming.history.device_names import DeviceNames

__all__ = ["forget_state", "plan_replacements"]

_OWN: Final = "tidegate/"
"""Key of a gateway's own state: a JSON object by device with each device's last numbers."""
_LEAST_NAME: Final = 4
"""Characters of an id below which it occurs in any value by chance; only keys are then compared."""


def forget_state(kafka: KafkaSettings, device: str, *, topic: str = GATEWAY_STATE) -> dict[str, Any]:
    """Replace what names the device; returns how many records, or why that was not possible."""
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
    """The keys that name the device, with the value without it; None removes the key.

    A decoder's state of a node is deleted as a whole: the node is asked for it again when it sends the next time.
    """
    names = DeviceNames(device)
    for key, value in found:
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
