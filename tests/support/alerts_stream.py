"""What alerts on streams and the canary are tried with."""

from tests.support.promtool import (
    HOUR,
    OLD,
    Case,
    Key,
    Wave,
    always,
    counter,
    key,
    steps,
)


def stream(lag_seconds: Wave, rows: Wave) -> dict[Key, Wave]:
    return {
        key(
            "tidegate_kafka_lag_seconds", "monitor", consumergroup="tidegate-land", topic="telemetry.readings"
        ): lag_seconds,
        key("tidegate_stream_rows_total", "stream", table="readings"): rows,
        key("tidegate_stream_rows_total", "stream", table="rollup_1m"): counter(1),
    }


def sql_stream(lag_seconds: Wave, group: str = "tidegate-stream-hot") -> dict[Key, Wave]:
    return {
        key("tidegate_kafka_lag_seconds", "monitor", consumergroup=group, topic="telemetry.readings"): lag_seconds,
    }


def identities(fill: Wave) -> dict[Key, Wave]:
    return {
        key("tidegate_stream_identities_fill_ratio", "stream", kind="point"): fill,
        key("tidegate_stream_identities_fill_ratio", "stream", kind="range"): always(0.1),
    }


def canary(published: Wave, seen: Wave, started: float = OLD) -> dict[Key, Wave]:
    return {
        key("tidegate_canary_published_total", "canary"): published,
        key("tidegate_canary_seen_total", "canary"): seen,
        key("process_start_time_seconds", "canary"): always(started),
    }


CASES: list[Case] = [
    Case("TidegateStreamStalled", "it hangs", stream(counter(1), counter(20, 1000, since=10**6)), {60: 0, 195: 1}),
    Case(
        "TidegateStreamStalled",
        "its process is gone",
        stream(
            steps((0, 0.0), *((second, float(second)) for second in range(60, 600, 15))), steps((0, 5.0), (60, None))
        ),
        {60: 0, 330: 1},
    ),
    Case("TidegateStreamStalled", "it catches up an hour", stream(always(HOUR), counter(500)), {60: 0, 300: 0, 900: 0}),
    Case(
        "TidegateStreamStalled",
        "a SQL-defined stream lags, and nobody sends anything",
        {
            **stream(always(0), always(900)),
            key("tidegate_kafka_lag_seconds", "monitor", consumergroup="tidegate-stream-hot", topic="t"): counter(1),
        },
        {300: 0, 900: 0},
    ),
    Case("TidegateIdentitiesFull", "points fill up", identities(steps((0, 0.5), (300, 0.81))), {285: 0, 330: 1}),
    Case("TidegateIdentitiesFull", "there is room", identities(always(0.79)), {15: 0, 900: 0}),
    Case("TidegateSqlStreamLags", "it is stopped", sql_stream(counter(1)), {285: 0, 630: 1}),
    Case("TidegateSqlStreamLags", "it keeps up", sql_stream(always(20)), {900: 0}),
    Case("TidegateSqlStreamLags", "a program of theirs lags", sql_stream(always(HOUR), "my-app"), {900: 0}),
    Case("TidegateSqlStreamLags", "only the landing lags", stream(always(HOUR), always(0)), {900: 0}),
    Case("TidegateStreamStalled", "nothing comes in", stream(always(0), always(0)), {300: 0, 900: 0}),
    Case(
        "TidegateStreamStalled",
        "two restarts of 45 s in a row",
        stream(
            lambda second: float(second - 60) if 60 <= second < 210 else 0.3,
            steps(
                (0, 9000.0),
                (60, None),
                (105, 0.0),
                (120, 800.0),
                (135, None),
                (180, 0.0),
                (195, 0.0),
                (210, 900.0),
                (225, 1200.0),
            ),
        ),
        {105: 0, 180: 0, 210: 0, 300: 0},
    ),
    Case(
        "TidegateCanaryMissing",
        "none comes back",
        canary(counter(0.2), lambda second: 0.2 * min(second, 300)),
        {300: 0, 405: 1},
    ),
    Case("TidegateCanaryMissing", "all come back", canary(counter(0.2), counter(0.2)), {60: 0, 300: 0, 900: 0}),
    Case(
        "TidegateCanaryMissing",
        "it starts before the stream",
        canary(counter(0.2), counter(0.2, since=120), 1.0),
        {60: 0, 120: 0, 180: 0, 300: 0},
    ),
    Case("TidegateCanaryMissing", "none ever came back", canary(counter(0.2), always(0), 1.0), {150: 0, 240: 1}),
]
