"""What alerts on parts, the broker and the gateway are tried with."""

from tests.support.promtool import (
    DAY,
    HOUR,
    Case,
    Key,
    Wave,
    always,
    counter,
    gauge,
    key,
    monitor_first,
    of,
    restarts,
    shares,
    steps,
)


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


def beside_canary(share: float, per_second: float, canary: float = 0.5) -> dict[Key, Wave]:
    """A fleet of which a share is refused, and the canary's good messages among what is received."""
    received = key("tidegate_gateway_messages_received_total", "gateway", qos="1")
    return {
        **messages(share, per_second),
        received: lambda second: float(int(per_second * second)) + int(canary * second),
        key("tidegate_canary_acknowledged_total", "canary"): lambda second: float(int(canary * second)),
    }


def of_gateway(metric: str, name: str) -> Key:
    """A series of one of several gateways."""
    return metric, (("instance", f"{name}:1"), ("job", "tidegate-gateway"))


GAPS = key("tidegate_ledger_gap_messages", "monitor")


def complete_look(probe: str) -> Key:
    return key("tidegate_monitor_probe_complete_timestamp_seconds", "monitor", probe=probe)


CASES: list[Case] = [
    Case("TidegateWatchdog", "always", {key("up", "gateway"): always(1)}, {0: 1, 15: 1, 300: 1}),
    *target("TidegateTargetDown", "gateway", seconds=120),
    *target("TidegateTargetDown", "stream", seconds=120),
    *target("TidegateTargetDown", "kafka", seconds=120),
    *of(
        "AlertmanagerDown",
        ("up", (("instance", "a:1"), ("job", "alertmanager"))),
        ("down", steps((0, 1.0), (60, 0.0)), {45: 0, 150: 1}),
        ("up", always(1), {600: 0}),
    ),
    *gauge("TidegateBrokerUnreachable", "tidegate_broker_reachable", "monitor", good=1, bad=0, seconds=30),
    monitor_first("TidegateBrokerUnreachable", "tidegate_broker_reachable"),
    *gauge("TidegateBrokerQueueFills", "broker_messages_stored", "monitor", good=499_000, bad=501_000, seconds=30),
    *gauge("TidegateBrokerQueueFills", "broker_messages_stored_bytes", "monitor", good=1e6, bad=2e8, seconds=30),
    *gauge("TidegateSessionContended", "tidegate_gateway_session_contended", "gateway", good=0, bad=1, seconds=0),
    *gauge("TidegateGatewayIdShared", "tidegate_gateway_id_shared", "gateway", good=0, bad=1, seconds=0),
    Case(
        "TidegateGatewayNoStandby",
        "a pair whose standby ends, and a gateway without one",
        {
            of_gateway("tidegate_gateway_lease_held", "a"): always(1),
            of_gateway("tidegate_gateway_standby_waiting", "a"): always(0),
            of_gateway("tidegate_gateway_lease_held", "b"): steps((0, 0.0), (60, None)),
            of_gateway("tidegate_gateway_standby_waiting", "b"): steps((0, 1.0), (60, None)),
            of_gateway("tidegate_gateway_lease_held", "c"): always(0),
            of_gateway("tidegate_gateway_standby_waiting", "c"): always(0),
        },
        {45: 0, 165: 0, 210: 1},
    ),
    Case(
        "TidegateGatewayNoStandby",
        "a takeover, after which the other process starts again as the standby",
        {
            of_gateway("tidegate_gateway_lease_held", "a"): steps((0, 1.0), (60, None), (90, 0.0)),
            of_gateway("tidegate_gateway_standby_waiting", "a"): steps((0, 0.0), (60, None), (90, 1.0)),
            of_gateway("tidegate_gateway_lease_held", "b"): steps((0, 0.0), (75, 1.0)),
            of_gateway("tidegate_gateway_standby_waiting", "b"): steps((0, 1.0), (75, 0.0)),
        },
        {45: 0, 75: 0, 240: 0, 600: 0},
    ),
    *gauge(
        "TidegateBrokerLimitsGateway", "tidegate_gateway_broker_inflight_limit", "gateway", good=0, bad=20, seconds=60
    ),
    *of(
        "TidegateMemoryOfDevicesFull",
        key("tidegate_gateway_memory_fill_ratio", "gateway", memory="sequence"),
        ("fills", lambda second: 0.7 + second / 3000, {285: 0, 315: 0, 390: 1, 900: 1}),
        ("a fleet that fits", always(0.8), {900: 0}),
    ),
    *gauge("TidegateGatewayDisconnected", "tidegate_gateway_connected", "gateway", good=1, bad=0, seconds=30),
    *of(
        "TidegateGatewayDisconnected",
        key("tidegate_gateway_connected", "gateway"),
        (
            "two restarts in a row",
            steps((0, 1.0), (60, None), (90, 0.0), (105, 1.0), (150, None), (180, 0.0), (195, 1.0)),
            {105: 0, 195: 0, 600: 0},
        ),
    ),
    *of(
        "TidegateBrokerDropsMessages",
        key("broker_publish_messages_dropped", "monitor"),
        ("drops of any client: a warning", steps((0, 0.0), (300, 3.0)), {285: 0, 330: 1, 645: 0}),
        beside={
            key("tidegate_gateway_connected", "gateway"): always(1),
            key("up", "gateway"): always(1),
            GAPS: always(7),
        },
    ),
    *(
        Case(
            "TidegateBrokerDropsMessages",
            f"drops, and {what}: critical too",
            {
                key("broker_publish_messages_dropped", "monitor"): steps((0, 0.0), (900, 3.0)),
                key("tidegate_gateway_connected", "gateway"): always(1),
                key("up", "gateway"): always(1),
                GAPS: always(7),
                **hit,
            },
            {885: 0, 930: 2, 1260: 0},
        )
        for what, hit in {
            "the gateway was away": {key("tidegate_gateway_connected", "gateway"): steps((0, 1), (840, 0), (870, 1))},
            "the gateway did not answer": {key("up", "gateway"): steps((0, 1.0), (840, 0.0), (870, 1.0))},
            "gaps come": {GAPS: steps((0, 40), (600, 7), (915, 9))},
        }.items()
    ),
    *(
        Case(
            "TidegateBrokerDropsMessages",
            f"drops, and {what}: a warning only",
            {key("broker_publish_messages_dropped", "monitor"): steps((0, 0.0), (900, 3.0)), there: wave},
            {885: 0, 930: 1, 1110: 1, 1260: 0},
        )
        for what, there, wave in (
            ("the gateway was away long before", key("tidegate_gateway_connected", "gateway"), steps((0, 0), (285, 1))),
            ("old gaps leave the hour", GAPS, steps((0, 40), (600, 7))),
        )
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
    *(
        Case("TidegateMonitorBlind", f"{probe}: {title}", {complete_look(probe): wave}, firing)
        for probe in ("kafka", "tables", "host")
        for title, wave, firing in (
            ("one look in 14 s", lambda second: second // 14 * 14.0, {300: 0, 900: 0, 1800: 0}),
            (
                "fails or hangs, then comes back",
                lambda second: second if not 600 < second < 1500 else 600.0,
                {600: 0, 900: 0, 945: 1, 1485: 1, 1500: 0},
            ),
            ("never saw anything", always(1), {300: 0, 345: 1, 1800: 1}),
            ("does not run", always(0), {900: 0, 1800: 0}),
        )
    ),
    Case("TidegateMonitorBlind", "the audit has an alert of its own", {complete_look("audit"): always(1)}, {1800: 0}),
    Case(
        "TidegateMonitorBlind",
        "two restarts, two minutes without an answer after each",
        {complete_look("kafka"): lambda second: second // 300 * 300.0 + (second % 300 if second % 300 > 120 else 0)},
        {300: 0, 600: 0, 900: 0, 1200: 0},
    ),
    *of(
        "TidegateCertificateExpires",
        key("tidegate_certificate_expiry_timestamp_seconds", "monitor", server="mqtt"),
        ("in 1 days", always(DAY), {45: 0, 90: 2}),
        ("in 7 days", always(7 * DAY), {45: 0, 90: 1}),
        ("in 30 days", always(30 * DAY), {45: 0, 90: 0}),
    ),
    *of(
        "TidegateCertificateExpires",
        key("tidegate_certificate_expiry_timestamp_seconds", "monitor", server="kafka"),
        ("no TLS", always(0), {300: 0}),
    ),
]
