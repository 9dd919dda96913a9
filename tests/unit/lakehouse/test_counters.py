"""Gains of counters. The SQL says what the rule in loops says; the rule says what a true meter gained, faults and all."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.counters import COUNTER_DELTAS_SQL
from tests.support.counters import Gain, Reading, gains_of, reading_rows

SECONDS_10 = 10_000_000
Example = list[tuple[float, float | None, str | None]]


def steps(first: float, step: float, count: int) -> list[float]:
    return [first + step * n for n in range(count)]


def counted(values: list[float], gain: float) -> Example:
    return [(value, gain, None) for value in values]


def low(values: list[float]) -> Example:
    return [(value, 0.0, "dip") for value in values]


EXAMPLES: dict[str, Example] = {
    #  / a counter that counts
    "steady": [(5.0, None, None), (7.0, 2.0, None), (7.0, 0.0, None), (10.5, 3.5, None)],
    #  /\/ a small decrease, then recovery
    "small dip": [(100.0, None, None), (98.0, 0.0, "dip"), (99.0, 0.0, "dip"), (103.0, 3.0, None)],
    #  /|/ a fault reads 0 or less, and the old level comes back
    "dip to 0": [(100.0, None, None), (0.0, 0.0, "dip"), (0.0, 0.0, "dip"), (101.0, 1.0, None), (103.0, 2.0, None)],
    "dip below 0": [(100.0, None, None), *low([-1.0] * 3), (101.0, 1.0, None), (103.0, 2.0, None)],
    "long dip": [(100.0, None, None), (100.1, 0.1, None), *low([0.0] * 500), (102.0, 1.9, None), (102.1, 0.1, None)],
    "dip again and again": [
        (100.0, None, None), *[row for n in range(1, 30) for row in (*low([0.0]), (100.0 + n, 1.0, None))],
    ],
    #  a dip in steps is one dip, down and up
    "stairs": [(100.0, None, None), (50.0, 0.0, "dip"), (0.0, 0.0, "dip"), (104.0, 4.0, None)],
    "three inverters come back one by one": [
        (3000.0, None, None), (3000.5, 0.5, None), *low([0.0, 0.0, 1000.0, 1000.5, 2000.0]), (3002.0, 1.5, None),
        (3002.5, 0.5, None),
    ],
    #  one of two inverters is off, the other counts on; the second one fails in between
    "one of two inverters": [
        (1500.0, None, None), (1501.0, 1.0, None), *low(steps(501.0, 1.0, 40)), (1545.0, 44.0, None), (1546.0, 1.0, None),
    ],
    #  a fault reads more, or a third inverter comes: no other step is like it
    "one value too large": [
        (1000.0, None, None), *counted(steps(1001.0, 1.0, 8), 1.0), (1500.0, 0.0, "open"), (1010.0, 0.0, "open"),
        *counted(steps(1011.0, 1.0, 8), 1.0),
    ],
    "a third inverter": [
        (10_000.0, None, None), *counted(steps(10_001.0, 1.0, 8), 1.0), (13_010.0, 0.0, "open"),
        *counted(steps(13_011.0, 1.0, 8), 1.0),
    ],
    #  it shows an old value for a while, then all that was counted since
    "frozen": [
        (1000.0, None, None), *counted(steps(1001.0, 1.0, 8), 1.0), *counted([1008.0] * 100, 0.0), (1108.0, 100.0, None),
        *counted(steps(1109.0, 1.0, 8), 1.0),
    ],
    #  the smaller one goes on alone, both are off, the larger one comes back alone: its lifetime is no gain
    "one after the other": [
        (5000.0, None, None), (5001.0, 1.0, None), (2000.0, 0.0, "open"), *counted(steps(2001.0, 1.0, 8), 1.0), *low([0.0] * 4),
        (3004.0, 0.0, "open"), *counted(steps(3005.0, 1.0, 8), 1.0),
    ],
    "a dip within a dip": [
        (1500.0, None, None), (1501.0, 1.0, None), *low([501.0, 502.0, 0.0, 503.0, 504.0]), (1509.0, 8.0, None),
        (1510.0, 1.0, None),
    ],
    "one of two inverters, not back yet": [(1500.0, None, None), (1501.0, 1.0, None), (501.0, 0.0, "open"), (502.0, 1.0, None)],
    "the small inverter": [
        (1500.0, None, None), (1501.0, 1.0, None), *low([1451.0, 1452.0]), (1505.0, 4.0, None), (1506.0, 1.0, None),
    ],
    #  /|_/ it began again: what it shows by now was gained
    "reset": [(100.0, None, None), (4.0, 4.0, "reset"), *counted(steps(6.0, 2.0, 12), 2.0)],
    "reset, newest reading": [(100.0, None, None), (102.0, 2.0, None), (0.0, 0.0, "reset")],
    "reset, and it passes its old level": [
        (15.0, None, None), (15.5, 0.5, None), (0.5, 0.5, "reset"), *counted(steps(1.0, 0.5, 40), 0.5),
    ],
    #  a day counter of several inverters falls in steps at dusk, and begins again in the morning
    "dusk": [
        (15.0, None, None), (15.5, 0.5, None), (8.0, 0.0, "dip"), (0.0, 0.0, "reset"), *counted(steps(0.5, 0.5, 40), 0.5),
    ],
    #  a first value of 0 is no meter that gained its lifetime
    "begins with a dip": [
        (0.0, None, None), (0.0, 0.0, None), (5000.0, 0.0, "open"), (5000.5, 0.5, None), (5001.0, 0.5, None),
    ],
    #  a meter is set to another level: nobody knows what was gained
    "level set": [(100.0, None, None), (60.0, 0.0, "open"), *counted(steps(61.0, 1.0, 12), 1.0)],
    #  /|/ over the limit of its register or its digits
    "wrap of 16 bits": [(65500.0, None, None), (65520.0, 20.0, None), (4.0, 20.0, "wrap"), *counted(steps(24.0, 20.0, 12), 20.0)],
    "wrap of 32 bits": [(2.0**32 - 30, None, None), (2.0**32 - 10, 20.0, None), (10.0, 20.0, "wrap"), (30.0, 20.0, None)],
    "wrap of five digits": [(99980.0, None, None), (99990.0, 10.0, None), (5.0, 15.0, "wrap"), (15.0, 10.0, None)],
    "wrap of 16 bits in tenths": [
        (6552.6, None, None), (6553.3, 0.7, None), (0.4, 0.7, "wrap"), *counted(steps(1.1, 0.7, 12), 0.7),
    ],
    "wrap of 32 bits in hundredths": [
        (42949672.0, None, None), (42949672.5, 0.5, None), (0.04, 0.5, "wrap"), *counted(steps(0.54, 0.5, 12), 0.5),
    ],
    "wrap of a fast counter": [
        (200.0, None, None), (240.0, 40.0, None), (24.0, 40.0, "wrap"), (64.0, 40.0, None), (104.0, 40.0, None),
    ],
    #  close to a limit, but far more than it ever steps: a reset, no spike of 36 000
    "reset near a limit": [(64000.0, None, None), (64001.0, 1.0, None), (0.0, 0.0, "reset"), *counted(steps(1.0, 1.0, 12), 1.0)],
    "wrap after a dip": [
        (65500.0, None, None), (65520.0, 20.0, None), (65519.0, 0.0, "dip"), (3.0, 19.0, "wrap"), (23.0, 20.0, None),
    ],
    "below zero": [(-1.0, None, None), (-5.0, 0.0, "reset")],
}  # fmt: skip


def in_time(values: Sequence[float]) -> list[Reading]:
    return [Reading(n * SECONDS_10, value) for n, value in enumerate(values)]


def asked(rows: pa.Table) -> dict[str, list[Gain]]:
    """The view's gains by metric, in the order of time."""
    with duckdb.connect() as connection:
        connection.register("readings", rows)
        connection.execute(f"CREATE VIEW counter_deltas AS {COUNTER_DELTAS_SQL}")
        found = connection.sql("SELECT * FROM counter_deltas ORDER BY metric, event_time").to_arrow_table()
    assert found.column_names == ["device", "metric", "event_time", "value", "delta", "event", "pending"]
    gains: dict[str, list[Gain]] = {}
    for row in found.to_pylist():
        gains.setdefault(row["metric"], []).append(Gain(row["delta"], row["event"], row["pending"]))
    return gains


