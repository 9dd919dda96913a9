"""The hops of a reading one below the other, each where the one before it ends: where the time goes, at a glance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

__all__ = ["waterfall"]

LABELS: Final = {
    "device_to_gateway": "device > gateway",
    "gateway_to_kafka": "gateway > Kafka",
    "kafka_to_read": "Kafka > read",
    "read_to_commit": "read > commit",
    "commit_to_queryable": "commit > query",
}
FIGURES: Final = 34
"""Columns that label and figures take."""


def waterfall(hops: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
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
        p95 = f"{hop['p95']:.0f}" if hop["p95"] is not None else "-"
        yield f"{LABELS.get(hop['hop'], hop['hop']):<17}{hop['p50']:>6.0f} {p95:>6} ms {bar}".rstrip()
        begun = ended
