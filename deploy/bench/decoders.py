"""`bench decoders`: cost of each decoder, from an MQTT message to the records for Kafka, without a server.

The result is the least of many short rounds, because other work on the machine only adds time.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from deploy.bench.environment import hardware
from deploy.bench.load_publisher import native_payload
from gateway.delivery.block import Block
from gateway.devtools.decode_file import read_line
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes

__all__ = ["measure_decoders", "render_decoders"]

ROUND_SECONDS: Final = 0.002
ROUNDS: Final = 25


def measure_decoders(
    lines: Iterable[str], routes: tuple[RouteSettings, ...], limits: GatewaySettings
) -> dict[str, Any]:
    """Time each line of `{id, format, topic, payload | payload_base64}` that gives readings; medians by format.

    Raises:
        BadLine: a line is not a message.
    """
    gate = MessageProcessor(compile_routes(routes, limits), limits)
    by_format: dict[str, list[tuple[float, int]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        identity, topic, payload = read_line(number, line)
        kind = str(json.loads(line).get("format") or identity)
        cost = _cost(gate, topic, payload)
        if cost is not None:
            by_format.setdefault(kind, []).append(cost)
    native = _native(routes, limits, gate)
    rows = [
        {
            "format": kind,
            "us_per_message": round(sum(us for us, _ in costs) / len(costs), 1),
            "us_per_reading": round(sum(us for us, _ in costs) / sum(count for _, count in costs), 1),
            "messages": len(costs),
        }
        for kind, costs in sorted(by_format.items())
    ]
    return {"native": native, "formats": rows, "hardware": hardware()}


def _cost(gate: MessageProcessor, topic: bytes, payload: bytes) -> tuple[float, int] | None:
    """(µs a message, readings); None where it has none."""
    outcome = gate.decide(Message(1, 0, time.time_ns() // 1000, topic, payload))
    if not outcome.accepted or not outcome.readings:
        return None

    def decide() -> None:
        gate.decide(Message(1, 0, time.time_ns() // 1000, topic, payload))

    return _least_us(decide), outcome.readings


def _native(routes: tuple[RouteSettings, ...], limits: GatewaySettings, gate: MessageProcessor) -> dict[str, float]:
    """The native message of `bench gateway`, two readings, both ways."""
    now_us = time.time_ns() // 1000
    topic, payload = native_payload(1, now_us // 1000)(1, 1)
    express = FastPathEncoder(compile_routes(routes, limits), limits, ReadingPolicy())
    batch: list[Any] = [(topic.encode(), payload, b"\0\1")] * 100

    def short() -> None:
        express.encode_into(Block(0, 1, now_us, 0.0), batch, 0, 1_000_000)

    long, _ = _cost(gate, topic.encode(), payload) or (float("nan"), 0)
    return {"short_way_us_per_message": round(_least_us(short) / 100, 1), "long_way_us_per_message": round(long, 1)}


def _least_us(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    times = max(1, int(ROUND_SECONDS / max(time.perf_counter() - began, 1e-6)))
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            call()
        least = min(least, (time.perf_counter() - began) / times)
    return least * 1e6


def render_decoders(result: Mapping[str, Any]) -> str:
    """A table for people; the measure of the ratio is the native format's long way, which is what others go too."""
    native = result["native"]
    long = native["long_way_us_per_message"]
    rows = [f"{'format':24}{'µs/message':>12}{'µs/reading':>12}{'x native, by reading':>22}"]
    rows.append(f"{'native, short way':24}{native['short_way_us_per_message']:>12}")
    rows.append(f"{'native, long way':24}{long:>12}{round(long / 2, 1):>12}{1.0:>22}")
    rows += [
        f"{row['format']:24}{row['us_per_message']:>12}{row['us_per_reading']:>12}"
        f"{round(row['us_per_reading'] / (long / 2), 1):>22}"
        for row in result["formats"]
    ]
    return "\n".join(rows)
