"""Samples of the parts in the last minutes: enough for the built-in checks and for the page's rates.

It follows Prometheus: counter resets, stale series, a look-back of five minutes. There are two differences. An increase is not
extrapolated past its first and last sample. A series ends some time after its part stopped serving it, not at once, so that one
late answer ends nothing.
"""

import logging
import operator
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from math import isnan, nan
from typing import Final

from monitoring.scrape import Scrape, quantile_of_buckets

__all__ = ["History", "Labels", "Values"]

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs, sorted; `job` is among them."""
Values = dict[Labels, float]

LOOKBACK_SECONDS: Final = 300.0
"""A sample is valid for this long without a newer one."""
GRACE_SECONDS: Final = 10.0
"""A series that its part no longer serves is kept for this long, ..."""
GRACE_PERIODS: Final = 2.5
"""... and, for a part that is asked more rarely, for this many periods: one missed answer must not end its series."""
SPACING_SECONDS: Final = 1.5
"""Samples closer together replace each other, so that memory use depends on time and not on the number of looks."""
MOST_SERIES: Final = 4000
"""Limit of kept series. No part of Tidegate has this many, so a target above the limit is not one of Tidegate's."""

logger = logging.getLogger("tidegate.monitoring.history")


class Series:
    """Samples of one series in order of time; NaN marks its end."""

    __slots__ = ("at", "values")

    def __init__(self) -> None:
        self.at = array("d")
        self.values = array("d")

    def put(self, at: float, value: float) -> None:
        """Add a sample, or replace the newest one if it is close to the one before it."""
        if self.at and at < self.at[-1]:
            return
        if len(self.at) > 1 and at - self.at[-2] < SPACING_SECONDS:
            self.at[-1], self.values[-1] = at, value
            return
        self.at.append(at)
        self.values.append(value)

    def ended(self) -> bool:
        """Return whether the newest sample marks the end of the series."""
        return isnan(self.values[-1])

    def cut(self, before: float) -> None:
        """Remove older samples, in steps of a minute, since each removal moves the rest."""
        if self.at and self.at[0] < before - 60:
            count = bisect_left(self.at, before)
            del self.at[:count], self.values[:count]

    def value_at(self, now: float) -> float | None:
        """Return the sample that is valid at an instant."""
        index = bisect_right(self.at, now) - 1
        if index < 0 or self.at[index] < now - LOOKBACK_SECONDS or isnan(self.values[index]):
            return None
        return self.values[index]

    def growth(self, since: float, until: float) -> tuple[float, float] | None:
        """Return a counter's increase, corrected for resets, and its seconds; None with fewer than two samples."""
        window = slice(bisect_left(self.at, since), bisect_right(self.at, until))
        samples = [(at, v) for at, v in zip(self.at[window], self.values[window], strict=True) if not isnan(v)]
        if len(samples) < 2:
            return None
        lost = sum(before for (_, before), (_, after) in pairwise(samples) if after < before)
        return samples[-1][1] - samples[0][1] + lost, samples[-1][0] - samples[0][0]

    def within(self, since: float, until: float) -> list[float]:
        """Return the values in a window, without end marks."""
        window = slice(bisect_left(self.at, since), bisect_right(self.at, until))
        return [value for value in self.values[window] if not isnan(value)]


