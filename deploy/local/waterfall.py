"""The hops of a reading one below the other, each where the one before it ends: where the time goes, at a glance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = ["render_waterfall"]

LABELS: Final = {
    "device_to_gateway": "device > gateway",
    "gateway_to_kafka": "gateway > Kafka",
    "kafka_to_read": "Kafka > read",
    "read_to_commit": "read > commit",
    "commit_to_queryable": "commit > query",
}
FIGURES: Final = 34
"""Columns that label and figures take."""


def _short(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    most = 1000 * LATENCY_BUCKETS[-1]
    return f"{milliseconds:.0f}" if milliseconds < most else f">{most:.0f}"


def render_waterfall(hops: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """A line per hop with its p50 and p95; the bars are the p50s, side by side."""
    known = [hop for hop in hops if hop["p50"] is not None]
    if known:
        yield f"{'':<20}p50    p95"
    whole = sum(max(0.0, hop["p50"]) for hop in known)
    columns, begun = max(1, width - FIGURES), 0.0
    for hop in known:
        ended = begun + max(0.0, hop["p50"])
        left, right = (round(columns * at / whole) if whole else 0 for at in (begun, ended))
        bar = " " * min(left, columns - 1) + "#" * max(1, right - left)
        yield f"{LABELS.get(hop['hop'], hop['hop']):<17}{_short(hop['p50']):>6} {_short(hop['p95']):>6} ms {bar}".rstrip()
        begun = ended
