"""What the shipped formats make of a documented message: the fixture `shown`."""

import json
import tomllib
from collections.abc import Callable

import pytest

from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings

# Documented samples are years old.
LIMITS = GatewaySettings(clock_behind_seconds=0)
RECEIVED_US = 1_800_000_000_000_000
OWN = """
[[routes]]
filter = "ha/events"
mapping = "homeassistant-events"
[[routes]]
filter = "sigfox"
mapping = "sigfox"
[[routes]]
filter = "ditto"
mapping = "ditto"
"""
ROUTES = tuple(RouteSettings.model_validate(route) for route in tomllib.loads(OWN)["routes"])
Shown = Callable[[str, object], list[str]]


@pytest.fixture(scope="module")
def shown() -> Shown:
    """Lines `device|metric value unit @time` of the readings, `!reason path` of refusals, `-reason` where ignored."""

    def show(topic: str, payload: object) -> list[str]:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        line = json.dumps({"topic": topic, "payload": text})
        [found] = decode_lines([line], ROUTES, LIMITS, received_us=RECEIVED_US)
        lines = []
        for one in found["readings"]:
            value = one["value"] if one["text"] is None else one["text"]
            unit = "" if one["unit"] is None else f" {one['unit']}"
            lines.append(f"{one['device']}|{one['metric']} {value}{unit}{_at(one['time'])}")
        lines += [f"!{one['reason']} {one['path']}" for one in found.get("rejected", [])]
        if found["outcome"] == "dead_letter" and not found.get("rejected"):
            lines.append(f"!{found['reason']}")
        return lines + ([f"-{found['reason']}"] if found["outcome"] == "ignored" else [])

    return show


def _at(time: str | None) -> str:
    if time is None:
        return ""
    text = time.removesuffix("Z")
    return f" @{text.rstrip('0') if '.' in text else text}"
