"""Texts for people about an MQTT session that is refused, lost or less than requested."""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError

__all__ = [
    "describe_inflight_limit",
    "describe_lost_broker",
    "describe_qos_downgrade",
    "describe_refused_connection",
    "describe_repeated_losses",
    "session_name",
    "session_taken_over",
    "shown_client_id",
]

_BAD_CREDENTIALS: Final = frozenset({0x86, 0x87})
_SECRET_ID: Final = re.compile(r"(tidegate-gateway-)([A-Za-z0-9_-]{32})")
"""The form of the gateway's client id in an embedded run (`deploy/local/run_logins.py`)."""


def shown_client_id(client_id: str) -> str:
    """Return a client id for logs, records and pages; the random part of an embedded gateway's id becomes a short hash.

    The random part is a secret: who knows the id can take over the session at a broker that does not bind ids to users.
    """
    return _SECRET_ID.sub(lambda found: found[1] + hashlib.sha256(found[2].encode()).hexdigest()[:8], client_id)


def session_name(settings: MqttSettings) -> str:
    """Return the name of the session at the broker, as a key for remembered state."""
    return f"{shown_client_id(settings.client_id)}@{settings.host}:{settings.port}"


def describe_lost_broker(detail: str) -> str:
    """Return why a gateway with a standby ends without the broker; `detail` is the state of its session."""
    return (
        f"This gateway lacks the MQTT broker ({detail}). It has released its lease, so that a standby that reaches the broker "
        "takes over, and ends; start it again as the next standby."
    )


def describe_qos_downgrade(filters: Sequence[str], username: str | None) -> str:
    """Return the sentence for filters that the broker grants at QoS 0 only."""
    return (
        f"grants {', '.join(filters)} at QoS 0 only: a message in transit during a failure is lost; "
        f"allow QoS 1 for {username or 'this client'} at the broker"
    )


def describe_inflight_limit(inflight: int) -> str:
    """Return the text for a broker that waits for PUBACK at this many messages and so limits the gateway; empty for 0."""
    if not inflight:
        return ""
    return (
        f"; the broker sends at most {inflight} unacknowledged messages, which limits the throughput: raise the broker's "
        "max_inflight_messages (DEVICES.md names the setting of each broker)"
    )


def describe_refused_connection(reason: ReasonCode, address: str, settings: MqttSettings) -> str:
    """Return why the broker refuses the connection."""
    if reason.value in _BAD_CREDENTIALS:
        if settings.cert_file is not None and settings.username is None:
            return (
                f"the broker at {address} refuses the user of the client certificate {settings.cert_file} ({reason}): check "
                "the common name of mqtt.cert_file and the broker's users"
            )
        user = settings.username or "(none)"
        return f"the broker at {address} refuses user {user} ({reason}): check mqtt.username and mqtt.password"
    return f"the broker at {address} refuses the connection: {reason}"


def session_taken_over(client_id: str, address: str) -> ConfigError:
    """Make the error for a taken-over session: two gateways would fight endlessly, so the exit code prevents a restart."""
    return ConfigError(
        f"another MQTT client uses client id {shown_client_id(client_id)!r} at {address} (the broker says the session was "
        "taken over): "
        "stop the other gateway, or give this one its own mqtt.client_id"
    )


def describe_repeated_losses(losses: int, client_id: str) -> str:
    """Return the possible causes of connections that are lost repeatedly."""
    return (
        f" ({losses} connections in a row were lost soon: the link is bad, or another client uses client id "
        f"{shown_client_id(client_id)!r})"
    )
