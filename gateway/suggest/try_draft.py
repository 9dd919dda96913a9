"""What a draft makes of the messages it was drawn from: decoded as the gateway will."""

import time
from collections.abc import Iterable
from typing import Any

from gateway.decode_file import describe
from gateway.outcome import Gate, Message
from gateway.routes import compile_routes
from gateway.settings import GatewaySettings, RouteSettings
from gateway.suggest.sample import Sample

__all__ = ["decode_samples"]


def decode_samples(
    samples: Iterable[Sample], routes: tuple[RouteSettings, ...], limits: GatewaySettings
) -> list[dict[str, Any]]:
    """What `tidegate decode` says of each sample, with its topic, under these routes.

    Raises:
        ConfigError: a route is wrong.
    """
    gate = Gate(compile_routes(routes, limits), limits)
    found: list[dict[str, Any]] = []
    for number, sample in enumerate(samples, start=1):
        received_us = time.time_ns() // 1000 if sample.received_us is None else sample.received_us
        topic = sample.topic.encode("utf-8", "surrogateescape")
        outcome = gate.decide(Message(number, 0, received_us, topic, sample.payload))
        found.append({"topic": sample.topic, "device": outcome.device} | describe(outcome))
    return found
