"""Alerts on the fleet, and on the certificates that let it in."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Left, Less, Operand, Quotient, Sum, select
from monitoring.alerts.signals import Both, Compare, Happened
from monitoring.silence import SILENT_DEVICES

__all__ = ["DEVICES", "FIRST_REFUSALS"]

DAY: Final = 86400
FIRST_REFUSALS: Final = (
    "SELECT device, reason, min(received_at) AS first, count(*) AS messages FROM dead_letters "
    "WHERE received_at > now() - INTERVAL 25 HOUR AND retain IS NOT TRUE "
    "GROUP BY device, reason HAVING min(received_at) > now() - INTERVAL 1 HOUR ORDER BY first DESC LIMIT 50"
)
"""For people: what the alert counts."""


_SILENT: Final = Sum(select("tidegate_devices_silent"))
_HEARD: Final = Sum(select("tidegate_devices_heard"))
_TALKING: Final = Less(_HEARD, select("tidegate_devices_silent"))
_SEVERAL: Final = Compare(_SILENT, ">=", 2)
"""One silent device is no alert."""


def _certificate(severity: Severity, days: int) -> Alert:
    expiry: Operand = Left(select("tidegate_certificate_expiry_timestamp_seconds"))
    return Alert(
        name="TidegateCertificateExpires",
        part="broker",
        severity=severity,
        signal=Compare(expiry, "<", days * DAY),
        for_seconds=60,
        unit="seconds",
        summary=f"A server certificate ends within {days} days",
        text="The certificate of the {server} server ends in {value}.",
        impact="From then on devices, or gateway and stream, are refused or refuse to connect.",
        causes=("Nobody renewed it.", "It was renewed, but the server was not told to read it again."),
        actions=(
            "`openssl s_client -connect HOST:PORT </dev/null | openssl x509 -noout -enddate`: which one is shown now.",
            "Renew it with the same CA, or give devices the new CA before you change it.",
            "Let the server read it: restart the broker or Kafka; clients connect again by themselves.",
            "`tidegate doctor --config FILE`: do both servers answer?",
        ),
    )


_WAY: Final = (
    "TidegateBrokerUnreachable",
    "TidegateKafkaUnreachable",
    "TidegateGatewayDisconnected",
    "TidegateStreamStalled",
    "TidegateTargetDown/tidegate-gateway",
    "TidegateTargetDown/tidegate-stream",
)
"""What keeps a device's words from us though it speaks."""

