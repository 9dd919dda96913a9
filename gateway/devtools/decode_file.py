"""`tidegate decode`: lines of {id, topic, payload} to the gateway's result for them, without any server."""

import base64
import binascii
import json
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import TidegateError
from ingest.contract.reading import Reading, decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS

__all__ = ["BadLine", "decode_lines", "describe_outcome", "read_line"]


class BadLine(TidegateError):
    """A line of the input file is not a message; the text names the line and what was wanted."""


def decode_lines(
    lines: Iterable[str],
    routes: tuple[RouteSettings, ...],
    limits: GatewaySettings,
    *,
    received_us: int | None = None,
    policy: ReadingPolicy | None = None,
) -> Iterator[dict[str, Any]]:
    """Decode each line as if it came in now, at QoS 1, not retained.

    `policy` applies the profiles; with it, rejections name their `profile`.

    Yields:
        `{id, outcome: reading|dead_letter|ignored, reason, readings: [{device, metric, value, text, unit, time,
        time_source}], rejected: [{path, reason}]}`; `time` is ISO 8601 UTC, None if the receive time is used.

    Raises:
        BadLine: a line is not a JSON object with `topic` and `payload` or `payload_base64`.
        ConfigError: a route is wrong.
    """
    gate = MessageProcessor(compile_routes(routes, limits), limits, policy=policy)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _decode(gate, number, line, received_us or time.time_ns() // 1000)


def _decode(gate: MessageProcessor, number: int, line: str, received_us: int) -> dict[str, Any]:
    identity, topic, payload = read_line(number, line)
    return {"id": identity, **describe_outcome(gate.decide(Message(number, 0, received_us, topic, payload)))}


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Describe an outcome: the result of `decode_lines` without the line's id."""
    letters = [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]
    found: dict[str, Any] = {"outcome": "ignored", "reason": None, "readings": [], "rejected": []}
    if outcome.ignored is not None:
        found["reason"] = outcome.ignored.value
    elif outcome.rejected is not None:
        found.update(outcome="dead_letter", reason=outcome.rejected.value)
        found.update(path=letters[0].path, got=letters[0].got, wanted=letters[0].wanted)
        if letters[0].profile is not None:
            found["profile"] = letters[0].profile
    else:
        records = [decode_record(record.value) for record in outcome.records if record.topic == READINGS]
        found["outcome"] = "reading"
        found["readings"] = [_show(one.device, one.flags, reading) for one in records for reading in one.readings]
        found["rejected"] = [
            {"path": letter.path, "reason": letter.reason.value, "got": letter.got, "wanted": letter.wanted}
            | ({} if letter.profile is None else {"profile": letter.profile})
            for letter in letters
        ]
    return found


def read_line(number: int, line: str) -> tuple[Any, bytes, bytes]:
    """Return id, topic and payload of a line; raises BadLine if it is not a message."""
    try:
        given = json.loads(line)
        # A byte that is not UTF-8 is in the text as Python's surrogateescape writes it.
        topic = given["topic"].encode("utf-8", "surrogateescape")
        if "payload_base64" in given:
            return given.get("id"), topic, base64.b64decode(given["payload_base64"], validate=True)
        return given.get("id"), topic, given["payload"].encode("utf-8")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        message = f"line {number}: wanted a JSON object with topic and payload (text) or payload_base64: {error}"
        raise BadLine(message) from error


def _show(device: str, flags: list[str] | None, reading: Reading) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "device": device,
        "metric": reading.metric,
        "value": reading.value,
        "text": reading.text,
        "unit": reading.unit,
        "time": None if reading.time_us is None else _iso(reading.time_us),
        "time_source": "gateway" if reading.time_us is None else "device",
    }
    both = [*(flags or ()), *(reading.flags or ())]
    return shown | ({"flags": both} if both else {})


def _iso(time_us: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)
    return at.isoformat().replace("+00:00", "Z")
