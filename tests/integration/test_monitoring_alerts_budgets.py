"""Burn rates of the budgets fire on fast and on slow burns alone, in real promtool."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.promtool import DAY, HOUR, Key, Wave, counter, key, rules_of

pytestmark = pytest.mark.promise("P8")


def budget(in_time: Wave, published: Wave, refused: Wave, received: Wave) -> dict[Key, Wave]:
    return {
        key("tidegate_canary_published_total", "canary"): published,
        key("tidegate_end_to_end_latency_seconds_bucket", "canary", le="2.5"): in_time,
        key("tidegate_end_to_end_latency_seconds_bucket", "canary", le="+Inf"): published,
        key("tidegate_gateway_messages_received_total", "gateway", qos="1"): received,
        key("tidegate_gateway_messages_rejected_total", "gateway", reason="no_route"): refused,
    }


def burning(bad_share: float, *, since: int, until: int = 10**9, bad_before: float = 0.0) -> dict[Key, Wave]:
    """A reading each 5 s and 20 messages a second, of which a share is bad in a span of time."""

    def bad(second: int) -> float:
        return bad_before * second + bad_share * max(0, min(second, until) - since)

    return budget(lambda second: (second - bad(second)) / 5, counter(0.2), lambda second: 20 * bad(second), counter(20))


def burns(title: str, told: Mapping[Key, Wave], step: int, expected: Mapping[int, str], name: str) -> dict[str, Any]:
    end = max(expected)
    series = {each: [wave(second) for second in range(0, end + 1, step)] for each, wave in told.items()}
    expr = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
    return {
        "name": title,
        "interval": f"{step}s",
        "series": series,
        "about": name,
        "promql_expr_test": [
            {
                "expr": f"count by (window) ({expr})",
                "eval_time": f"{at}s",
                "exp_samples": [{"labels": f'{{window="{window}"}}', "value": 1} for window in windows.split()],
            }
            for at, windows in expected.items()
        ],
    }


FRESHNESS, VALIDITY = "TidegateFreshnessBudgetBurns", "TidegateValidityBudgetBurns"
LATER = 5 * HOUR
QUICK = [
    burns("all good", burning(0, since=0), 60, {600: "", 2 * HOUR: ""}, FRESHNESS),
    burns(
        "a stream that stands still",
        burning(1, since=LATER),
        60,
        {LATER: "", LATER + 300: "", LATER + 600: "1h", LATER + 2400: "1h 6h"},
        FRESHNESS,
    ),
    burns(
        "it recovers",
        burning(1, since=LATER, until=LATER + 900),
        60,
        {LATER + 900: "1h", LATER + 1800: "", 3 * LATER: ""},
        FRESHNESS,
    ),
    burns("two minutes late", burning(1, since=HOUR, until=HOUR + 120), 60, {HOUR + 180: "", 2 * HOUR: ""}, FRESHNESS),
    burns(
        "late during the first minutes",
        burning(1, since=0, until=180),
        60,
        {180: "", 600: "", 1800: "", 2400: "", HOUR: ""},
        FRESHNESS,
    ),
    burns("no message is good", burning(1, since=HOUR), 60, {HOUR: "", HOUR + 1500: "1h"}, VALIDITY),
    burns(
        "a flood of ten times as many, all of them bad",
        budget(
            counter(0.2),
            counter(0.2),
            counter(200, since=HOUR),
            lambda second: 20.0 * second + 200 * max(0, second - HOUR),
        ),
        60,
        {HOUR: "", HOUR + 600: "1h"},
        VALIDITY,
    ),
    burns("all messages are good", burning(0, since=0), 60, {2 * HOUR: ""}, VALIDITY),
    burns(
        "one of two messages, at four an hour: too few",
        budget(counter(0.2), counter(0.2), counter(2 / HOUR), counter(4 / HOUR)),
        60,
        {2 * HOUR: ""},
        VALIDITY,
    ),
    burns(
        "a fleet at 0.33 messages a second beside a canary: 40 % are refused",
        {
            **budget(counter(0.2), counter(0.2), counter(0.132, since=HOUR), counter(0.33 + 0.5)),
            key("tidegate_canary_acknowledged_total", "canary"): counter(0.5),
        },
        60,
        {HOUR: "", 2 * HOUR: "1h"},
        VALIDITY,
    ),
    burns("1.4 % wrong, as a demo fleet", burning(0, since=0, bad_before=0.014), 60, {600: "", 2 * HOUR: ""}, VALIDITY),
]
LONG = [
    burns("1.5 % late for three days", burning(0.015, since=0), 150, {6 * HOUR: "", 3 * DAY: "3d"}, FRESHNESS),
    burns(
        "0.5 % late for three days, and two restarts",
        burning(1, since=DAY, until=DAY + 240, bad_before=0.005),
        150,
        {DAY + 600: "", 3 * DAY: ""},
        FRESHNESS,
    ),
    burns("8 % late for hours", burning(0.08, since=DAY), 150, {DAY: "", DAY + 6 * HOUR: "6h"}, FRESHNESS),
    burns("3 % refused for three days", burning(0.03, since=0), 150, {3 * DAY: "3d"}, VALIDITY),
    burns("1.4 % refused, as by a demo fleet", burning(0.014, since=0), 150, {3 * DAY: ""}, VALIDITY),
]


@pytest.mark.parametrize(("tests", "every"), [(QUICK, "60s"), (LONG, "150s")], ids=["quick", "long"])
def test_burn_rates_fire_on_fast_and_on_slow_burns_alone(
    tests: list[dict[str, Any]], every: str, promtool_test: Any, as_input_series: Any
) -> None:
    pairs = []
    for name, words in ((FRESHNESS, ("freshness", "Freshness")), (VALIDITY, ("validity", "Validity"))):
        chosen = [
            {
                **{word: value for word, value in test.items() if word not in ("series", "about")},
                "input_series": as_input_series(test["series"]),
            }
            for test in tests
            if test["about"] == name
        ]
        pairs.append((rules_of(*words), {"evaluation_interval": every, "tests": chosen}))
    promtool_test(*pairs)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires = {test["about"] for test in QUICK + LONG if any(each["exp_samples"] for each in test["promql_expr_test"])}
    quiet = {
        test["about"] for test in QUICK + LONG if not any(each["exp_samples"] for each in test["promql_expr_test"])
    }
    assert fires == quiet == {FRESHNESS, VALIDITY}