def rounded(gains: Sequence[Gain]) -> list[tuple[float | None, str | None, float]]:
    return [
        (None if gain.delta is None else round(gain.delta, 6), gain.event, round(gain.pending, 6)) for gain in gains
    ]


def total(gains: Sequence[Gain]) -> float:
    return math.fsum(gain.delta or 0.0 for gain in gains)


def pending(gains: Sequence[Gain]) -> float:
    return math.fsum(gain.pending for gain in gains)


@pytest.fixture(scope="module")
def gains() -> dict[str, list[Gain]]:
    """What the SQL says of all examples, the newest reading first, with a text and what is no number among them."""
    rows = reading_rows({name: in_time([value for value, _, _ in example])[::-1] for name, example in EXAMPLES.items()})
    odd = [{**rows.slice(0, 1).to_pylist()[0], "metric": "odd", "value": value} for value in (None, math.nan, math.inf)]
    return asked(pa.concat_tables([rows, pa.Table.from_pylist(odd, schema=rows.schema)]))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_counter_gains_what_it_counted(gains: dict[str, list[Gain]], name: str) -> None:
    example = EXAMPLES[name]
    wanted = [(delta if delta is None else round(delta, 6), event) for _, delta, event in example]
    assert [(delta, event) for delta, event, _ in rounded(gains[name])] == wanted
    assert rounded(gains_of(in_time([value for value, _, _ in example]))) == rounded(gains[name])


