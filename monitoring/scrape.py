"""Read another process's `/metrics`: totals, rates and quantiles for `status` and for judging the canary."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["SILENT", "Scrape", "healthz", "histogram_quantiles", "quantile_of_buckets", "scrape"]

SILENT: Final = "does not answer yet"
"""Text of `healthz` for an address that does not answer, or not in HTTP."""
NO_ANSWER: Final = (OSError, http.client.HTTPException, ValueError)
"""Errors of an address without a usable answer. A process killed while it answers leaves a cut answer, no HTTP, or no metrics."""

OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener without a proxy: processes of one machine must not use the environment's proxy."""

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Scrape:
    """Samples of one answer; `at` is in monotonic seconds."""

    at: float
    values: dict[Key, float]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all series of a name with the given labels; 0 without any."""
        wanted = set(labels.items())
        return sum(value for (key, series), value in self.values.items() if key == name and wanted <= set(series))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sum of a metric per value of one label."""
        found: dict[str, float] = {}
        for (key, series), value in self.values.items():
            if key == name and (text := dict(series).get(label)) is not None:
                found[text] = found.get(text, 0.0) + value
        return found


def scrape(url: str, *, timeout_seconds: float = 1.0) -> Scrape | None:
    """Return the samples that a `/metrics` address serves now; None without an answer."""
    try:
        with OPENER.open(url, timeout=timeout_seconds) as answer:
            values = _samples(answer.read().decode("utf-8"))
    except NO_ANSWER:
        return None
    return Scrape(monotonic(), values)


def _samples(text: str) -> dict[Key, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def healthz(url: str, *, timeout_seconds: float = 1.0) -> tuple[bool, str]:
    """Return the answer of a `/healthz` address: (healthy, its text)."""
    try:
        with OPENER.open(url, timeout=timeout_seconds) as answer:
            return True, answer.read().decode("utf-8").strip()
    except urllib.error.HTTPError as error:
        return False, _words(error)
    except NO_ANSWER:
        return False, SILENT


def _words(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            return error.read().decode("utf-8").strip()
    except NO_ANSWER:
        return SILENT


def histogram_quantiles(
    now: Scrape, before: Scrape | None, name: str, quantiles: Sequence[float], **labels: str
) -> list[float] | None:
    """Return quantiles, in the histogram's unit, of the observations between two scrapes (from the start without `before`).

    Values are interpolated within a bucket, as in Prometheus; observations above the last bound count as the last bound. None if
    nothing was observed.
    """
    buckets = _buckets(now, name, labels)
    if before is not None:
        earlier = dict(_buckets(before, name, labels))
        buckets = [(bound, count - earlier.get(bound, 0.0)) for bound, count in buckets]
    if not buckets or buckets[-1][1] <= 0:
        return None
    return [quantile_of_buckets(buckets, quantile) for quantile in quantiles]


def _buckets(samples: Scrape, name: str, labels: dict[str, str]) -> list[tuple[float, float]]:
    wanted = set(labels.items())
    found: dict[float, float] = {}
    for (key, series), value in samples.values.items():
        if key == f"{name}_bucket" and wanted <= set(series):
            bound = float(dict(series)["le"])
            found[bound] = found.get(bound, 0.0) + value
    return sorted(found.items())


def quantile_of_buckets(buckets: Sequence[tuple[float, float]], quantile: float) -> float:
    """Return one quantile of sorted cumulative (bound, count) pairs; the last count must be above 0."""
    rank = quantile * buckets[-1][1]
    lower_bound, lower_count = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return lower_bound
            share = (rank - lower_count) / (count - lower_count) if count > lower_count else 1.0
            return lower_bound + (bound - lower_bound) * share
        lower_bound, lower_count = bound, count
    return lower_bound
