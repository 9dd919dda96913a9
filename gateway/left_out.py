"""Fields that mappings leave out, in `telemetry.gateway-state`: names and counts by route, since the gateway's start.

`tidegate route ls --dropped` and the page of a device read them back.
Bounded: the most frequent names of a route, and the bytes of all together.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["LEFT_OUT", "encode_left_out", "is_left_out", "read_left_out"]

LEFT_OUT: Final = "left_out"
"""Last part of the record's key."""
_MAX_NAMES: Final = 100
_MAX_BYTES: Final = 200_000
_FRAME_BYTES: Final = 100


class LeftOutRecord(msgspec.Struct, frozen=True):
    """Record of one gateway. `more` says that names or routes did not fit."""

    since_ms: int
    routes: dict[str, dict[str, int]]
    more: bool = False


def encode_left_out(routes: Mapping[str, Mapping[str, int]], since_ms: int, *, most_bytes: int = _MAX_BYTES) -> bytes:
    """Encode the record: the names that each route left out most often; `most_bytes` is the limit of its topic."""
    kept: dict[str, dict[str, int]] = {}
    room, more = min(_MAX_BYTES, most_bytes) - _FRAME_BYTES, False
    for label, fields in routes.items():
        names = sorted(fields, key=lambda name: (-fields[name], name))
        more |= len(names) > _MAX_NAMES
        for name in names[:_MAX_NAMES]:
            room -= _written_bytes(name) + (0 if label in kept else _written_bytes(label))
            if room < 0:
                return msgspec.json.encode(LeftOutRecord(since_ms, kept, True))
            kept.setdefault(label, {})[name] = fields[name]
    return msgspec.json.encode(LeftOutRecord(since_ms, kept, more))


def _written_bytes(name: str) -> int:
    """Return the bytes of a name and its count in JSON, where a character may take six."""
    return len(msgspec.json.encode(name)) + 22


def is_left_out(key: str) -> bool:
    """Return whether a key of the topic belongs to such a record."""
    return key.startswith("tidegate/") and key.endswith(f"/{LEFT_OUT}")


def read_left_out(state: Iterable[tuple[str, bytes]]) -> list[dict[str, Any]]:
    """Return rows `{gateway, route, field, count, since_ms}` of all gateways, from the newest value of each key of the topic."""
    rows: list[dict[str, Any]] = []
    for key, value in state:
        if not is_left_out(key):
            continue
        try:
            found = msgspec.json.decode(value, type=LeftOutRecord)
        except msgspec.MsgspecError:
            continue
        rows += [
            {
                "gateway": key.removeprefix("tidegate/").removesuffix(f"/{LEFT_OUT}"),
                "route": route,
                "field": field,
                "count": count,
                "since_ms": found.since_ms,
            }
            for route, fields in found.routes.items()
            for field, count in fields.items()
        ]
    return rows
