"""Each alert fires on a bad series and not on a good one, in real promtool and in the monitor's own check alike."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest

from ingest.contract.topics import LAND_GROUP
from monitoring.alerts.catalog import ALERTS
from monitoring.alerts.catalog_stream import LANDING
from monitoring.alerts.model import Alert
from monitoring.alerts.rules import rule_file
from monitoring.alerts.signals import Either, Happened, Signal
from monitoring.settings import MonitoringSettings

STEP = 15
HOUR, DAY = 3600, 86400
OLD = -1_000_000.0
"""Start of a process that has been running for days; promtool's clock begins at 0."""

Wave = Callable[[int], float | None]
Key = tuple[str, tuple[tuple[str, str], ...]]


def key(metric: str, job: str, **labels: str) -> Key:
    """A series of one part."""
    return metric, tuple(sorted({**labels, "job": f"tidegate-{job}", "instance": f"{job}:1"}.items()))


def steps(*parts: tuple[int, float | None]) -> Wave:
    """(from second, value) pairs in order; before the first there is nothing."""

    def wave(second: int) -> float | None:
        found = None
        for since, value in parts:
            if second >= since:
                found = value
        return found

    return wave


def always(value: float) -> Wave:
    return lambda _: value


def counter(per_second: float, start: float = 0.0, *, since: int = 0) -> Wave:
    return lambda second: start + per_second * max(0, second - since)


@dataclass(frozen=True)
class Case:
    """What is told, and how many alerts of the name fire at which second."""

    alert: str
    title: str
    told: Mapping[Key, Wave]
    firing: Mapping[int, int] = field(default_factory=dict)

    @property
    def seconds(self) -> int:
        return max(self.firing)

    def series(self) -> dict[Key, list[float | None]]:
        return {each: [wave(second) for second in range(0, self.seconds + 1, STEP)] for each, wave in self.told.items()}


