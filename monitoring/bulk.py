"""Add many observations to a histogram at once: a call per reading would cost more than landing the reading."""

from collections.abc import Sequence

from prometheus_client import Histogram

__all__ = ["bucket_bounds", "observe_counts", "observe_same"]


def bucket_bounds(histogram: Histogram) -> list[float]:
    """Return the histogram's upper bounds; the last one is infinite."""
    return list(histogram._upper_bounds)


def observe_counts(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """Add `counts[i]` observations to bucket i (each observation in one bucket only); `total` is the sum of their values."""
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(total)


def observe_same(histogram: Histogram, value: float, count: int) -> None:
    """Add `count` observations of one value."""
    within = next(index for index, bound in enumerate(histogram._upper_bounds) if value <= bound)
    histogram._buckets[within].inc(count)
    histogram._sum.inc(value * count)
