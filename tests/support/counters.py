"""The rule of `counter_deltas` in loops, which the SQL of `lakehouse.counters` is compared with.

`from tests.support.counters import Gain, Reading, gains_of`; `odd_counters`
are examples, `reading_rows` makes the table that the SQL reads.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pyarrow as pa

from lakehouse.counters import LIMITS, PASSES

__all__ = ["ZERO", "Gain", "Reading", "gains_of", "odd_counters", "reading_rows"]

ZERO = datetime(2026, 5, 1, tzinfo=UTC)
"""Microsecond 0 of a `Reading`."""


class Reading(NamedTuple):
    """A number of one counter."""

    micros: int
    value: float


class Gain(NamedTuple):
    """A row of the view without its reading."""

    delta: float | None
    event: str | None
    pending: float


class _Rise(NamedTuple):
    """One step up: where it began, the gaps between its two readings, its time and the usual step.

    Times are in usual gaps.
    """

    size: float = 0.0
    begin: float = 0.0
    gaps: float = 1.0
    moment: float = 0.0
    usual: float = math.inf

    @property
    def pace(self) -> tuple[float, float]:
        return self.size / self.gaps, -self.begin


@dataclass
class _Valley:
    """A fall and the rise behind it, up to the next fall; the first has no fall.

    Rows below `goal` are those of a dip. `doubt` is pending where the usual step is at least `needed`, `missing` where the
    usual step is under a quarter of it.
    """

    low: float
    top: float
    began: float
    rows: list[int] = field(default_factory=list)
    bottom: int = -1
    silence: float = 1.0
    jumped: float = 0.0
    largest: _Rise = field(default_factory=_Rise)
    inner: list["_Valley"] = field(default_factory=list)
    goal: float = -math.inf
    doubt: float = 0.0
    needed: float = math.inf
    missing: float = 0.0

    def raise_goal(self, goal: float) -> None:
        self.goal = max(self.goal, goal)
        for valley in self.inner:
            valley.raise_goal(goal)

    def take_in(self, dip: "_Valley", peak: float) -> None:
        """What the counter gained during the dip comes at once with its end, and is no jump."""
        depth, largest = peak - dip.low, dip.largest
        expected = 4 * largest.usual * (largest.moment - dip.began)
        self.inner.append(dip)
        self.top = max(self.top, dip.top)
        if dip.jumped - depth > expected:
            self.jumped += dip.jumped - depth
        if largest.size - depth > expected:
            rest = _Rise(largest.size - depth, peak, 1.0, largest.moment, largest.usual)
            self.largest = max(self.largest, rest, key=lambda rise: rise.pace)


def odd_counters(count: int) -> dict[str, list[Reading]]:
    """Counters with each kind of fault at once, in the order of time: the same ones at each call."""
    random = Random(count)
    return {f"counter {number}": _odd_counter(random) for number in range(count)}


def _odd_counter(random: Random) -> list[Reading]:
    level = random.choice([0.0, 100.0, 1500.0, 9990.0, 65500.0])
    micros, found = 0, []
    for _ in range(random.randint(1, 60)):
        micros += random.choice([10, 10, 10, 10, 3600]) * 1_000_000
        level += random.choice([0.0, 0.125, 0.5, 1.0, 2.0])
        fault = random.random()
        if fault < 0.05:
            level = random.choice([0.0, level / 8, level / 2])
        elif fault > 0.97:
            level += random.choice([100.0, 5000.0])
        is_dip = 0.05 < fault < 0.2
        found.append(Reading(micros, random.choice([0.0, -1.0, level / 2, level * 0.95]) if is_dip else level))
    return found


def reading_rows(counters: Mapping[str, Sequence[Reading]]) -> pa.Table:
    """Rows of `readings`, each counter a metric of one device, in the order of arrival."""
    rows = [
        ("meter", metric, value, ZERO + timedelta(microseconds=micros), ZERO, 0, number, 0, None)
        for metric, readings in counters.items()
        for number, (micros, value) in enumerate(readings)
    ]
    schema = pa.schema(
        [
            ("device", pa.string()), ("metric", pa.string()), ("value", pa.float64()),
            ("event_time", pa.timestamp("us", "UTC")), ("landed_at", pa.timestamp("us", "UTC")), ("partition", pa.int32()),
            ("offset", pa.int64()), ("index", pa.int32()), ("flags", pa.list_(pa.string())),
        ]
    )  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )


def gains_of(readings: Sequence[Reading]) -> list[Gain]:
    """The rows of the view for one counter; the readings are in the order of their time."""
    return list(_Counter(readings).gains())


class _Counter:
    def __init__(self, readings: Sequence[Reading]) -> None:
        self.values = [reading.value for reading in readings]
        micros = [reading.micros for reading in readings]
        usual_gap = max((micros[-1] - micros[0]) / max(len(micros) - 1, 1), 1.0)
        self.gaps = [1.0, *(max((b - a) / usual_gap, 1.0) for a, b in pairwise(micros))]
        self.moments = [each / usual_gap for each in micros]
        self.steps = [0.0, *(b - a for a, b in pairwise(self.values))]

    def gains(self) -> Iterator[Gain]:
        values = self.values
        valleys = heads = list(self.valleys(self.usual_steps(range(len(values)))))
        for _ in range(PASSES):
            heads = list(_without_dips(heads))
        goals = {row: valley.goal for valley in valleys for row in valley.rows}
        returns = {row for row in goals if self.steps[row] > 0 and values[row - 1] < goals[row]}
        usual = self.usual_steps(row for row in range(len(values)) if row not in returns)
        starts = self.jumps(usual, returns) | self.falls(heads, usual)
        # A counter that resets by habit counts fast from 0 on, so more dips may be resets.
        often = 4 if _resets(heads, usual) else 1
        doubts = {valley.bottom: _doubt(valley, usual[valley.bottom], often) for valley in valleys[1:]}
        level, level_at = values[0], self.moments[0]
        yield Gain(None, None, 0.0)
        for row in range(1, len(values)):
            value, unsure = values[row], doubts.get(row, 0.0)
            event, amount = starts.get(row, (None, 0.0))
            if value < goals[row]:
                yield Gain(0.0, "open" if unsure else "dip", unsure)
            elif event is not None:
                yield Gain(0.0, event, amount) if event == "open" else Gain(amount, event, 0.0)
                level, level_at = max(value, 0.0), self.moments[row]
            else:
                gain = max(value - level, 0.0)
                step = 0.0 if row in returns else max(self.steps[row], 0.0)
                swift = 64 * (usual[row] or math.inf) * max(self.moments[row] - level_at, 1.0)
                if row in returns and gain > swift:
                    yield Gain(0.0, "open", gain)
                else:
                    yield Gain(gain, "dip" if value < level else None, max(step - gain, 0.0))
                level, level_at = max(level, value), self.moments[row]

    def usual_steps(self, rows: Iterable[int]) -> list[float | None]:
        """For each row the geometric mean of the steps up of the given rows, its own left out."""
        logs = {row: math.log(self.steps[row]) for row in rows if self.steps[row] > 0}
        total, found = sum(logs.values()), []
        for row in range(len(self.steps)):
            others = len(logs) - (row in logs)
            found.append(math.exp((total - logs.get(row, 0.0)) / others) if others else None)
        return found

    def valleys(self, usual: Sequence[float | None]) -> Iterator[_Valley]:
        first = self.values[0]
        valley, is_up = _Valley(first, first, self.moments[0]), True
        for row, (value, step, gaps) in enumerate(zip(self.values, self.steps, self.gaps, strict=True)):
            others = usual[row]
            if step < 0 and is_up:
                yield valley
                valley = _Valley(value, value, self.moments[row - 1])
            is_up = step > 0 or (is_up and step == 0)
            valley.rows.append(row)
            valley.top = value
            if step < 0:
                valley.low, valley.bottom, valley.silence = value, row, gaps
            if step > 0 and step / gaps > valley.largest.size / valley.largest.gaps:
                valley.largest = _Rise(step, self.values[row - 1], gaps, self.moments[row], others or math.inf)
            if step > 0 and (others is None or step > 64 * others):
                valley.jumped += step
        yield valley

    def jumps(self, usual: Sequence[float | None], returns: set[int]) -> dict[int, tuple[str, float]]:
        """Steps up of more than 64 usual ones that no fall explains: the value more than doubles, or no other step is like it."""
        found = {}
        paces = {row: step / self.gaps[row] for row, step in enumerate(self.steps) if step > 0 and row not in returns}
        changed_at = self.moments[0]
        for row, step in enumerate(self.steps):
            others = usual[row]
            elapsed = max(self.moments[row] - changed_at, self.gaps[row])
            changed_at = self.moments[row] if step else changed_at
            swiftest = max((pace for other, pace in paces.items() if other != row), default=math.inf)
            if row in paces and others is not None and step > max(64 * others, 16 * swiftest) * elapsed:
                found[row] = "open", step
                continue
            is_large = others is None or step > 64 * others * self.gaps[row]
            if step > 0 and row not in returns and is_large and self.values[row] > 2 * max(self.values[row - 1], 0.0):
                found[row] = "open", step
        return found

    def falls(self, heads: Sequence[_Valley], usual: Sequence[float | None]) -> dict[int, tuple[str, float]]:
        """Rows from which the counter counts on another level: event, and what was gained or may have been."""
        found = {}
        resets = _resets(heads, usual)
        for last, valley in pairwise(heads):
            peak, low, others = last.top, valley.low, usual[valley.bottom]
            possible = 0.0 if others is None else 8 * others * valley.silence
            limit = _limit(peak)
            if low >= 0 and not resets and _is_near(peak, others) and low + limit - peak <= possible:
                found[valley.bottom] = "wrap", low + limit - peak
            elif low <= 0 or low < 0.9 * peak:
                found[valley.bottom] = ("reset", max(low, 0.0)) if low <= possible else ("open", low)
            elif low <= possible and valley.silence > 2:
                found[valley.bottom] = "open", low
        return found


def _resets(heads: Sequence[_Valley], usual: Sequence[float | None]) -> bool:
    """Whether the counter begins again anywhere far from a limit."""
    return any(
        not _is_near(last.top, usual[valley.bottom])
        and valley.low < 0.9 * last.top
        and valley.low <= 8 * (usual[valley.bottom] or -math.inf) * valley.silence
        for last, valley in pairwise(heads)
    )


def _limit(peak: float) -> float:
    return next((limit for limit in LIMITS if peak <= limit), math.inf)


def _is_near(peak: float, usual: float | None) -> bool:
    limit = _limit(peak)
    return limit < math.inf and limit - peak <= max(0.01 * limit, 2 * (usual or 0.0))


def _without_dips(heads: Sequence[_Valley]) -> Iterator[_Valley]:
    """The valleys that are no dip; each takes in those behind it that are."""
    head, peaks = heads[0], [valley.top for valley in heads]
    for valley, peak in zip(heads[1:], peaks, strict=False):
        depth, is_shallow, largest = peak - valley.low, valley.low >= 0.9 * peak, valley.largest
        goal = peak if is_shallow else 0.9 * peak
        is_step = (
            valley.jumped >= 0.5 * depth
            or (largest.size >= 0.9 * depth and largest.begin <= valley.low + 0.1 * depth)
            or (largest.size >= 0.5 * depth and largest.size > 4 * largest.usual * largest.gaps)
        )
        if valley.top < goal or not (is_shallow or is_step):
            yield head
            head = valley
            continue
        if not is_shallow:
            valley.doubt, valley.needed = peak, largest.size / (4 * largest.gaps)
        elif valley.silence > 2:
            valley.doubt, valley.needed = peak, valley.low / (8 * valley.silence)
        elif not is_step:
            valley.missing = depth
        valley.raise_goal(goal)
        head.take_in(valley, peak)
    yield head


def _doubt(valley: _Valley, usual: float | None, often: int) -> float:
    """What may have been gained, though the valley is a dip."""
    if usual is None:
        return 0.0
    return valley.doubt if usual * often >= valley.needed else valley.missing if valley.missing > 4 * usual else 0.0
