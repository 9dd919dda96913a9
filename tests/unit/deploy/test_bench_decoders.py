"""What is timed of each decoder: messages that give readings, grouped by format."""

import json

import pytest

from deploy.bench.decoders import measure_decoders, render_decoders
from gateway.devtools.decode_file import BadLine
from gateway.gateway_settings import GatewaySettings, RouteSettings

ROUTES = (RouteSettings(filter="j/#", decoder="json"), RouteSettings(filter="p/#", decoder="plain"))


def test_messages_with_readings_are_timed_by_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.bench.decoders.ROUNDS", 1)
    lines = [
        {"id": "1", "format": "json", "topic": "j/d", "payload": '{"a":1,"b":2}'},
        {"id": "2", "format": "json", "topic": "j/d", "payload": '{"a":1,"b":2,"c":3}'},
        {"id": "3", "format": "json", "topic": "j/d", "payload": "no json"},
        {"id": "4", "topic": "p/d/t", "payload": "21.5"},
        {"id": "5", "format": "nowhere", "topic": "x", "payload": "1"},
    ]
    result = measure_decoders([*map(json.dumps, lines), ""], ROUTES, GatewaySettings())
    assert [(row["format"], row["messages"]) for row in result["formats"]] == [("4", 1), ("json", 2)]
    costs = [row["us_per_message"] for row in result["formats"]] + list(result["native"].values())
    assert all(cost > 0 for cost in costs)
    assert "native, short way" in render_decoders(result)
    with pytest.raises(BadLine, match="line 1"):
        measure_decoders(["{}"], ROUTES, GatewaySettings())