def test_what_is_no_number_is_no_counter(gains: dict[str, list[Gain]]) -> None:
    assert gains.keys() == EXAMPLES.keys()


def test_what_is_open_is_pending(gains: dict[str, list[Gain]]) -> None:
    assert [gain.pending for gain in gains["one of two inverters, not back yet"]] == [0.0, 0.0, 501.0, 0.0]
    assert pending(gains["one of two inverters"]) == pending(gains["reset"]) == pending(gains["long dip"]) == 0.0
    assert pending(gains["level set"]) == 60.0
    assert pending(gains["begins with a dip"]) == 5000.0


def test_a_day_counter_that_restarts_above_a_tenth_counts_from_midnight() -> None:
    """F02: after each reading nothing of the new day is lost."""
    cases = [json.loads(line) for line in Path("tests/data/field-cases.jsonl").read_text().splitlines()]
    case = next(case for case in cases if case["id"] == "F02-reset-above-tenth")
    messages = [json.loads(payload) for payload in case["payloads"]]
    readings = [Reading(message["ts"] * 1000, message["values"]["today"]["value"]) for message in messages]
    totals = [round(total(gains_of(readings[:count])), 6) for count in range(3, len(readings) + 1)]
    assert totals == [1.4, 3.3, 4.1, 4.9, 5.4]
    assert pending(gains_of(readings)) == 0.0


