"""Where fuzzing begins: good messages of real devices, and for each decoder a route that leads everything to it."""

import base64
import json
from pathlib import Path
from typing import Final, NamedTuple

from gateway.decoders.registry import decoder_names
from gateway.outcome import Gate, Message
from gateway.routes import compile_routes
from gateway.settings import GatewaySettings, RouteSettings

__all__ = ["Seed", "each_route", "fitting_seeds", "gate_of", "read_seeds"]

_TOPICS: Final = {
    "native": "tidegate/v1/dev-1/readings",
    "sparkplug": "spBv1.0/plant/DDATA/node/dev-1",
    "homie": "homie/5/dev-1/node/temperature",
}
"""Where a format says something by its topic; all others take any."""
_ANY_TOPIC: Final = "site/dev-1/metric"
_MADE: Final = {
    "native": (
        b'{"ts":1764331199123,"boot":17,"seq":4,"values":{"t":21.5,"on":true,"m":"eco","p":{"value":3,"unit":"hPa"}}}',
        b'[{"boot":1,"seq":8,"values":{"t":1}},{"ts":"2025-11-28T11:59:59Z","values":{"t":2}}]',
    ),
    "plain": (b"21.5 \xc2\xb0C", b"-3 dBm", b"00123", b"true", b"1.2e3"),
}
"""Good payloads of formats that the shared examples do not show."""


class Seed(NamedTuple):
    """A good message, to be bent."""

    topic: str
    payload: bytes


def route_of(decoder: str) -> tuple[RouteSettings, ...]:
    """Every topic to one decoder; the native topics stay the native format's."""
    return (RouteSettings(filter="#", decoder=decoder, zone="Europe/Berlin"),)


def each_route() -> list[tuple[str, str, tuple[RouteSettings, ...]]]:
    """Every decoder's name, a topic that suits it, and the routes that lead there."""
    return [(name, _TOPICS.get(name, _ANY_TOPIC), route_of(name)) for name in decoder_names()]


def gate_of(decoder: str, limits: GatewaySettings) -> Gate:
    """A gate that gives everything to that decoder, with a state of its own."""
    return Gate(compile_routes(route_of(decoder)), limits)


def read_seeds(examples: Path) -> list[Seed]:
    """The messages of a JSON-lines file of `{topic, payload | payload_base64}`."""
    seeds = []
    for line in examples.read_text("utf-8").splitlines():
        given = json.loads(line)
        encoded = given.get("payload_base64")
        payload = given["payload"].encode() if encoded is None else base64.b64decode(encoded)
        seeds.append(Seed(given["topic"], payload))
    return seeds


def fitting_seeds(decoder: str, seeds: list[Seed], limits: GatewaySettings, received_us: int) -> list[Seed]:
    """Those seeds that the decoder accepts, after the ones made for it; in order, since a birth comes before its data."""
    gate = gate_of(decoder, limits)
    topic = _TOPICS.get(decoder, _ANY_TOPIC)
    made = [Seed(topic, payload) for payload in _MADE.get(decoder, ())]
    fitting = []
    for seed in seeds:
        outcome = gate.decide(Message(0, 0, received_us, seed.topic.encode(), seed.payload))
        if outcome.accepted or outcome.changes:
            fitting.append(seed)
    return made + fitting
