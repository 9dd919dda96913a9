"""Gateways that have written their state to Kafka: session, filters, and whether they are alive. For checks before a start."""

from collections.abc import Iterable, Iterator

import msgspec

from gateway.memory.restart_state import ALIVE_MS, PREFIX, SessionRecord

__all__ = ["is_alive", "is_gateway_record", "known_gateways"]

_END = "/held"


def is_gateway_record(key: str) -> bool:
    """Return whether a key of `telemetry.gateway-state` is the record of a gateway itself."""
    return key.startswith(PREFIX) and key.endswith(_END)


def known_gateways(found: Iterable[tuple[str, bytes]]) -> dict[str, SessionRecord]:
    """Return the record of each gateway by its `gateway.gateway_id`; what cannot be read is left out."""
    return dict(_records(found))


def _records(found: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, SessionRecord]]:
    for key, value in found:
        if is_gateway_record(key):
            try:
                yield key.removeprefix(PREFIX).removesuffix(_END), msgspec.json.decode(value, type=SessionRecord)
            except msgspec.MsgspecError:
                continue


def is_alive(record: SessionRecord, now_ms: int) -> bool:
    """Return whether the gateway runs, as far as its record says: it writes one a minute, and one at its stop."""
    return not record.stopped and now_ms - record.saved_ms < ALIVE_MS