@pytest.mark.parametrize("restart", [0.0, 1.3, 2.5, 4.9, 6.0, 9.0])
@pytest.mark.parametrize("night_hours", [0, 9])
def test_whatever_a_day_counter_restarts_with_is_counted_or_pending(restart: float, night_hours: int) -> None:
    evening = [11.0 + 0.7 * n for n in range(4)]
    morning = [restart + 0.6 * n for n in range(4)]
    night = night_hours * 3600 * 1_000_000
    readings = in_time([*evening, *morning])
    readings = [
        Reading(micros + (night if n >= len(evening) else 0), value) for n, (micros, value) in enumerate(readings)
    ]
    for count in range(len(evening) + 1, len(readings) + 1):
        found = gains_of(readings[:count])
        truth = evening[-1] - evening[0] + morning[count - len(evening) - 1]
        assert total(found) <= truth + 1e-9
        assert truth <= total(found) + pending(found) + 1e-9
        assert pending(found) or total(found) == pytest.approx(truth)


class Fault(NamedTuple):
    """Some true counting, and then what goes wrong."""

    before: list[int]
    kind: str
    length: int
    share: float


class Meter:
    """A true meter that counts in halves, what is read of it, and its true gain at each reading.

    It has counted for a while before anything goes wrong, so its usual step is known.
    """

    def __init__(self, start: float, limit: float, faults: Sequence[Fault]) -> None:
        self.readings = [Reading(0, start)]
        self.truth, self.is_true = [0.0], [True]
        self.level, self.limit = start, limit
        for halves in (1, 2, 1, 1) * 5:
            self.count(halves / 2)
        for fault in faults:
            for halves in fault.before:
                self.count(halves / 2)
            is_deep = self.level > (1000 if fault.kind == "dip in a dip" else 100)
            if fault.kind == "silence":
                self.count(fault.length / 2, gaps=fault.length)
            elif fault.kind == "reset" and is_deep:
                self.level = 0.0
            elif is_deep:
                self.fail(fault.kind, fault.length, self.level * (1 - fault.share) + 1)
            self.count(0.5)

    def fail(self, kind: str, length: int, off: float) -> None:
        """`off` is missing: the meter is stuck, or counts on with the rest, or that rest fails in between too."""
        for number in range(length):
            is_stuck = kind == "dip" or (kind == "dip in a dip" and length / 3 <= number < 2 * length / 3)
            self.count(0.5, off=self.level + 1 if is_stuck else off)

    def count(self, step: float, *, off: float = 0.0, gaps: int = 1) -> None:
        self.level += step
        if self.level >= self.limit:
            self.level -= self.limit
        self.readings.append(Reading(self.readings[-1].micros + gaps * SECONDS_10, self.level - off))
        self.truth.append(self.truth[-1] + step)
        self.is_true.append(not off)


def faults(*kinds: str) -> st.SearchStrategy[list[Fault]]:
    fault = st.builds(
        Fault,
        before=st.lists(st.integers(0, 4), max_size=20),
        kind=st.sampled_from(kinds),
        length=st.integers(1, 30),
        share=st.sampled_from([0.0, 0.1, 0.3, 0.6]),
    )
    return st.lists(fault, min_size=1, max_size=6)


METERS = st.builds(
    Meter,
    start=st.sampled_from([0.0, 120.0, 1_500.0, 64_000.0, 4_000_000.0]),
    limit=st.just(math.inf),
    faults=faults("dip", "one off", "dip in a dip", "reset", "silence"),
)


@given(METERS, st.integers(5, 12))
@settings(max_examples=100)
def test_a_true_meter_stays_in_its_bounds_at_each_moment(meter: Meter, every: int) -> None:
    """A true level makes gains exact, or the rest is pending. In a dip they are at most 8 usual steps too large."""
    for count in [*range(5, len(meter.readings), every), len(meter.readings)]:
        found, truth = gains_of(meter.readings[:count]), meter.truth[count - 1]
        if meter.is_true[count - 1]:
            assert truth == pytest.approx(total(found)) or total(found) <= truth <= total(found) + pending(found)
        else:
            assert total(found) <= truth + 8 * 2


@given(METERS)
@settings(max_examples=200)
def test_a_true_meter_is_exact_in_the_end(meter: Meter) -> None:
    assert total(gains_of(meter.readings)) == pytest.approx(meter.truth[-1])


