"""What alerts on tables, audits and devices are tried with."""

from math import inf

from tests.support.promtool import (
    HOUR,
    Case,
    Key,
    Wave,
    always,
    gauge,
    key,
    of,
    shares,
    steps,
)


def late(share: float) -> dict[Key, Wave]:
    return {
        key("tidegate_ledger_late_messages", "monitor"): always(1000 * share),
        key("tidegate_ledger_messages", "monitor", outcome="stored"): always(1000),
        key("tidegate_ledger_messages", "monitor", outcome="dead_lettered"): always(10),
    }


def silent(share: float, heard: int = 100) -> dict[Key, Wave]:
    return {
        key("tidegate_devices_silent", "monitor"): always(round(heard * share)),
        key("tidegate_devices_heard", "monitor"): always(heard),
        key("tidegate_devices_active", "monitor"): steps((0, heard), (1800, round(heard * (1 - share)))),
    }


BOUND = key("tidegate_rollup_watermark_bound_seconds", "stream")

CASES: list[Case] = [
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
    *gauge("TidegateFirstRefusals", "tidegate_devices_newly_refused", "monitor", good=0, bad=1, seconds=0),
    *gauge("TidegateUnaccounted", "tidegate_audit_unaccounted_messages", "monitor", good=0, bad=1, seconds=0),
    Case(
        "TidegateUnaccounted",
        "seven, told on until an audit of that time finds none; a restart of the monitor between",
        {
            key("tidegate_audit_unaccounted_messages", "monitor"): steps(
                (0, 0.0), (600, 7.0), (1500, None), (1530, 7.0), (2400, 0.0)
            )
        },
        {585: 0, 600: 1, 1215: 1, 1485: 1, 1545: 1, 2385: 1, 2400: 0, 3000: 0},
    ),
    *gauge("TidegateLedgerUnaccounted", "tidegate_ledger_unaccounted_messages", "stream", good=0, bad=1, seconds=60),
    *gauge("TidegateDuplicateRows", "tidegate_audit_duplicate_rows", "monitor", good=0, bad=2, seconds=0),
    *gauge("TidegateOrderViolations", "tidegate_audit_order_violations", "monitor", good=0, bad=1, seconds=0),
    *of(
        "TidegateAuditOld",
        key("tidegate_audit_timestamp_seconds", "monitor"),
        ("old", always(1), {2385: 0, 2520: 1}),
    ),
    *of(
        "TidegateAuditOld",
        key("tidegate_audit_timestamp_seconds", "monitor"),
        ("never", always(0), {2385: 0, 2520: 1}),
        ("every ten minutes", lambda second: second // 600 * 600.0, {600: 0, 3600: 0}),
        beside={key("process_start_time_seconds", "monitor"): always(1)},
    ),
    *of(
        "TidegateWatermarkOld",
        key("tidegate_rollup_watermark_timestamp_seconds", "stream"),
        ("it stands", always(1), {1065: 0, 1185: 0, 1245: 1}),
        (
            "two minutes behind; none yet after two restarts",
            lambda second: 0.0 if second < 1800 and second % 300 < 120 else max(0.0, second - 125.0),
            {300: 0, 900: 0, 1800: 0, 2400: 0},
        ),
        ("none yet: that is no age", always(0), {1800: 0, 3000: 0}),
        beside={BOUND: always(180)},
    ),
    *of(
        "TidegateWatermarkOld",
        key("tidegate_rollup_watermark_timestamp_seconds", "stream"),
        ("a delay of 1,800 s that somebody set", lambda second: max(0.0, second - 1830.0), {2700: 0, 3600: 0, 7200: 0}),
        ("it stands behind such a delay", always(1), {2700: 0, 2865: 0, 2925: 1}),
        beside={BOUND: always(1860), key("process_start_time_seconds", "stream"): always(1)},
    ),
    *of(
        "TidegateMaintenanceOverdue",
        key("tidegate_table_maintained_timestamp_seconds", "stream", table="readings"),
        ("an hour", always(1), {3600: 0, 3930: 1}),
        ("no pass since the first one ends in time", lambda second: 600.0, {4185: 0, 4515: 1}),
        (
            "kept each minute, but for a backlog of 50 minutes",
            lambda second: 300.0 if 300 <= second < 3300 else second // 60 * 60.0,
            {3300: 0, 3600: 0, 5400: 0},
        ),
        ("the stream starts anew each half hour", lambda second: second // 1800 * 1800.0 + 1, {5400: 0, 7200: 0}),
    ),
    *of(
        "TidegateDiskFull",
        key("node_filesystem_avail_bytes", "monitor", mountpoint="/"),
        ("half a GiB", always(2.0**29), {15: 0, 60: 1, 330: 2}),
        ("3 GiB", always(3 * 2.0**30), {60: 0, 330: 1}),
        ("50 GiB", always(50 * 2.0**30), {900: 0}),
    ),
    *of(
        "TidegateDiskFull",
        key("tidegate_table_disk_full_days", "monitor", mountpoint="/var/kafka"),
        ("full in two days", always(2), {1785: 0, 1815: 1}),
        ("full in two hours", always(0.1), {885: 0, 915: 1}),
        ("it does not grow", always(inf), {2700: 0}),
    ),
    *of(
        "TidegateRetentionWaits",
        key("tidegate_table_retention_waiting_partitions", "stream", table="readings"),
        ("300 days wait until a person drops them", steps((0, 300.0), (900, 0.0)), {285: 0, 330: 1, 960: 0}),
        ("none", always(0), {900: 0}),
    ),
    *of(
        "TidegateClockOff",
        key("tidegate_gateway_clock_skew_seconds", "gateway"),
        ("ten minutes behind Kafka", steps((0, 0.0), (120, 600.0), (600, 0.0)), {165: 0, 195: 1, 660: 0}),
        ("a year ahead of Kafka", steps((0, 0.0), (120, -31_536_000.0)), {165: 0, 195: 1}),
        ("half a minute", always(30), {900: 0}),
    ),
    *of(
        "TidegateClockOff",
        key("tidegate_stream_clock_behind_seconds", "stream"),
        ("since 1970", always(1.7e9), {45: 0, 90: 1}),
        ("as it should be", always(0), {900: 0}),
    ),
]
