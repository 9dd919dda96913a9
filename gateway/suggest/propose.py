"""Proposals for messages: the draft of each family, the readings that it gives, and the route that takes the messages now.

Each draft is tried with its own messages, which are decoded as the gateway will decode them.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.decoders.mapping.value_settings import NOT_BY_CODE, NOT_BY_QUALITY
from gateway.devtools.decode_file import describe_outcome
from gateway.devtools.explain_route import explain_message
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from gateway.suggest.bare_draft import draft_bare
from gateway.suggest.document_draft import draft_documents
from gateway.suggest.draft import Draft
from gateway.suggest.message_families import MessageFamily, SampleMessage, group_samples
from gateway.suggest.shipped import shipped_drafts
from gateway.suggest.toml_text import write_toml

__all__ = ["Proposal", "propose_routes"]


def decode_samples(
    samples: Iterable[SampleMessage], routes: tuple[RouteSettings, ...], limits: GatewaySettings
) -> list[dict[str, Any]]:
    """Return the result of `tidegate decode` for each sample, with its topic, under these routes.

    Raises:
        ConfigError: a route is wrong.
    """
    gate = MessageProcessor(compile_routes(routes, limits), limits)
    found: list[dict[str, Any]] = []
    for number, sample in enumerate(samples, start=1):
        received_us = time.time_ns() // 1000 if sample.received_us is None else sample.received_us
        topic = sample.topic.encode("utf-8", "surrogateescape")
        outcome = gate.decide(Message(number, 0, received_us, topic, sample.payload))
        found.append({"topic": sample.topic, "device": outcome.device} | describe_outcome(outcome))
    return found


def doubts(draft: Draft, decoded: list[dict[str, Any]]) -> list[str]:
    """Return faults of readings that look right: values that share a name and a time, and values that give no reading."""
    found: list[str] = []
    for message in decoded:
        names = Counter((one["device"], one["metric"], one["time"]) for one in message["readings"])
        twice = [metric for (_device, metric, _time), count in names.items() if count > 1]
        if twice:
            count = names.most_common(1)[0][1]
            says = f"{count} values of one message have the name {twice[0]} and the same time"
            found.append(f"{says}: give each its own name (`prefix` or `rename`)")
    out = sum(len(message["readings"]) + len(message["rejected"]) for message in decoded)
    if out < draft.values and not any(message.get("wanted") for message in decoded):
        found.append(
            f"{draft.values - out} of {draft.values} values give no reading, and the draft does not say why: check `skip`"
        )
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Proposal:
    """One route for one family of messages.

    `decoded` is the result of the draft for each sample (as in `tidegate decode`); `now` is the route that already takes
    the topic, None if none does: the draft must come before it.
    """

    draft: Draft
    toml: str
    samples: list[SampleMessage]
    decoded: list[dict[str, Any]]
    now: str | None

    @property
    def route(self) -> RouteSettings:
        """The draft as settings."""
        return RouteSettings.model_validate(self.draft.route)

    @property
    def works(self) -> bool:
        """Return whether every sample gives readings, nothing is in doubt, and only bad qualities or codes are rejected."""
        return not self.draft.doubts and all(
            one["outcome"] == "reading" and all(map(_is_meant, one["rejected"])) for one in self.decoded
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the proposal for programs and the page."""
        return {
            "toml": self.toml,
            "route": self.draft.route,
            "notes": self.draft.notes,
            "doubts": self.draft.doubts,
            "left_out": [{"name": one.name, "why": one.why} for one in self.draft.left_out],
            "now": self.now,
            "works": self.works,
            "messages": self.decoded,
        }


def _is_meant(rejected: dict[str, Any]) -> bool:
    """Return whether a value was rejected because the draft says that it is not a measurement."""
    return rejected["wanted"] in (NOT_BY_QUALITY, NOT_BY_CODE)


def propose_routes(
    samples: Iterable[SampleMessage],
    routes: tuple[RouteSettings, ...],
    limits: GatewaySettings,
    *,
    zone: str | None = None,
) -> list[Proposal]:
    """Return a proposal for each family, in the order in which the families first came.

    Args:
        samples: real messages; messages without payload are left out.
        routes: the settings' own.
        limits: the gateway's, with its presets.
        zone: IANA zone of times without an offset; default: the gateway's.

    Raises:
        ConfigError: a route of the settings is wrong, or the zone is unknown.
    """
    zone = zone or limits.zone
    return [_propose(family, routes, limits, zone) for family in group_samples(samples, limits)]


def _propose(
    family: MessageFamily, routes: tuple[RouteSettings, ...], limits: GatewaySettings, zone: str | None
) -> Proposal:
    now = _taker(family.samples[0], routes, limits)
    for shipped in shipped_drafts(family, limits, zone=zone):
        tried = _try(shipped, family, routes, limits, now)
        if tried.works:
            return tried
    own = draft_documents(family, limits, zone=zone) if family.documents else draft_bare(family)
    return _try(own, family, routes, limits, now)


def _taker(sample: SampleMessage, routes: tuple[RouteSettings, ...], limits: GatewaySettings) -> str | None:
    """Return the route that takes a message without the draft, by its name and filter."""
    received_us = time.time_ns() // 1000 if sample.received_us is None else sample.received_us
    found = explain_message(sample.topic, sample.payload, routes, limits, received_us=received_us)["route"]
    return None if found is None else f"{found['name']} ({found['filter']})"


def _try(
    draft: Draft, family: MessageFamily, routes: tuple[RouteSettings, ...], limits: GatewaySettings, now: str | None
) -> Proposal:
    if now is not None:
        draft.notes.append(f"{now} takes these messages now: the draft comes before it")
    route = RouteSettings.model_validate(draft.route)
    decoded = decode_samples(family.samples, (route, *routes), limits)
    draft.doubts += doubts(draft, decoded)
    return Proposal(draft, write_toml(draft), family.samples, decoded, now)
