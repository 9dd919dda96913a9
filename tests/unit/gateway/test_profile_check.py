"""One profile over messages: type, unit, range, required, step, stuck; reject, salvage, flag."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.shape import Decoded, RouteMatch
from gateway.profiles.check import CompiledProfile
from gateway.profiles.check_memory import TrackMemory
from gateway.profiles.model import MetricRules, Profile
from gateway.profiles.rule import MetricRule
from ingest.contract.dead_letter import Reject
from ingest.contract.reading import Reading
from ingest.contract.reasons import Reason

NATIVE = RouteMatch("native", "dev-1", "readings")
MAPPED = RouteMatch("json", "dev-1", "state")
T0 = 1_790_000_000_000_000
SECOND = 1_000_000


def compiled(policy: str = "salvage", unknown: str = "keep", **metrics: dict[str, Any]) -> CompiledProfile:
    given_values = {"name": "p", "version": 2, "policy": policy, "unknown_metrics": unknown, "metrics": metrics}
    return CompiledProfile(Profile.model_validate(given_values))


class Device:
    """Sends messages through one profile, a second apart."""

    def __init__(self, profile: CompiledProfile, match: RouteMatch = NATIVE) -> None:
        self.profile, self.match, self.memory, self.number = profile, match, TrackMemory(), 0
        self.refused: Reject | None = None
        self.decoded = Decoded("dev-1", [])

    def send(self, *readings: Reading) -> list[str]:
        """What became of each: `ok`, a flag, or `-reason`; `!reason` where the whole message was refused."""
        self.number += 1
        self.decoded = Decoded("dev-1", list(readings))
        self.refused = self.profile.check(self.decoded, self.match, T0 + self.number * SECOND, self.number, self.memory)
        if self.refused is not None:
            return [f"!{self.refused.reason}"]
        kept = [(reading.flags or ["ok"])[-1] for reading in self.decoded.readings]
        return [*kept, *(f"-{reject.reason}" for reject in self.decoded.rejects)]

    def values(self, *values: float) -> list[str]:
        return [word for value in values for word in self.send(Reading("t", float(value)))]


@pytest.mark.parametrize(
    ("rules", "reading", "told"),
    [
        ({"type": "number"}, Reading("t", 1.5), "ok"),
        ({"type": "number"}, Reading("t", 1.0, "true"), "-wrong_type"),
        ({"type": "number"}, Reading("t", None, "1.5"), "-wrong_type"),
        ({"type": "number"}, Reading("t", 9e18, "9000000000000000001", flags=["beyond_double"]), "beyond_double"),
        ({"type": "integer"}, Reading("t", 3.0), "ok"),
        ({"type": "integer"}, Reading("t", 3.5), "-wrong_type"),
        ({"type": "boolean"}, Reading("t", 0.0, "false"), "ok"),
        ({"type": "boolean"}, Reading("t", 0.0), "-wrong_type"),
        ({"type": "text"}, Reading("t", None, "on"), "ok"),
        ({"type": "text"}, Reading("t", 1.0), "-wrong_type"),
        ({"values": ["ON", "OFF"]}, Reading("t", None, "ON"), "ok"),
        ({"values": ["ON", "OFF"]}, Reading("t", None, "on"), "-out_of_range"),
        ({"values": ["ON", "OFF"]}, Reading("t", 1.0, "true"), "-wrong_type"),
        ({"min": 0, "max": 10}, Reading("t", 0.0), "ok"),
        ({"min": 0, "max": 10}, Reading("t", 10.0), "ok"),
        ({"min": 0, "max": 10}, Reading("t", math.nextafter(10, 11)), "-out_of_range"),
        ({"min": 0}, Reading("t", -0.0), "ok"),
        ({"max": 5}, Reading("t", None, "5"), "-wrong_type"),
        ({}, Reading("t", None, "anything"), "ok"),
        ({"unit": "°C"}, Reading("t", 1.0, unit="Cel"), "ok"),
        ({"unit": "°C"}, Reading("t", 1.0, unit="°F"), "-unit_mismatch"),
        ({"unit": "widgets"}, Reading("t", 1.0, unit="widgets"), "ok"),
        ({"unit": "°C", "spellings": {"C": "°C"}}, Reading("t", 1.0, unit="C"), "ok"),
        ({"convert_to": "°C"}, Reading("t", 50.0, unit="°F"), "unit_converted"),
        ({"convert_to": "°C"}, Reading("t", 50.0), "-unit_mismatch"),
        ({"convert_to": "°C"}, Reading("t", 50.0, unit="hPa"), "-unit_mismatch"),
        ({"convert_to": "°C"}, Reading("t", 50.0, unit="C"), "-unit_mismatch"),
        ({"convert_to": "°C", "spellings": {"C": "°C"}}, Reading("t", 50.0, unit="C"), "ok"),
        ({"unit": "°F", "convert_to": "°C", "max": 60}, Reading("t", 212.0), "-out_of_range"),
        ({"unit": "°F", "convert_to": "°C", "max": 60}, Reading("t", 100.0), "unit_converted"),
        ({"convert_to": "J"}, Reading("t", 1.7e308, unit="kWh"), "-bad_number"),
    ],
)
def test_a_reading_by_itself(rules: dict[str, Any], reading: Reading, told: str) -> None:
    assert Device(compiled(t=rules)).send(reading) == [told]


def test_the_unit_stored_is_the_one_of_the_value() -> None:
    device = Device(compiled(t={"unit": "°F", "convert_to": "°C"}, h={"unit": "%"}))
    device.send(Reading("t", 68.0), Reading("h", 40.0))
    assert [(one.value, one.unit) for one in device.decoded.readings] == [(20.0, "°C"), (40.0, "%")]
    kept = Device(compiled(t={"unit": "°C"}))
    kept.send(Reading("t", 20.0, unit="Cel"))
    assert kept.decoded.readings[0].unit == "Cel", "a unit that the payload names is kept as given"


def test_a_refusal_says_what_where_and_by_which_profile() -> None:
    device = Device(compiled(t={"unit": "°F", "convert_to": "°C", "min": -40, "max": 60}))
    device.send(Reading("t", 212.0), Reading("u", 1.0))
    [reject] = device.decoded.rejects
    assert reject == Reject(
        Reason.OUT_OF_RANGE, "$.values.t", "212 °F = 100 °C", "a number from -40 to 60 °C", profile="p@2"
    )
    assert [one.metric for one in device.decoded.readings] == ["u"]


def test_reject_refuses_the_whole_message_and_flag_stores_it() -> None:
    assert Device(compiled("reject", t={"max": 1})).send(Reading("u", 1.0), Reading("t", 2.0)) == ["!out_of_range"]
    assert Device(compiled("flag", t={"max": 1})).send(Reading("u", 1.0), Reading("t", 2.0)) == ["ok", "out_of_range"]
    own = compiled("reject", t={"max": 1, "on": {"out_of_range": "flag"}})
    assert Device(own).send(Reading("t", 2.0)) == ["out_of_range"]


@pytest.mark.parametrize(
    ("unknown", "told"),
    [("keep", "ok"), ("flag", "unknown_metric"), ("salvage", "-unknown_metric"), ("reject", "!unknown_metric")],
)
def test_metrics_that_the_profile_does_not_name(unknown: str, told: str) -> None:
    assert Device(compiled(unknown=unknown, t={})).send(Reading("x", 1.0)) == [told]


def test_metrics_by_pattern_the_most_specific_first() -> None:
    profile = compiled(**{"*.T": {"max": 1}, "a.*": {"max": 2}, "a.b.T": {"max": 3}, "*": {"max": 0}})
    for metric, limit in (("x.T", 1), ("a.x", 2), ("a.b.T", 3), ("other", 0)):
        rule = profile.rule_of(metric)
        assert rule is not None
        assert rule.rules.max == limit, metric


def test_required_metrics_of_a_message() -> None:
    assert Device(compiled(t={"required": True})).send(Reading("u", 1.0)) == ["ok", "-missing_field"]
    assert Device(compiled("reject", t={"required": True})).send(Reading("u", 1.0)) == ["!missing_field"]
    assert Device(compiled(t={"required": True})).send() == [], "a message that tells nothing lacks nothing"
    flagged = Device(compiled("flag", t={"required": True}, s={"required": True}))
    flagged.send(Reading("u", 1.0))
    assert flagged.decoded.flags == ["missing_field"]
    refused = Device(compiled(t={"required": True, "max": 1}))
    assert refused.send(Reading("t", 2.0)) == ["-out_of_range"], "refused is not missing"


@pytest.mark.parametrize(
    ("path", "is_there"), [("$.values.t", True), ("$.values.t.value", True), ("$.values.temp", False)]
)
def test_what_the_decoder_refused_is_not_missing_too(path: str, is_there: bool) -> None:
    decoded = Decoded("dev-1", [Reading("u", 1.0)], [Reject(Reason.BAD_NUMBER, path)])
    compiled(t={"required": True}).check(decoded, NATIVE, T0, 1, TrackMemory())
    assert [one.reason for one in decoded.rejects] == ["bad_number", *([] if is_there else ["missing_field"])]


def test_each_item_of_a_native_batch_is_asked_for_what_is_required() -> None:
    device = Device(compiled(t={"required": True, "max": 5}))
    device.send(Reading("t", 1.0), Reading("u", 1.0, index=1), Reading("t", 9.0, index=2))
    assert [(one.reason, one.path) for one in device.decoded.rejects] == [
        ("out_of_range", "$[2].values.t"),
        ("missing_field", "$[1].values.t"),
    ]
    counted = [Reading(name, 1.0, message_id=f"bs:1:{seq}", boot=1, seq=seq) for seq, name in ((6, "t"), (7, "u"))]
    device.send(*counted)
    assert device.decoded.rejects[0].path == "$[?@.boot==1 && @.seq==7].values.t"


@pytest.mark.parametrize(
    ("metric", "path"),
    [("t", "$.t"), ("DS18B20-1.Temperature", "$.DS18B20-1.Temperature"), ("switch:0", '$["switch:0"]')],
)
def test_paths_of_other_formats_are_the_metric_s_name(metric: str, path: str) -> None:
    device = Device(compiled(**{metric: {"max": 1}}), MAPPED)
    device.send(Reading(metric, 2.0))
    assert device.decoded.rejects[0].path == path


# Checks that look back.


def test_a_spike_costs_itself_and_a_new_level_costs_one() -> None:
    assert Device(compiled(t={"max_step": 5})).values(20, 24, 85, 24, 25) == ["ok", "ok", "-step_exceeded", "ok", "ok"]
    assert Device(compiled(t={"max_step": 5})).values(20, 50, 51, 20) == [
        "ok",
        "-step_exceeded",
        "ok",
        "-step_exceeded",
    ]


def test_a_step_may_be_limited_per_second() -> None:
    device = Device(compiled(t={"max_step_per_second": 0.5}))
    assert device.send(Reading("t", 20.0, time_us=T0)) == ["ok"]
    assert device.send(Reading("t", 25.0, time_us=T0 + 10 * SECOND)) == ["ok"]
    assert device.send(Reading("t", 26.0, time_us=T0 + 11 * SECOND)) == ["-step_exceeded"]
    [reject] = device.decoded.rejects
    assert (reject.got, reject.wanted) == ("26 after 25", "a step of at most 0.5 per second")


def test_binary_fractions_are_no_step() -> None:
    assert Device(compiled(t={"max_step": 0.2})).values(0.9, 1.1, 1.3, 1.5, 1.3) == ["ok"] * 5


def test_stuck_after_so_many_equal_values_until_it_changes() -> None:
    told = Device(compiled("flag", t={"stuck_count": 3})).values(7, 7, 7, 7, 8, 7)
    assert told == ["ok", "ok", "stuck", "stuck", "ok", "ok"]


def test_stuck_after_so_long_also_for_texts() -> None:
    device = Device(compiled(t={"stuck_seconds": 60}))
    assert device.send(Reading("t", None, "ON", time_us=T0)) == ["ok"]
    assert device.send(Reading("t", None, "ON", time_us=T0 + 59 * SECOND)) == ["ok"]
    assert device.send(Reading("t", None, "ON", time_us=T0 + 60 * SECOND)) == ["-stuck"]
    assert device.send(Reading("t", None, "OFF", time_us=T0 + 61 * SECOND)) == ["ok"]


def test_a_batch_is_compared_in_order_of_time_though_it_stands_newest_first() -> None:
    readings = [Reading("t", 20.0 + n, time_us=T0 + n * SECOND, index=9 - n) for n in reversed(range(10))]
    assert Device(compiled(t={"max_step": 1.5})).send(*readings) == ["ok"] * 10
    readings[4].value = 90.0
    told = Device(compiled(t={"max_step": 2.5})).send(*readings)
    assert sorted(told) == ["-step_exceeded", *["ok"] * 9], "the spike alone"


def test_a_copy_and_a_late_reading_change_nothing() -> None:
    device = Device(compiled(t={"max_step": 5, "stuck_count": 3}))
    first = (Reading("t", 20.0, time_us=T0), Reading("t", 24.0, time_us=T0 + SECOND))
    assert [device.send(one) for one in first] == [["ok"], ["ok"]]
    for _ in range(5):
        assert device.send(Reading("t", 24.0, time_us=T0 + SECOND)) == ["ok"], "a copy is not stuck"
        assert device.send(Reading("t", 20.0, time_us=T0)) == ["ok"]
        assert device.send(Reading("t", 90.0, time_us=T0 - SECOND)) == ["ok"], "late: not compared"
    assert device.send(Reading("t", 25.0, time_us=T0 + 2 * SECOND)) == ["ok"]
    assert device.send(Reading("t", 90.0, time_us=T0 + 3 * SECOND)) == ["-step_exceeded"]


def test_a_clock_set_back_is_a_new_beginning_after_an_hour() -> None:
    profile, memory = compiled(t={"max_step": 5}), TrackMemory()

    def send(value: float, time_us: int, received_us: int) -> list[str]:
        decoded = Decoded("dev-1", [Reading("t", value, time_us=time_us)])
        profile.check(decoded, NATIVE, received_us, 1, memory)
        return [one.reason for one in decoded.rejects]

    hour = 3600 * SECOND
    assert send(20.0, T0, T0) == []
    assert send(90.0, T0 - 10 * hour, T0 + SECOND) == [], "late"
    assert send(90.0, T0 - 9 * hour, T0 + hour) == [], "the new beginning"
    assert send(20.0, T0 - 8 * hour, T0 + hour + SECOND) == ["step_exceeded"], "and compared from there"


def test_a_message_refused_as_a_whole_is_seen_but_nothing_of_it_passed() -> None:
    device = Device(compiled("reject", t={"max_step": 5}, u={"max_step": 5}))
    assert device.send(Reading("t", 20.0), Reading("u", 20.0)) == ["ok", "ok"]
    assert device.send(Reading("u", 24.0), Reading("t", 90.0)) == ["!step_exceeded"]
    assert device.send(Reading("u", 15.0), Reading("t", 24.0)) == ["ok", "ok"], "u is within 5 of what was stored"


def test_unacknowledged_messages_are_judged_again_as_the_first_time() -> None:
    device = Device(compiled(t={"max_step": 5, "stuck_count": 3}))
    assert device.values(20, 21) == ["ok", "ok"]
    device.memory.acknowledged(2)
    values = (21, 85, 21, 50, 51)
    first = device.values(*values)
    device.memory.roll_back()
    assert device.values(*values) == first
    device.memory.roll_back()
    assert device.values(21, 21) == ["ok", "-stuck"], "two and three in a row: nothing of the others is left"
    device.memory.roll_back()
    assert device.values(24, 28) == ["ok", "ok"]
    device.memory.acknowledged(device.number - 1)
    device.memory.roll_back()
    assert device.values(20) == ["ok"], "within 5 of the 24 that was acknowledged; the 28 is undone"
    assert device.values(28) == ["-step_exceeded"]


def test_memory_is_bounded_by_the_least_recently_seen() -> None:
    profile, memory = compiled(t={"max_step": 5}), TrackMemory(max_tracks=10, max_undo=20)
    for number in range(100):
        decoded = Decoded(f"dev-{number}", [Reading("t", 1.0)])
        profile.check(decoded, NATIVE, T0, number, memory)
    assert len(memory) == 10
    memory.roll_back()
    assert len(memory) <= 20


VALUES = st.one_of(st.floats(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 10.0, 1e300]))
UNITS = st.sampled_from([None, "°C", "°F", "K", "Cel", "hPa", "C", ""])


@given(
    st.lists(st.tuples(VALUES, UNITS), max_size=8),
    st.sampled_from(["reject", "salvage", "flag"]),
    st.booleans(),
)
def test_nothing_passes_that_is_no_number_or_out_of_range(
    sent: list[tuple[float, str | None]], policy: str, converts: bool
) -> None:
    rules = {"min": -10, "max": 10, "unit": "°C"} | ({"convert_to": "°C"} if converts else {})
    device = Device(compiled(policy, t=rules))
    device.send(*(Reading("t", value, unit=unit) for value, unit in sent))
    if device.refused is not None:
        assert policy == "reject" or not all(math.isfinite(value) for value, _ in sent)
        return
    assert len(device.decoded.readings) + len(device.decoded.rejects) == len(sent), "nothing is lost between the two"
    for reading in device.decoded.readings:
        assert reading.value is not None
        assert math.isfinite(reading.value)
        is_clean = not set(reading.flags or ()) & {"out_of_range", "unit_mismatch"}
        assert is_clean is (-10 <= reading.value <= 10 and reading.unit in ("°C", "Cel"))
        assert is_clean or policy == "flag"


class _Thorough(CompiledProfile):
    """The same profile without the short way."""

    def _passes(self, readings: list[Reading]) -> bool:
        return False


SENT = st.lists(
    st.builds(
        Reading,
        metric=st.sampled_from(["t", "u", "e", "c", "x.1"]),
        value=st.sampled_from([None, 0.0, 5.0, 10.0, 11.0, math.inf]),
        text=st.sampled_from([None, "true", "ON"]),
        unit=st.sampled_from([None, "°C", "Cel", "°F"]),
        index=st.sampled_from([0, 0, 0, 1]),
        message_id=st.sampled_from([None, None, "bs:1:1"]),
    ),
    max_size=4,
)


@given(st.lists(SENT, max_size=4), st.sampled_from(["salvage", "flag", "reject"]), st.sampled_from(["keep", "flag"]))
def test_the_short_way_says_what_the_long_one_says(messages: list[list[Reading]], policy: str, unknown: str) -> None:
    profile = compiled(
        policy,
        unknown,
        **{
            "t": {"max": 10, "unit": "°C", "required": True},
            "u": {"max_step": 5},
            "e": {"values": ["ON"]},
            "c": {"convert_to": "°C", "unit": "°C"},
            "x.*": {"min": 0},
        },
    ).profile
    short, thorough = Device(CompiledProfile(profile)), Device(_Thorough(profile))
    for readings in messages:
        copies = [msgspec.structs.replace(one) for one in readings]
        assert (short.send(*readings), short.refused) == (thorough.send(*copies), thorough.refused)
        if short.refused is None:
            assert short.decoded == thorough.decoded


class _RulesOfTomorrow(MetricRules):
    """A rule whose author did not think of the fast path."""

    odd_only: bool = False


def test_a_rule_with_a_field_that_the_fast_path_does_not_know_takes_the_slow_path() -> None:
    profile = Profile.model_validate({"name": "p", "version": 1, "metrics": {"t": {}}})
    assert MetricRule(profile, _RulesOfTomorrow(min=0.0, max=10.0)).is_simple
    assert not MetricRule(profile, _RulesOfTomorrow(min=0.0, max=10.0, odd_only=True)).is_simple
    assert not MetricRule(profile, MetricRules(unit="°F", convert_to="°C")).is_simple
    assert not MetricRule(profile, MetricRules(values=("ON", "OFF"))).is_simple