def gauge(name: str, metric: str, job: str, *, good: float, bad: float, seconds: int, **labels: str) -> list[Case]:
    """Good, then bad from 120 s on, then good again for long."""
    first = 120 + -(-seconds // STEP) * STEP
    there = key(metric, job, **labels)
    old = {key("process_start_time_seconds", job): always(OLD)}
    fired = next(alert for alert in ALERTS if alert.name == name and alert.for_seconds == seconds)
    end = first + 300 + fired.keep_firing_seconds
    return [
        Case(
            name,
            "bad",
            {there: steps((0, good), (120, bad), (first + 240, good)), **old},
            {105: 0, first + 30: 1, end: 0},
        ),
        Case(name, "good", {there: always(good), **old}, {60: 0, 600: 0, 1800: 0}),
    ]


def target(name: str, job: str, *, seconds: int) -> list[Case]:
    up = key("up", job)
    return [
        Case(name, f"{job} is down", {up: steps((0, 1.0), (60, 0.0))}, {45: 0, 60 + seconds - 15: 0, 75 + seconds: 1}),
        Case(
            name,
            f"{job} restarts",
            {up: steps((0, 1.0), (60, 0.0), (120, 1.0), (180, 0.0), (240, 1.0))},
            {135: 0, 255: 0, 600: 0},
        ),
        Case(
            name,
            f"{job} starts slowly, and the monitor before it",
            {up: steps((0, 0.0), (240, 1.0)), key("process_start_time_seconds", "monitor"): always(1)},
            {60: 0, 150: 0, 255: 0, 600: 0},
        ),
        Case(
            name,
            f"{job} never starts",
            {up: always(0), key("process_start_time_seconds", "monitor"): always(1)},
            {300: 0, 450: 1},
        ),
    ]


def shares(name: str, part: Callable[[float], Mapping[Key, Wave]], *, good: float, bad: float, at: int) -> list[Case]:
    return [
        Case(name, "bad", part(bad), {15: 0, at: 1}),
        Case(name, "good", part(good), {60: 0, 300: 0, at: 0, 2 * at: 0}),
    ]


def messages(share: float, per_second: float = 20) -> dict[Key, Wave]:
    """A gateway that refuses a share of what it receives, whole messages only, as a fleet's faults fall."""

    def refused(second: int) -> float:
        return float(int(share * per_second * second))

    return {
        key("tidegate_gateway_messages_received_total", "gateway", qos="1"): counter(per_second),
        key("tidegate_gateway_messages_received_total", "gateway", qos="0"): always(0),
        key("tidegate_gateway_messages_rejected_total", "gateway", reason="invalid_json"): refused,
        key("tidegate_gateway_messages_rejected_total", "gateway", reason="timestamp_future"): always(0),
    }


def late(share: float) -> dict[Key, Wave]:
    return {
        key("tidegate_ledger_late_messages", "monitor"): always(1000 * share),
        key("tidegate_ledger_messages", "monitor", outcome="stored"): always(1000),
        key("tidegate_ledger_messages", "monitor", outcome="dead_lettered"): always(10),
    }


def beside_canary(share: float, per_second: float, canary: float = 0.5) -> dict[Key, Wave]:
    """A fleet of which a share is refused, and the canary's good messages among what is received."""
    received = key("tidegate_gateway_messages_received_total", "gateway", qos="1")
    return {
        **messages(share, per_second),
        received: lambda second: float(int(per_second * second)) + int(canary * second),
        key("tidegate_canary_acknowledged_total", "canary"): lambda second: float(int(canary * second)),
    }


def silent(share: float, heard: int = 100) -> dict[Key, Wave]:
    return {
        key("tidegate_devices_silent", "monitor"): always(round(heard * share)),
        key("tidegate_devices_heard", "monitor"): always(heard),
        key("tidegate_devices_active", "monitor"): steps((0, heard), (1800, round(heard * (1 - share)))),
    }


def restarts(job: str, every: int, until: int) -> dict[Key, Wave]:
    """A part that is started anew so often, and answers most of the time."""
    born = key("process_start_time_seconds", job)
    return {born: lambda second: OLD if second < every else float(min(second, until) // every * every - 3)}


def stream(lag_seconds: Wave, rows: Wave) -> dict[Key, Wave]:
    return {
        key(
            "tidegate_kafka_lag_seconds", "monitor", consumergroup="tidegate-land", topic="telemetry.readings"
        ): lag_seconds,
        key("tidegate_stream_rows_total", "stream", table="readings"): rows,
        key("tidegate_stream_rows_total", "stream", table="rollup_1m"): counter(1),
    }


def sql_stream(lag_seconds: Wave) -> dict[Key, Wave]:
    return {
        key(
            "tidegate_kafka_lag_seconds", "monitor", consumergroup="tidegate-stream-hot", topic="telemetry.readings"
        ): lag_seconds,
    }


def canary(published: Wave, seen: Wave, started: float = OLD) -> dict[Key, Wave]:
    return {
        key("tidegate_canary_published_total", "canary"): published,
        key("tidegate_canary_seen_total", "canary"): seen,
        key("process_start_time_seconds", "canary"): always(started),
    }


def lag(of: Callable[[int], Wave], partitions: int = 2) -> dict[Key, Wave]:
    group = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    return {key("kafka_consumergroup_lag", "monitor", partition=str(n), **group): of(n) for n in range(partitions)}


def old_lag(records: float, seconds: float) -> dict[Key, Wave]:
    group = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    behind = lag(lambda n: always(records / 2 + n))
    return {**behind, key("tidegate_kafka_lag_seconds", "monitor", **group): always(seconds)}


def data_loss(hours: float, lag_seconds: float) -> dict[Key, Wave]:
    group = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    return {
        key("tidegate_kafka_time_to_data_loss_seconds", "monitor", **group): always(hours * HOUR),
        key("tidegate_kafka_lag_seconds", "monitor", **group): always(lag_seconds),
    }


def _happened() -> Iterable[tuple[Alert, Happened]]:
    for alert in ALERTS:
        yield from ((alert, signal) for signal in _within(alert.signal) if isinstance(signal, Happened))


def _within(signal: Signal) -> tuple[Signal, ...]:
    return (*_within(signal.one), *_within(signal.other)) if isinstance(signal, Either) else (signal,)


def counted(alert: Alert, signal: Happened) -> list[Case]:
    """The first event is seen, also when it comes right after a start; a restart by itself is none."""
    job = {"tidegate_gat": "gateway", "tidegate_str": "stream", "tidegate_mon": "monitor"}[signal.select.metric[:12]]
    where = {name: value.lstrip("~").split("|")[0] for name, value in signal.select.where}
    labels = where or {"chore": {"chore": "derive"}, "sql": {"stream": "hot"}}.get(_kind(signal.select.metric), {})
    there, born = key(signal.select.metric, job, **labels), key("process_start_time_seconds", job)
    one, end = signal.more_than + 1, signal.seconds + 600
    say = signal.select.metric

    def told(count: Wave, start: Wave | None = None) -> dict[Key, Wave]:
        return {there: count, born: start or always(OLD)}

    return [
        Case(alert.name, f"{say}: the first", told(steps((0, 0.0), (300, one))), {285: 0, 330: 1, end: 0}),
        Case(alert.name, f"{say}: none", told(always(0.0)), {15: 0, 300: 0, 900: 0}),
        Case(alert.name, f"{say}: old ones only", told(always(7 * one)), {15: 0, 300: 0, 900: 0}),
        Case(
            alert.name,
            f"{say}: the first after a restart, before anybody asked",
            told(steps((0, one), (60, None), (90, one)), steps((0, OLD), (60, None), (90, 70.0))),
            {45: 0, 105: 1, signal.seconds + 120: 0},
        ),
        Case(
            alert.name,
            f"{say}: the first after the very first start",
            told(steps((60, one)), steps((60, 50.0))),
            {45: 0, 75: 1, signal.seconds + 120: 0},
        ),
        Case(
            alert.name,
            f"{say}: one after a restart that was at 0",
            told(steps((0, 5 * one), (60, None), (90, 0.0), (150, one)), steps((0, OLD), (60, None), (90, 70.0))),
            {45: 0, 120: 0, 180: 1},
        ),
        Case(
            alert.name,
            f"{say}: two restarts in a row",
            told(
                steps((0, 5 * one), (60, None), (90, 0.0), (150, None), (210, 0.0)),
                steps((0, OLD), (60, None), (90, 70.0), (150, None), (210, 200.0)),
            ),
            {45: 0, 105: 0, 225: 0, 600: 0},
        ),
    ]


def _kind(metric: str) -> str:
    return "chore" if "chore" in metric else "sql" if "_sql_" in metric else ""


CASES: list[Case] = [
    Case("TidegateWatchdog", "always", {key("up", "gateway"): always(1)}, {0: 1, 15: 1, 300: 1}),
    *target("TidegateTargetDown", "gateway", seconds=120),
    *target("TidegateTargetDown", "stream", seconds=120),
    *target("TidegateTargetDown", "kafka", seconds=120),
    Case(
        "AlertmanagerDown",
        "down",
        {("up", (("instance", "a:1"), ("job", "alertmanager"))): steps((0, 1.0), (60, 0.0))},
        {45: 0, 150: 1},
    ),
    Case("AlertmanagerDown", "up", {("up", (("instance", "a:1"), ("job", "alertmanager"))): always(1)}, {600: 0}),
    *gauge("TidegateBrokerUnreachable", "tidegate_broker_reachable", "monitor", good=1, bad=0, seconds=30),
    *gauge("TidegateKafkaUnreachable", "tidegate_kafka_reachable", "monitor", good=1, bad=0, seconds=10),
    *(
        Case(
            name,
            "the monitor started before it",
            {
                key(metric, "monitor"): steps((0, 0.0), (60, 1.0)),
                key("process_start_time_seconds", "monitor"): always(1.0),
            },
            {30: 0, 45: 0, 75: 0, 300: 0},
        )
        for name, metric in (
            ("TidegateBrokerUnreachable", "tidegate_broker_reachable"),
            ("TidegateKafkaUnreachable", "tidegate_kafka_reachable"),
        )
    ),
    *gauge("TidegateGatewayDisconnected", "tidegate_gateway_connected", "gateway", good=1, bad=0, seconds=30),
    Case(
        "TidegateGatewayDisconnected",
        "two restarts in a row",
        {
            key("tidegate_gateway_connected", "gateway"): steps(
                (0, 1.0), (60, None), (90, 0.0), (105, 1.0), (150, None), (180, 0.0), (195, 1.0)
            )
        },
        {105: 0, 195: 0, 600: 0},
    ),
    Case(
        "TidegateBrokerDropsMessages",
        "drops",
        {key("broker_publish_messages_dropped", "monitor"): steps((0, 0.0), (300, 3.0))},
        {285: 0, 330: 1, 645: 0},
    ),
    Case(
        "TidegateBrokerDropsMessages",
        "drops right after the broker's start",
        {
            key("broker_publish_messages_dropped", "monitor"): steps((60, 2.0)),
            key("broker_uptime", "monitor"): lambda second: second - 40.0 if second >= 60 else None,
        },
        {75: 1, 345: 0},
    ),
    Case(
        "TidegateBrokerDropsMessages",
        "dropped long ago; two restarts of the broker",
        {
            key("broker_publish_messages_dropped", "monitor"): steps(
                (0, 9.0), (60, None), (90, 0.0), (150, None), (180, 0.0)
            ),
            key("broker_uptime", "monitor"): lambda second: 90_000.0 + second if second < 60 else float(second % 90),
        },
        {45: 0, 105: 0, 195: 0, 600: 0},
    ),
    *(case for alert, signal in _happened() for case in counted(alert, signal)),
    *shares("TidegateDeadLetterRatio", messages, good=0.014, bad=0.2, at=420),
    Case("TidegateDeadLetterRatio", "two of three messages, but three messages only", messages(0.6, 0.01), {600: 0}),
    *(
        Case(
            "TidegateDeadLetterRatio",
            f"a fleet of {per_second}/s beside a canary: {share:.0%} refused",
            beside_canary(share, per_second),
            {45: 0, 420: int(share > 0.05), 1200: int(share > 0.05)},
        )
        for per_second, share in ((0.33, 1.0), (0.5, 0.2), (2.0, 0.08), (2.0, 0.03))
    ),
    Case(
        "TidegateDeadLetterRatio",
        "goes on for two minutes after it ended",
        {
            **messages(0.0),
            key("tidegate_gateway_messages_rejected_total", "gateway", reason="invalid_json"): lambda second: (
                4.0 * min(second, 600)
            ),
        },
        {600: 1, 1200: 0},
    ),
    *shares("TidegateLateRatio", late, good=0.01, bad=0.2, at=180),
    *shares("TidegateDevicesSilent", silent, good=0.02, bad=0.3, at=360),
    Case("TidegateDevicesSilent", "a dark site, also after the hour", silent(0.9, 40), {270: 0, 360: 1, 2 * HOUR: 1}),
    Case("TidegateDevicesSilent", "two of four", silent(0.5, 4), {270: 0, 360: 1, 2 * HOUR: 1}),
    Case("TidegateDevicesSilent", "one of three: one is no alert", silent(1 / 3, 3), {900: 0}),
    Case("TidegateAllDevicesSilent", "twelve", silent(1, 12), {270: 0, 360: 1, 2 * HOUR: 1}),
    Case("TidegateAllDevicesSilent", "both", silent(1, 2), {270: 0, 360: 1}),
    Case("TidegateAllDevicesSilent", "the only one", silent(1, 1), {900: 0}),
    Case("TidegateAllDevicesSilent", "all but one", silent(0.99), {900: 0}),
    Case("TidegateAllDevicesSilent", "none was heard this day", silent(0, 0), {900: 0}),
    Case(
        "TidegatePartRestarts", "every two minutes", restarts("stream", 120, 1200), {330: 0, 390: 1, 1200: 1, 2700: 0}
    ),
    Case("TidegatePartRestarts", "the JVM below it", restarts("kafka", 240, 1200), {1200: 1}),
    Case("TidegatePartRestarts", "two restarts in a row", restarts("gateway", 60, 120), {180: 0, 600: 0, 1200: 0}),
    Case("TidegatePartRestarts", "once an hour", restarts("gateway", HOUR, 2 * HOUR), {2 * HOUR + 60: 0}),
    *(
        Case(
            "TidegateTargetDown",
            f"the gateway is down, and a monitor that restarts every {every} s hides it no longer",
            {key("up", "gateway"): always(0), **restarts("monitor", every, 10**9)},
            {3000: 1, 3600: 1},
        )
        for every in (120, 240)
    ),
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
    Case("TidegateSqlStreamLags", "it is stopped", sql_stream(counter(1)), {285: 0, 630: 1}),
    Case("TidegateSqlStreamLags", "it keeps up", sql_stream(always(20)), {900: 0}),
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
    Case("KafkaLagKeepsIncreasing", "it grows", lag(lambda n: counter(20 + n)), {60: 0, 600: 1}),
    Case(
        "KafkaLagKeepsIncreasing",
        "it grows out of what was small and uneven",
        lag(lambda n: lambda second: second % 45 + n + 20.0 * max(0, second - 150)),
        {300: 0, 600: 1, 615: 1, 645: 1, 660: 1, 675: 1, 690: 1, 705: 1},
    ),
    Case(
        "KafkaLagKeepsIncreasing",
        "it is small and uneven",
        lag(lambda n: lambda second: float(second % 45 + n)),
        {300: 0, 900: 0},
    ),
    Case(
        "KafkaLagKeepsIncreasing",
        "a backlog that falls",
        lag(lambda n: lambda second: 90_000.0 - 50 * second + n),
        {300: 0, 900: 0},
    ),
    Case("KafkaLagIsTooHigh", "far behind", old_lag(120_000, 400), {285: 0, 330: 1}),
    Case("KafkaLagIsTooHigh", "a little", old_lag(80_000, 400), {900: 0}),
    Case("KafkaLagIsTooHigh", "a few seconds of a large fleet", old_lag(300_000, 6), {900: 0}),
    Case("TidegateTimeToDataLoss", "two hours", data_loss(2, 9 * HOUR), {45: 0, 90: 2}),
    Case("TidegateTimeToDataLoss", "twelve hours", data_loss(12, 9 * HOUR), {45: 0, 90: 1}),
    Case("TidegateTimeToDataLoss", "no lag", data_loss(inf, 0), {900: 0}),
    Case("TidegateTimeToDataLoss", "retention of an hour by intent", data_loss(0.99, 30), {900: 0}),
    *gauge(
        "KafkaUnderReplicatedPartitionCount",
        "kafka_topic_partition_under_replicated_partition",
        "monitor",
        good=0,
        bad=1,
        seconds=300,
        topic="t",
        partition="0",
    ),
    *gauge(
        "KafkaUnderMinISRPartitionCount",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka",
        good=0,
        bad=3,
        seconds=60,
    ),
    *gauge(
        "KafkaOfflinePartitionCount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka",
        good=0,
        bad=3,
        seconds=60,
    ),
    *gauge(
        "KafkaOfflinePartitionCount",
        "kafka_topic_partition_leader",
        "monitor",
        good=1,
        bad=-1,
        seconds=60,
        topic="t",
        partition="0",
    ),
    Case(
        "KafkaISRShrinkRate",
        "shrinks",
        {key("kafka_server_replicamanager_isrshrinks_total", "kafka"): steps((0, 0.0), (300, 1.0))},
        {285: 0, 330: 1, 1200: 0},
    ),
    Case(
        "KafkaISRShrinkRate",
        "two restarts",
        {
            key("kafka_server_replicamanager_isrshrinks_total", "kafka"): steps(
                (0, 4.0), (60, None), (90, 0.0), (120, None), (150, 0.0)
            )
        },
        {105: 0, 600: 0},
    ),
    *gauge("TidegateUnaccounted", "tidegate_audit_unaccounted_messages", "monitor", good=0, bad=1, seconds=0),
    *gauge("TidegateDuplicateRows", "tidegate_audit_duplicate_rows", "monitor", good=0, bad=2, seconds=0),
    *gauge("TidegateOrderViolations", "tidegate_audit_order_violations", "monitor", good=0, bad=1, seconds=0),
    Case(
        "TidegateAuditOld", "old", {key("tidegate_audit_timestamp_seconds", "monitor"): always(1)}, {2385: 0, 2520: 1}
    ),
    Case(
        "TidegateAuditOld",
        "never",
        {
            key("tidegate_audit_timestamp_seconds", "monitor"): always(0),
            key("process_start_time_seconds", "monitor"): always(1),
        },
        {2385: 0, 2520: 1},
    ),
    Case(
        "TidegateAuditOld",
        "every ten minutes",
        {
            key("tidegate_audit_timestamp_seconds", "monitor"): lambda second: second // 600 * 600.0,
            key("process_start_time_seconds", "monitor"): always(1),
        },
        {600: 0, 3600: 0},
    ),
    Case(
        "TidegateWatermarkOld",
        "it stands",
        {key("tidegate_rollup_watermark_timestamp_seconds", "stream"): always(1)},
        {900: 0, 1065: 1},
    ),
    Case(
        "TidegateWatermarkOld",
        "two minutes behind; none yet after two restarts",
        {
            key("tidegate_rollup_watermark_timestamp_seconds", "stream"): lambda second: (
                0.0 if second < 1800 and second % 300 < 120 else max(0.0, second - 125.0)
            )
        },
        {300: 0, 900: 0, 1800: 0, 2400: 0},
    ),
    Case(
        "TidegateWatermarkOld",
        "none yet: that is no age",
        {key("tidegate_rollup_watermark_timestamp_seconds", "stream"): always(0)},
        {1800: 0, 3000: 0},
    ),
    Case(
        "TidegateMaintenanceOverdue",
        "an hour",
        {key("tidegate_table_maintained_timestamp_seconds", "stream", table="readings"): always(1)},
        {3600: 0, 3930: 1},
    ),
    Case(
        "TidegateMaintenanceOverdue",
        "not looked at yet, then kept",
        {
            key("tidegate_table_maintained_timestamp_seconds", "stream", table="readings"): lambda second: (
                0.0 if second < 5000 else second - 60.0
            )
        },
        {3900: 0, 4500: 0, 5400: 0},
    ),
    Case(
        "TidegateDiskFull",
        "half a GiB",
        {key("node_filesystem_avail_bytes", "monitor", mountpoint="/"): always(2.0**29)},
        {15: 0, 60: 1, 330: 2},
    ),
    Case(
        "TidegateDiskFull",
        "3 GiB",
        {key("node_filesystem_avail_bytes", "monitor", mountpoint="/"): always(3 * 2.0**30)},
        {60: 0, 330: 1},
    ),
    Case(
        "TidegateDiskFull",
        "50 GiB",
        {key("node_filesystem_avail_bytes", "monitor", mountpoint="/"): always(50 * 2.0**30)},
        {900: 0},
    ),
    Case(
        "TidegateDiskFull",
        "full in two days",
        {key("tidegate_table_disk_full_days", "stream"): always(2)},
        {1785: 0, 1815: 1},
    ),
    Case(
        "TidegateDiskFull",
        "full in two hours",
        {key("tidegate_table_disk_full_days", "stream"): always(0.1)},
        {885: 0, 915: 1},
    ),
    Case(
        "TidegateDiskFull", "it does not grow", {key("tidegate_table_disk_full_days", "stream"): always(inf)}, {2700: 0}
    ),
    *(
        Case(
            "TidegateCertificateExpires",
            f"in {days} days",
            {key("tidegate_certificate_expiry_timestamp_seconds", "monitor", server="mqtt"): always(days * DAY)},
            {45: 0, 90: count},
        )
        for days, count in ((1, 2), (7, 1), (30, 0))
    ),
    Case(
        "TidegateCertificateExpires",
        "no TLS",
        {key("tidegate_certificate_expiry_timestamp_seconds", "monitor", server="kafka"): always(0)},
        {300: 0},
    ),
]


def healthy(second: int, life: int, *, started: float) -> dict[Key, float | None]:
    """A demo fleet at 20 messages a second, 1.4 % of them wrong, `life` seconds after the start of all parts."""
    land = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    kafka, broker, gateway, streams, seen = (life >= wait for wait in (15, 3, 20, 60, 75))
    received, rows = 20.0 * max(0, life - 25), 60.0 * max(0, life - 60)
    refused = float(int(0.014 * received))
    found: dict[Key, float | None] = {}

    def tell(job: str, there: bool, **values: float) -> None:
        found[key("up", job)] = float(there)
        found.update({key(metric, job): value if there else None for metric, value in values.items()})
        found[key("process_start_time_seconds", job)] = started if there else None

    tell("gateway", gateway, tidegate_gateway_connected=float(life >= 25), tidegate_gateway_sessions_lost_total=0.0)
    tell(
        "stream",
        streams,
        tidegate_rollup_watermark_timestamp_seconds=max(0.0, second - 130.0) if life >= 90 else 0.0,
        tidegate_table_disk_full_days=inf,
    )
    tell(
        "canary",
        gateway,
        tidegate_canary_published_total=float(max(0, life - 20) // 5),
        tidegate_canary_acknowledged_total=float(max(0, life - 25) // 5),
        tidegate_canary_seen_total=float(max(0, life - 75) // 5 if seen else 0),
    )
    tell(
        "monitor",
        True,
        tidegate_kafka_reachable=float(kafka),
        tidegate_broker_reachable=float(broker),
        tidegate_devices_silent=0.0,
        tidegate_devices_active=25.0 if streams else 0.0,
        tidegate_devices_heard=25.0 if streams else 0.0,
        tidegate_ledger_late_messages=8.0,
        tidegate_audit_unaccounted_messages=0.0,
        tidegate_audit_timestamp_seconds=max(0.0, second // 600 * 600.0),
        broker_publish_messages_dropped=0.0,
    )
    tell("kafka", kafka, kafka_controller_kafkacontroller_offlinepartitionscount=0.0)
    tell("spark", life >= 45)
    for reason, value in (("invalid_json", refused), ("internal_error", 0.0)):
        found[key("tidegate_gateway_messages_rejected_total", "gateway", reason=reason)] = value if gateway else None
    found[key("tidegate_gateway_messages_received_total", "gateway", qos="1")] = received if gateway else None
    found[key("tidegate_stream_rows_total", "stream", table="readings")] = rows if streams else None
    found[key("tidegate_table_maintained_timestamp_seconds", "stream", table="readings")] = (
        (second - 30.0 if life > 200 else 0.0) if streams else None
    )
    found[key("kafka_consumergroup_lag", "monitor", partition="0", **land)] = (
        (60.0 * max(0, life - 25) if not streams else 12.0) if kafka else None
    )
    found[key("tidegate_kafka_lag_seconds", "monitor", **land)] = (
        (float(max(0, life - 25)) if not streams else 0.3) if kafka else None
    )
    found[key("tidegate_kafka_time_to_data_loss_seconds", "monitor", **land)] = 7.0 * DAY if kafka else None
    found[key("tidegate_ledger_messages", "monitor", outcome="stored")] = 900.0
    found[key("node_filesystem_avail_bytes", "monitor", mountpoint="/")] = 60.0 * 2**30
    for bound in ("2.5", "+Inf"):
        found[key("tidegate_end_to_end_latency_seconds_bucket", "canary", le=bound)] = (
            float(max(0, life - 85 if bound == "2.5" else life - 75) // 5) if gateway else None
        )
    return found


def run_of_fleet(seconds: int, *starts: int) -> dict[Key, list[float | None]]:
    """The healthy fleet with all parts started at those seconds."""
    found: dict[Key, list[float | None]] = {}
    for step, second in enumerate(range(0, seconds + 1, STEP)):
        start = max(each for each in starts if each <= second)
        for each, value in healthy(second, second - start, started=start + 1.0).items():
            found.setdefault(each, [None] * step).append(value)
    return found


QUIET = {
    "a healthy demo fleet from its first second on": run_of_fleet(2700, 0),
    "two restarts of everything in a row": run_of_fleet(2700, 0, 900, 960),
}


def firing(name: str) -> str:
    return f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'


def samples(count: int) -> list[dict[str, Any]]:
    return [{"labels": "{}", "value": count}] if count else []


def rules_of(*words: str) -> dict[str, Any]:
    """The rules of our file that have one of the words in their name."""
    groups = [
        {
            **group,
            "rules": [
                rule
                for rule in group["rules"]
                if any(word in str(rule.get("alert", rule.get("record"))) for word in words)
            ],
        }
        for group in rule_file(MonitoringSettings())["groups"]
    ]
    return {"groups": groups}


def as_test(case: Case, as_input_series: Any) -> dict[str, Any]:
    return {
        "name": f"{case.alert}: {case.title}",
        "interval": f"{STEP}s",
        "input_series": as_input_series(case.series()),
        "promql_expr_test": [
            {"expr": firing(case.alert), "eval_time": f"{at}s", "exp_samples": samples(count)}
            for at, count in case.firing.items()
        ],
    }


def test_each_alert_fires_and_does_not_in_promtool(promtool_test: Any, as_input_series: Any) -> None:
    pairs = []
    for name in sorted({case.alert for case in CASES}):
        tests = [as_test(case, as_input_series) for case in CASES if case.alert == name]
        pairs.append((rules_of(name), {"evaluation_interval": f"{STEP}s", "tests": tests}))
    promtool_test(*pairs)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if next(a for a in ALERTS if a.name == case.alert).builtin],
    ids=lambda case: f"{case.alert}: {case.title}",
)
def test_each_alert_fires_and_does_not_by_the_monitors_own_check(case: Case, built_in: Any) -> None:
    alerts = [alert for alert in ALERTS if alert.name == case.alert]
    found = built_in(alerts, case.series(), case.firing)
    assert {at: len(each) for at, each in found.items()} == case.firing


def test_a_healthy_fleet_and_its_restarts_raise_no_alarm(
    promtool_test: Any, as_input_series: Any, built_in: Any
) -> None:
    seconds = range(0, 2701, 60)
    tests = []
    for title, series in QUIET.items():
        assert {at: each for at, each in built_in(ALERTS, series, seconds).items() if each} == {}, title
        expr = 'count by (alertname) (ALERTS{alertname!="TidegateWatchdog", alertstate="firing"})'
        checks = [{"expr": expr, "eval_time": f"{at}s", "exp_samples": []} for at in seconds]
        tests.append(
            {"name": title, "interval": f"{STEP}s", "input_series": as_input_series(series), "promql_expr_test": checks}
        )
    promtool_test((rule_file(MonitoringSettings()), {"evaluation_interval": f"{STEP}s", "tests": tests}))


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


def test_prometheus_fills_the_sentences_in(promtool_test: Any, as_input_series: Any) -> None:
    rules = rules_of("KafkaLagIsTooHigh")
    (rule,) = (rule for group in rules["groups"] for rule in group["rules"])
    filled = {
        "{{ $labels.consumergroup }}": "tidegate-land",
        "{{ $value | humanize }}": "120k",
        "{{ $labels.topic }}": "telemetry.readings",
    }
    description = rule["annotations"]["description"]
    for template, text in filled.items():
        description = description.replace(template, text)
    assert description.startswith("tidegate-land is 120k records behind in telemetry.readings.\n\nImpact: ")
    labels = {"job": "tidegate-monitor", "consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    expected = {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": {**rule["annotations"], "description": description},
    }
    case = Case("KafkaLagIsTooHigh", "far behind", {**old_lag(120_000, 400), **lag(lambda _: always(60_000))}, {330: 1})
    test = as_test(case, as_input_series)
    test["alert_rule_test"] = [{"eval_time": "330s", "alertname": case.alert, "exp_alerts": [expected]}]
    promtool_test((rules, {"evaluation_interval": f"{STEP}s", "tests": [test]}))


def test_the_group_of_the_landing_is_the_one_that_it_mirrors_to() -> None:
    assert LANDING == LAND_GROUP


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires = {case.alert for case in CASES if any(case.firing.values())}
    quiet = {case.alert for case in CASES if not any(case.firing.values())}
    burns = {"TidegateFreshnessBudgetBurns", "TidegateValidityBudgetBurns"}
    names = {alert.name for alert in ALERTS}
    assert fires == names - burns
    assert quiet == names - burns - {"TidegateWatchdog"}
