"""What people read about an MQTT session that is refused, lost or less than it was asked for."""

from collections.abc import Sequence
from typing import Final

from paho.mqtt.reasoncodes import ReasonCode

from ingest.contract.errors import ConfigError

__all__ = ["downgrade", "limits", "refusal", "suspicion", "taken_over"]

_BAD_CREDENTIALS: Final = frozenset({0x86, 0x87})


def downgrade(filters: Sequence[str], username: str | None) -> str:
    """The broker grants these filters at QoS 0 only."""
    return (
        f"grants {', '.join(filters)} at QoS 0 only: a message that is under way in a fault is lost; "
        f"allow QoS 1 for {username or 'this client'} at the broker"
    )


def limits(inflight: int) -> str:
    """The broker waits for PUBACK at so many messages, and that limits the gateway; nothing for 0."""
    if not inflight:
        return ""
    return (
        f"; the broker sends at most {inflight} unacknowledged messages, which limits the throughput: raise the broker's "
        "max_inflight_messages (DEVICES.md names the setting of each broker)"
    )


def refusal(reason: ReasonCode, address: str, username: str | None) -> str:
    """Why the broker does not let us in."""
    if reason.value in _BAD_CREDENTIALS:
        user = username or "(none)"
        return f"the broker at {address} refuses user {user} ({reason}): check mqtt.username and mqtt.password"
    return f"the broker at {address} refuses the connection: {reason}"


def taken_over(client_id: str, address: str) -> ConfigError:
    """Going on would be an endless fight between two gateways, and a restart too: the exit code says so."""
    return ConfigError(
        f"another MQTT client uses client id {client_id!r} at {address} (the broker says the session was taken over): "
        "stop the other gateway, or give this one its own mqtt.client_id"
    )


def suspicion(losses: int, client_id: str) -> str:
    """What may be behind connections that are lost again and again."""
    return (
        f" ({losses} connections in a row did not last: the link is bad, or another client uses client id "
        f"{client_id!r})"
    )
