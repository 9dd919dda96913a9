"""Alerts on the fleet, and on the certificates of the servers."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Operand, Quotient, SubtractIfPresent, Sum, TimeUntil, select
from monitoring.alerts.signals import Both, Compare, IncreasedWithin
from monitoring.silence import SILENT_DEVICES

__all__ = ["DEVICES", "FIRST_REFUSALS"]

DAY: Final = 86400
FIRST_REFUSALS: Final = (
    "SELECT device, reason, min(received_at) AS first, count(*) AS messages FROM dead_letters "
    "WHERE received_at > now() - INTERVAL 25 HOUR AND retain IS NOT TRUE "
    "GROUP BY device, reason HAVING min(received_at) > now() - INTERVAL 1 HOUR ORDER BY first DESC LIMIT 50"
)
"""Query for people: the pairs that the alert counts."""

_SILENT: Final = Sum(select("tidegate_devices_silent"))
_HEARD: Final = Sum(select("tidegate_devices_heard"))
_TALKING: Final = SubtractIfPresent(_HEARD, select("tidegate_devices_silent"))
_SEVERAL: Final = Compare(_SILENT, ">=", 2)
"""One silent device fires no alert."""


def _certificate(severity: Severity, days: int) -> Alert:
    expiry: Operand = TimeUntil(select("tidegate_certificate_expiry_timestamp_seconds"))
    return Alert(
        name="TidegateCertificateExpires",
        part="broker",
        severity=severity,
        signal=Compare(expiry, "<", days * DAY),
        for_seconds=60,
        unit="seconds",
        summary=f"A TLS certificate expires within {days} days",
        text="The TLS certificate of {server} expires in {value}.",
        impact="After that, devices, or gateway and stream, cannot connect any more.",
        causes=("It was not renewed.", "It was renewed, but the server has not loaded the new one."),
        actions=(
            "`openssl s_client -connect HOST:PORT </dev/null | openssl x509 -noout -enddate`: show the present one.",
            "Renew it with the same CA, or give devices the new CA before you change it.",
            "Let the server load it: restart the broker or Kafka. Clients reconnect automatically.",
            "For a client certificate, replace its files. The gateway reads them again; restart the canary for mqtt_canary.",
            "`tidegate doctor --config FILE`: check that both servers answer.",
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
"""Alerts whose cause keeps messages of a device from arriving."""

DEVICES: Final = (
    Alert(
        name="TidegateAllDevicesSilent",
        part="devices",
        severity="critical",
        signal=Both(_SEVERAL, Compare(_TALKING, "==", 0), on=("job",)),
        for_seconds=300,
        keep_firing_seconds=60,
        summary="All devices are silent",
        text="All {value} devices that were heard within three days, or twenty of their intervals, are silent.",
        impact="No readings come in, although broker, gateway, Kafka and stream would take them.",
        causes=(
            "The site lost power or its network.",
            "A firewall, a host name or a certificate between the devices and the broker was changed.",
            "The broker's list of users or its access rules were replaced.",
            "The plant is not running: then mute this alert for those hours.",
        ),
        actions=(
            "`tidegate logs broker -n 200`: check whether devices connect, and whether the broker refuses them.",
            '`tidegate sql "SELECT device, last_seen FROM devices ORDER BY last_seen DESC LIMIT 20"`: '
            "check whether all stopped at one moment.",
            "`tidegate doctor --config FILE`: check that the broker answers, from here, as devices would reach it.",
            "`tidegate device watch DEVICE`: watch the first one come back.",
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
        text="{value} of the devices heard within three days have been silent for much longer than their learned interval.",
        impact="Their readings are missing. A single silent device fires no alert: see the ops page and the table `devices`.",
        causes=(
            "A site lost power or its network.",
            "Credentials or a certificate of many devices expired at once.",
            "A topic or an access rule of the broker was changed.",
        ),
        actions=(
            f'`tidegate sql "{SILENT_DEVICES}"`: list them, and find what they have in common.',
            "`tidegate logs broker -n 200`: check whether the broker refuses them.",
            "`tidegate device watch DEVICE`: watch one live, with its rejected messages.",
            "`tidegate dlq ls`: check whether they send messages that are rejected.",
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
        text="The gateway's memory `{memory}` is {value} full. When it is full, the gateway forgets the device that was silent "
        "for longest.",
        impact="For a forgotten device, the gateway misses a gap (`sequence`), starts its limit again (`rate`), or skips one "
        "step and stuck check (`tracks`). No reading is lost.",
        causes=(
            "The fleet has more than 80,000 devices, or metrics with a profile, on one gateway.",
            "Devices use new names all the time, or a new `boot` in each message.",
        ),
        actions=(
            '`tidegate sql "SELECT count(*) FROM devices WHERE last_seen > now() - INTERVAL 1 DAY"`: count the devices.',
            "Split the fleet between several gateways with topic filters that do not overlap.",
            'Reject names that are not registered: set `gateway.unregistered = "refuse"`.',
        ),
    ),
    Alert(
        name="TidegateSequenceRestarts",
        part="devices",
        severity="info",
        signal=IncreasedWithin(select("tidegate_gateway_sequence_restarts_total"), 3600),
        summary="Devices count again under the same boot",
        text="In the last hour devices started {value} times to count again from numbers that they had used before.",
        impact="Their messages are taken for duplicates and not stored until they pass their highest number. The device gets the "
        "receipt `sequence_restarted`.",
        causes=(
            "The firmware starts its sequence at 0 after a restart and sends a constant `boot`.",
            "A device sends all its kept messages again, from the first one on: then nothing is lost.",
            "Two devices use one id.",
        ),
        actions=(
            '`tidegate sql "SELECT device, sequence_restarted_at FROM devices WHERE sequence_restarted_at > '
            'now() - INTERVAL 1 HOUR"`: list the devices.',
            "`tidegate device watch DEVICE`: watch its `boot` and `seq` live.",
            "Let the device send another `boot` at each start, or keep its `seq` over a restart.",
        ),
    ),
    Alert(
        name="TidegateFirstRefusals",
        part="devices",
        severity="info",
        signal=Compare(select("tidegate_devices_newly_refused"), ">", 0),
        summary="First rejections of a device in a day",
        text="In the last hour, {value} pairs of device and reason had their first rejected message in a day.",
        impact="These messages are dead letters. They may be the first sign of a new firmware or setting. No other alert reports "
        "a single message.",
        causes=(
            "A new firmware, or a setting of the device, changed what it sends.",
            "A profile or a route was changed here.",
            "A sensor begins to fail.",
        ),
        actions=(
            f'`tidegate sql "{FIRST_REFUSALS}"`: list the devices and reasons.',
            "`tidegate dlq ls`, then `tidegate dlq show ID`: show the message, what was expected, and the next step.",
            "`tidegate dlq redrive`: after the fix, store the rejected messages.",
        ),
    ),
    _certificate("critical", 2),
    _certificate("warning", 14),
)
