"""Alerts on the fleet, and on the certificates that let it in."""

from typing import Final

from monitoring.alerts.model import Alert, Severity
from monitoring.alerts.operands import Left, Operand, Quotient, Sum, select
from monitoring.alerts.signals import Both, Compare, Either, Signal

__all__ = ["DEVICES"]

DAY: Final = 86400


def _share_silent() -> Signal:
    silent, active = Sum(select("tidegate_devices_silent")), Sum(select("tidegate_devices_active"))
    return Either(
        Compare(Quotient(silent, active, minimum=5), ">", 0.1),
        Both(Compare(silent, ">", 0), Compare(active, "==", 0), on=("job",)),
    )


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


DEVICES: Final = (
    Alert(
        name="TidegateDevicesSilent",
        part="devices",
        severity="warning",
        signal=_share_silent(),
        for_seconds=300,
        keep_firing_seconds=60,
        unit="ratio",
        summary="Many devices are silent",
        text="Silent against active devices: {value}. Silent means much longer than the device's own learned interval.",
        impact="Their readings are missing. One silent device is no alert: it stands on the ops page and in `devices`.",
        causes=(
            "A site lost power or its network.",
            "Credentials or a certificate of many devices ended at once.",
            "A topic or access rule of the broker was changed.",
        ),
        actions=(
            '`tidegate sql "SELECT device, last_seen, interval_learned_s FROM devices ORDER BY last_seen LIMIT 20"`: '
            "what have they in common?",
            "`tidegate logs broker -n 200`: are they refused?",
            "`tidegate device watch DEVICE`: see one live, with what is refused of it.",
            "`tidegate dlq ls`: do they send, but what nobody takes?",
        ),
        follows=(
            "TidegateBrokerUnreachable",
            "TidegateKafkaUnreachable",
            "TidegateGatewayDisconnected",
            "TidegateStreamStalled",
            "TidegateTargetDown/tidegate-gateway",
            "TidegateTargetDown/tidegate-stream",
        ),
    ),
    _certificate("critical", 2),
    _certificate("warning", 14),
)
