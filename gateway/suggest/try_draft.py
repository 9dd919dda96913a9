"""Result of a draft for its own messages, decoded as the gateway will decode them."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gateway.devtools.decode_file import describe_outcome
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from gateway.suggest.draft import Draft
from gateway.suggest.message_families import SampleMessage

__all__ = ["decode_samples", "doubts"]


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
