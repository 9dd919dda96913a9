"""One message through one mapping, in words. `from tests.support.mapping import shown`."""

import json
import tomllib
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.decoders.mapping.engine import CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject

LIMITS = GatewaySettings()
NOW_US = 1_900_000_000_000_000
MATCH = RouteMatch("mapping", "from-topic", "state", ("ts",), topic="a/from-topic/state", names={"site": "north"})
HOURLY = 'inside = { hourly = "columns" }\nitems = "hourly.rows[]"\ntime = "time"'


def decode(toml: str, document: object, limits: GatewaySettings = LIMITS) -> Any:
    mapping = CompiledMapping(MappingSettings.model_validate(tomllib.loads(toml)), MATCH.names, MATCH.units)
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    payload = text.encode() if isinstance(text, str) else text
    return mapping(payload, MATCH, limits, NOW_US)


def shown(toml: str, document: object) -> list[str]:
    """`device metric value unit @time ~flags` of each reading, then `!reason path` of each part that was refused."""
    decoded = decode(toml, document)
    if isinstance(decoded, Reject):
        return [f"!{decoded.reason.value} {decoded.path}"]
    lines: list[str] = []
    for one in decoded if isinstance(decoded, list) else [decoded]:
        for r in one.readings:
            value = r.value if r.text is None else r.text
            at = "" if r.time_us is None else f" @{_iso(r.time_us)}"
            flags = "".join(f" ~{flag}" for flag in r.flags or ())
            lines.append(f"{one.device} {r.metric} {value}{'' if r.unit is None else ' ' + r.unit}{at}{flags}")
        lines += [f"!{fault.reason.value} {fault.path}" for fault in one.rejects]
    return lines


def _iso(time_us: int) -> str:
    return (
        (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us))
        .strftime("%m-%dT%H:%M:%S.%f")
        .rstrip("0")
        .rstrip(".")
    )