@given(faults("silence"), st.sampled_from([2.0**16, 2.0**32, 1e4, 1e6]), st.integers(13, 40))
def test_a_true_meter_that_wraps_is_exact_at_each_moment(silences: list[Fault], limit: float, below: int) -> None:
    meter = Meter(limit - below, limit, silences)
    for count in range(5, len(meter.readings) + 1):
        found = gains_of(meter.readings[:count])
        assert total(found) == pytest.approx(meter.truth[count - 1])
        assert pending(found) == 0.0


ANY = st.lists(
    st.builds(
        Reading,
        micros=st.integers(0, 60).map(lambda tenths: tenths * SECONDS_10 // 10) | st.integers(0, 10**12),
        value=st.sampled_from([0.0, 1.0, 2.0, 5.0, 95.0, 99.0, 100.0, 101.0, 250.0, 255.0, 65_530.0, 1e6])
        | st.floats(-1e6, 1e12, allow_subnormal=False),
    ),
    min_size=1,
    max_size=30,
)


@given(
    st.lists(ANY | METERS.map(lambda meter: meter.readings), min_size=1, max_size=8), st.randoms(use_true_random=False)
)
@settings(max_examples=10)
def test_sql_says_what_the_rule_says_in_any_order_of_arrival(counters: list[list[Reading]], random: Any) -> None:
    """Late readings and corrections included: what comes first does not matter."""
    arrived = {}
    for number, readings in enumerate(counters):
        distinct = list({reading.micros: reading for reading in readings}.values())
        arrived[str(number)] = random.sample(distinct, len(distinct))
    answered = asked(reading_rows(arrived))
    for name, readings in arrived.items():
        assert rounded(answered[name]) == rounded(gains_of(sorted(readings)))


@pytest.mark.parametrize("limit", [256, 1000, 4096, 10_000, 65_536, 65.536])
@pytest.mark.parametrize("share", [0.9, 0.97, 0.995])
@pytest.mark.parametrize("at_night", [True, False])
def test_a_day_that_ends_near_a_limit_is_no_wrap(limit: float, share: float, at_night: bool) -> None:
    """Of six days one ends close to a power of two or of ten; where nobody asks at night, a silence lies before the fall."""
    found, truth = [], 0.0
    for day, part in enumerate([0.5, 0.6, 1.0, 0.45, 0.7, 0.3]):
        values = [limit * share * part * min(max(hour - 6, 0) / 12, 1.0) for hour in range(24)]
        hours = [hour for hour in range(24) if at_night or 8 <= hour <= 20]
        found += [Reading((day * 24 + hour) * 360 * SECONDS_10, values[hour]) for hour in hours]
        truth += values[-1] - (values[hours[0]] if day == 0 else 0.0)
    assert total(gains_of(found)) == pytest.approx(truth)
    [answered] = asked(reading_rows({"day": found})).values()
    assert rounded(answered) == rounded(gains_of(found))


def test_the_total_of_a_dark_day_between_bright_ones_is_pending() -> None:
    """The bright day passes the dark one's total within a few steps, as the end of a dip does."""
    gains = gains_of(in_time([0, 10, 20, 30, 0, 0.1, 0.2, 0.3, 0, 10, 20]))
    assert (total(gains), pending(gains)) == (pytest.approx(50.0), pytest.approx(0.3))


def test_a_retained_message_is_no_level_of_now() -> None:
    """The broker replays it at any time: an old total would be a dip, and its return a gain."""
    rows = reading_rows({"total": [Reading(n * SECONDS_10, float(level)) for n, level in enumerate((10, 11, 3, 12))]})
    flags = pa.array([None, ["no_identity"], ["retained"], []], pa.list_(pa.string()))
    found = asked(rows.set_column(rows.column_names.index("flags"), "flags", flags))["total"]
    assert [gain.delta for gain in found] == [None, 1.0, 1.0]
