"""Starting points of fuzzing: every reader of payloads, a gate that leads there, and good messages of real devices."""

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gateway.decoders.registry import decoder_names
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.presets.loader import load_presets
from gateway.routes import compile_routes

__all__ = ["FuzzTarget", "SeedMessage", "fitting_seeds", "read_seeds", "targets"]

_TOPICS: Final = {
    "native": ("tidegate/v1/dev-1/readings",),
    "sparkplug": ("spBv1.0/plant/DDATA/node/dev-1", "spBv1.0/plant/NBIRTH/node", "spBv1.0/plant/NDATA/node"),
    "homie": ("homie/5/dev-1/$description", "homie/5/dev-1/node/temperature", "homie/dev-2/node/temperature"),
}
"""Topics of formats that carry information in the topic; all others take any."""
_ZONE: Final = "Europe/Berlin"
_ANY_TOPICS: Final = ("site/dev-1/metric",)
_MADE: Final = {
    "native": (
        b'{"ts":1764331199123,"boot":17,"seq":4,"values":{"t":21.5,"on":true,"m":"eco","p":{"value":3,"unit":"hPa"}}}',
        b'[{"boot":1,"seq":8,"values":{"t":1}},{"ts":"2025-11-28T11:59:59Z","values":{"t":2}}]',
    ),
    "plain": (b"21.5 \xc2\xb0C", b"-3 dBm", b"00123", b"true", b"1.2e3"),
    "json": (b'{"ts":1764331199,"a":{"b":1.5,"c":[1,2]},"t":{"value":21,"unit":"C"}}', b'[{"a":1},{"b":"x"}]'),
    "mapping influx": (b'weather,room=a temp=21.5,on=t,n=3i,s="x\\"y" 1764331199000000000\n',),
}
"""Good payloads of formats that the shared examples do not show, or not enough."""
_NAMED = re.compile(r"\{[^{}]*\}|\+")


class SeedMessage(NamedTuple):
    """A good message, to be bent."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True, eq=False)
class FuzzTarget:
    """One decoder, the routes of one preset (`preset NAME`) or one shipped mapping, with topics that lead to it."""

    name: str
    topics: tuple[str, ...]
    routes: tuple[RouteSettings, ...] = ()
    presets: tuple[str, ...] = ()
    zone: str | None = None

    def gate(self, limits: GatewaySettings) -> MessageProcessor:
        """A gate that knows this target only, with a state of its own."""
        chosen = limits.model_copy(update={"presets": self.presets, "zone": self.zone})
        return MessageProcessor(compile_routes(self.routes, chosen), chosen)


def targets() -> list[FuzzTarget]:
    """Every decoder of the registry, every preset that routes topics by itself, and the mappings of the others."""
    decoders = [
        FuzzTarget(name, _TOPICS.get(name, _ANY_TOPICS), (RouteSettings(filter="#", decoder=name),), (), _ZONE)
        for name in decoder_names()
    ]
    presets = [
        FuzzTarget(f"preset {name}", tuple(map(_topic_of, preset.routes)), (), (name,), _ZONE)
        for name, preset in load_presets().items()
        if preset.routes
    ]
    mappings = [
        FuzzTarget(f"mapping {name}", _ANY_TOPICS, (RouteSettings(filter="#", mapping=name),), (), _ZONE)
        for preset in load_presets().values()
        if not preset.routes
        for name in preset.mappings
    ]
    return decoders + mappings + presets


def _topic_of(route: RouteSettings) -> str:
    """A topic that the route's filter matches."""
    text = route.filter
    for segment, globs in route.only.items():
        first = globs if isinstance(globs, str) else globs[0]
        text = text.replace(f"{{{segment}}}", first.replace("*", "x").replace("?", "x"))
    return _NAMED.sub("dev-1", text).replace("#", "dev-1")


def read_seeds(examples: Path) -> list[SeedMessage]:
    """The messages of a JSON-lines file of `{topic, payload | payload_base64}`."""
    seeds = []
    for line in examples.read_text("utf-8").splitlines():
        given = json.loads(line)
        encoded = given.get("payload_base64")
        payload = given["payload"].encode() if encoded is None else base64.b64decode(encoded)
        seeds.append(SeedMessage(given["topic"], payload))
    return seeds


def fitting_seeds(
    target: FuzzTarget, seeds: list[SeedMessage], limits: GatewaySettings, received_us: int
) -> list[SeedMessage]:
    """Return the seeds that the target accepts or learns from, in order (a birth comes before its data), and some made for it."""
    fitting = _accepted(target, seeds, limits, received_us)
    if not fitting:
        # Formats whose example has a topic that only a route of the user's own matches.
        moved = [SeedMessage(topic, seed.payload) for topic in target.topics for seed in seeds]
        fitting = _accepted(target, moved, limits, received_us)
    return fitting + [SeedMessage(target.topics[0], payload) for payload in _MADE.get(target.name, ())]


def _accepted(
    target: FuzzTarget, seeds: list[SeedMessage], limits: GatewaySettings, received_us: int
) -> list[SeedMessage]:
    gate = target.gate(limits)
    found = []
    for seed in seeds:
        outcome = gate.decide(Message(0, 0, received_us, seed.topic.encode(), seed.payload))
        if outcome.accepted or outcome.changes:
            found.append(seed)
    return found