DEVICES: Final = (
    Alert(
        name="TidegateAllDevicesSilent",
        part="devices",
        severity="critical",
        signal=Both(_SEVERAL, Compare(_TALKING, "==", 0), on=("job",)),
        for_seconds=300,
        keep_firing_seconds=60,
        summary="All devices are silent",
        text="All {value} devices heard within three days, or twenty of their intervals, are silent.",
        impact="No readings come in at all, though broker, gateway, Kafka and stream would take them.",
        causes=(
            "The site lost power or its network.",
            "A firewall, name or certificate between the devices and the broker was changed.",
            "The broker's list of users, or its access rules, were replaced.",
            "The plant rests: then mute this alert for those hours.",
        ),
        actions=(
            "`tidegate logs broker -n 200`: do they connect, are they refused?",
            '`tidegate sql "SELECT device, last_seen FROM devices ORDER BY last_seen DESC LIMIT 20"`: '
            "did all stop at one moment?",
            "`tidegate doctor --config FILE`: does the broker answer, from here, as devices would reach it?",
            "`tidegate device watch DEVICE`: see the first one come back.",
        ),
        follows=_WAY,
    ),
    Alert(
        name="TidegateDevicesSilent",
        part="devices",
        severity="warning",
        signal=Both(Compare(Quotient(_SILENT, _HEARD, minimum=2), ">", 0.1), _SEVERAL, on=("job",)),
        for_seconds=300,
        keep_firing_seconds=60,
        unit="ratio",
        summary="Many devices are silent",
        text="{value} of the devices heard within three days are silent: for much longer than their own learned interval.",
        impact="Their readings are missing. One silent device is no alert: it stands on the ops page and in `devices`.",
        causes=(
            "A site lost power or its network.",
            "Credentials or a certificate of many devices ended at once.",
            "A topic or access rule of the broker was changed.",
        ),
        actions=(
            f'`tidegate sql "{SILENT_DEVICES}"`: which they are; what have they in common?',
            "`tidegate logs broker -n 200`: are they refused?",
            "`tidegate device watch DEVICE`: see one live, with what is refused of it.",
            "`tidegate dlq ls`: do they send, but what nobody takes?",
        ),
        follows=("TidegateAllDevicesSilent", *_WAY),
    ),
    Alert(
        name="TidegateMemoryOfDevicesFull",
        part="gateway",
        severity="warning",
        signal=Compare(select("tidegate_gateway_memory_fill_ratio"), ">", 0.8),
        for_seconds=60,
        unit="ratio",
        summary="The gateway's memory of devices is nearly full",
        text="The gateway's memory `{memory}` is {value} full. When it is full, the device that was silent for longest is "
        "forgotten.",
        impact="For a device that was forgotten, the gateway does not see a gap (`sequence`), starts its limit again (`rate`), "
        "or skips one step and stuck check (`tracks`). No reading is lost.",
        causes=(
            "The fleet has more than 80,000 devices, or metrics with a profile, on one gateway.",
            "Devices use ever new names, or a new `boot` in each message.",
        ),
        actions=(
            '`tidegate sql "SELECT count(*) FROM devices WHERE last_seen > now() - INTERVAL 1 DAY"`: the size of the fleet.',
            "Share the fleet among several gateways by topic filters that do not overlap.",
            'Refuse names that nobody registered: `gateway.unregistered = "refuse"`.',
        ),
    ),
    Alert(
        name="TidegateSequenceRestarts",
        part="devices",
        severity="info",
        signal=Happened(select("tidegate_gateway_sequence_restarts_total"), 3600),
        summary="Devices count again under the same boot",
        text="In the last hour devices began {value} times to count again from numbers that they used before.",
        impact="What they send is taken for copies and not stored, until they pass their highest number. The device gets the "
        "receipt `sequence_restarted`.",
        causes=(
            "The firmware starts its sequence at 0 after a restart and sends a constant `boot`.",
            "A device sends again all that it keeps, from its first message on: then nothing is lost.",
            "Two devices use one id.",
        ),
        actions=(
            '`tidegate sql "SELECT device, sequence_restarted_at FROM devices WHERE sequence_restarted_at > '
            'now() - INTERVAL 1 HOUR"`: the devices.',
            "`tidegate device watch DEVICE`: its `boot` and `seq`, live.",
            "Let the device send another `boot` at each start, or keep its `seq` over a restart.",
        ),
    ),
    Alert(
        name="TidegateFirstRefusals",
        part="devices",
        severity="info",
        signal=Compare(select("tidegate_devices_newly_refused"), ">", 0),
        summary="Something is refused that was clean",
        text="In the last hour messages of {value} pairs of device and reason were refused for the first time in a day.",
        impact="These messages are dead letters. It may be the first sign of a new firmware or setting; no other alert sees "
        "a single message.",
        causes=(
            "A new firmware, or a setting of the device, changed what it sends.",
            "A profile or a route was changed here.",
            "A sensor begins to fail.",
        ),
        actions=(
            f'`tidegate sql "{FIRST_REFUSALS}"`: which devices, and why.',
            "`tidegate dlq ls`, then `tidegate dlq show ID`: the message, what was wanted, and the next step.",
            "`tidegate dlq redrive`: after the fix, store what was refused.",
        ),
    ),
    _certificate("critical", 2),
    _certificate("warning", 14),
)