class History:
    """Samples of the named metrics, and `up` of every job; safe from any thread."""

    def __init__(self, metrics: Collection[str], *, seconds: float = 1200.0) -> None:
        self.seconds = seconds
        self._metrics = frozenset(metrics)
        self._series: dict[str, dict[Labels, Series]] = {}
        self._of_source: dict[Labels, set[tuple[str, Labels]]] = {}
        self._now = 0.0
        self._is_full = False
        self._lock = threading.RLock()

    def add(
        self, at: float, job: str, scrape: Scrape | None, *, instance: str | None = None, every_seconds: float = 0.0
    ) -> None:
        """Add the answer of a part at a time (epoch seconds); None if it did not answer.

        `instance` distinguishes the addresses of a job that has several; `every_seconds` is the interval between requests.
        """
        source: Labels = (("job", job),) if instance is None else (("instance", instance), ("job", job))
        with self._lock:
            if at < self._now - GRACE_SECONDS:
                self._restart()
            self._now = max(self._now, at)
            self._put("up", source, at, 0.0 if scrape is None else 1.0)
            told = self._take(at, source, {} if scrape is None else scrape.values)
            known = self._of_source.setdefault(source, set())
            self._end(at, known - told, grace_seconds=max(GRACE_SECONDS, GRACE_PERIODS * every_seconds))
            known |= told
            self._forget(at)

    def _restart(self) -> None:
        """Clear everything after the clock was set back: samples from the future would hide new ones."""
        self._series.clear()
        self._of_source.clear()
        self._now = 0.0

    def _take(self, at: float, source: Labels, values: Mapping[tuple[str, Labels], float]) -> set[tuple[str, Labels]]:
        told: set[tuple[str, Labels]] = set()
        for (metric, labels), value in values.items():
            if metric in self._metrics:
                key = tuple(sorted((*labels, *source)))
                if self._put(metric, key, at, value):
                    told.add((metric, key))
        return told

    def _put(self, metric: str, labels: Labels, at: float, value: float) -> bool:
        known = self._series.setdefault(metric, {})
        if labels not in known:
            if sum(map(len, self._series.values())) >= MOST_SERIES:
                self._report_full(metric, labels)
                return False
            known[labels] = Series()
        known[labels].put(at, value)
        return True

    def _report_full(self, metric: str, labels: Labels) -> None:
        """Warn once: series that are not kept are missing on the page and in the built-in checks."""
        if not self._is_full:
            self._is_full = True
            job = dict(labels).get("job", "?")
            logger.warning(
                "the monitor keeps %d series at most and drops others, first %s of %s; its checks and its page are incomplete "
                "for them. Check whether an address in monitoring.targets serves more than one part of Tidegate.",
                MOST_SERIES, metric, job,
            )  # fmt: skip

    def _end(self, at: float, missing: set[tuple[str, Labels]], *, grace_seconds: float) -> None:
        for metric, labels in missing:
            series = self._series[metric][labels]
            if not series.ended() and at - series.at[-1] >= grace_seconds:
                series.put(at, nan)

    def _forget(self, at: float) -> None:
        oldest = at - self.seconds
        for metric, known in self._series.items():
            for labels, series in list(known.items()):
                series.cut(oldest)
                if not series.at or series.at[-1] < oldest:
                    del known[labels]
                    for keys in self._of_source.values():
                        keys.discard((metric, labels))

    def latest(self, metric: str, now: float | None = None, /, **labels: str) -> Values:
        """Return the value of each series with the given labels, without series that ended or are older than 5 min."""
        moment = self._now if now is None else now
        with self._lock:
            found = {key: series.value_at(moment) for key, series in self._matching(metric, labels)}
        return {key: value for key, value in found.items() if value is not None}

    def increase(self, metric: str, seconds: float, now: float | None = None, /, **labels: str) -> Values:
        """Return each counter's increase in the last seconds; a lower value counts as a restart from 0."""
        return {key: gained for key, (gained, _) in self._growth(metric, seconds, now, labels).items()}

    def rate(self, metric: str, seconds: float, now: float | None = None, /, **labels: str) -> Values:
        """Return each counter's increase per second, over the time between its first and last sample in the window."""
        found = self._growth(metric, seconds, now, labels)
        return {key: gained / took for key, (gained, took) in found.items() if took > 0}

    def changes(self, metric: str, seconds: float, now: float | None = None, /, **labels: str) -> Values:
        """Return how often each gauge changed in the last seconds."""
        found = self._within(metric, seconds, now, labels)
        return {key: float(sum(map(operator.ne, values, values[1:]))) for key, values in found.items()}

    def least(self, metric: str, seconds: float, now: float | None = None, /, **labels: str) -> Values:
        """Return the smallest value of each gauge in the last seconds."""
        return {key: min(values) for key, values in self._within(metric, seconds, now, labels).items()}

    def quantiles(
        self, metric: str, seconds: float, quantiles: Sequence[float], now: float | None = None, /, **labels: str
    ) -> list[float] | None:
        """Return quantiles, in the histogram's unit, of the observations in the last seconds; None without any."""
        counts: dict[float, float] = {}
        for key, count in self.increase(f"{metric}_bucket", seconds, now, **labels).items():
            bound = float(dict(key)["le"])
            counts[bound] = counts.get(bound, 0.0) + count
        buckets = sorted(counts.items())
        if not buckets or buckets[-1][1] <= 0:
            return None
        return [quantile_of_buckets(buckets, quantile) for quantile in quantiles]

    def _within(
        self, metric: str, seconds: float, now: float | None, labels: Mapping[str, str]
    ) -> dict[Labels, list[float]]:
        """Return the values per series, without series that have no sample in the window."""
        until = self._now if now is None else now
        with self._lock:
            found = {key: series.within(until - seconds, until) for key, series in self._matching(metric, labels)}
        return {key: values for key, values in found.items() if values}

    def _growth(
        self, metric: str, seconds: float, now: float | None, labels: Mapping[str, str]
    ) -> dict[Labels, tuple[float, float]]:
        until = self._now if now is None else now
        with self._lock:
            found = {key: series.growth(until - seconds, until) for key, series in self._matching(metric, labels)}
        return {key: growth for key, growth in found.items() if growth is not None}

    def _matching(self, metric: str, labels: Mapping[str, str]) -> list[tuple[Labels, Series]]:
        wanted = set(labels.items())
        return [(key, series) for key, series in self._series.get(metric, {}).items() if wanted <= set(key)]
