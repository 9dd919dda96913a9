"""Bucket bounds of the histograms, in seconds. Each goal is a bound, so that "within the goal" is exact."""

from typing import Final

__all__ = ["CHORE_BUCKETS", "HOP_BUCKETS", "LATENCY_BUCKETS", "PRODUCE_BUCKETS"]

LATENCY_BUCKETS: Final = (
    0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
"""Bounds that include the latency goals (0.35, 0.8, 1.5) and the freshness objective (2.5).

Above the objective each bound is at most 1.5 times the one before, which limits the error of a percentile in between.
"""
HOP_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, *LATENCY_BUCKETS)
"""Bounds for a single hop, which takes milliseconds."""
CHORE_BUCKETS: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)
PRODUCE_BUCKETS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
