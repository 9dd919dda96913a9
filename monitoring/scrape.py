"""Reads another process's `/metrics`: totals, rates and quantiles for `status` and the canary's judgement."""

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
"""The words of `healthz` for an address where nobody answers, or not in HTTP."""
NO_ANSWER: Final = (OSError, http.client.HTTPException, ValueError)
"""A process that is killed in the middle of its answer leaves half of it: cut off, no HTTP at all, or no metrics."""

OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy of the environment must not come between processes of one machine."""

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Scrape:
    """The samples of one answer; `at` is monotonic seconds."""

    at: float
    values: dict[Key, float]

    def total(self, name: str, **labels: str) -> float:
        """Sum over all series of a name whose labels include the given ones; 0 where there is none."""
        wanted = set(labels.items())
        return sum(value for (key, series), value in self.values.items() if key == name and wanted <= set(series))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Value per value of one label."""
        found: dict[str, float] = {}
        for (key, series), value in self.values.items():
            if key == name and (text := dict(series).get(label)) is not None:
                found[text] = found.get(text, 0.0) + value
        return found


def scrape(url: str, *, timeout_seconds: float = 1.0) -> Scrape | None:
    """The samples that a `/metrics` address serves now; None where nobody answers."""
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
    """What a `/healthz` address says: (healthy, its words)."""
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
    """Quantiles in the histogram's unit of what was observed between two scrapes (from the start without `before`).

    Interpolated within a bucket, as Prometheus does; what lies past the last bound counts as the last bound. None where
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
    """One quantile of cumulative (bound, count) pairs in order; the caller saw that something was counted."""
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
