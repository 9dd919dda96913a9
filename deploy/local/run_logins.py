"""Users of an embedded run with their passwords, and the gateway's client id at the broker, made once per data folder."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.settings_file import write_private
from gateway.gateway_settings import MqttSettings

__all__ = [
    "CERTIFICATES",
    "DEVICES_USER",
    "NODE_CERTIFICATE",
    "RunLogins",
    "is_secured",
    "load_logins",
    "read_kafka_logins",
    "read_logins",
]

DEVICES_USER: Final = "tidegate"
CERTIFICATES: Final = "certificates"
"""Folder of the certificates of a secured run, in its data folder."""
NODE_CERTIFICATE: Final = "node.pem"
"""Kafka's file there."""
_OWN: Final = ("gateway", "canary", "monitor", "admin")
_KAFKA: Final = ("gateway", "stream", "monitor", "operator")
_KEY: Final = "kafka"
_SECRET_BYTES: Final = 24


@dataclass(frozen=True)
class RunLogins:
    """Users of a run.

    Attributes:
        passwords: password of each user; the gateway's is the first.
        client_id: the gateway's at the broker. mosquitto lets each user take over the session of a client id, and deletes the
            messages that this user may not read. So nobody else may know the id.
        kafka: password of each user of Kafka in a secured run; empty in a run without security.
        inherits_session: whether the folder is of an older version. Its session has a known id, and it may still belong to the
            user `tidegate`: until the gateway connects, mosquitto queues only what this user may read.
    """

    passwords: dict[str, str]
    client_id: str
    inherits_session: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)

    def login(self, user: str) -> dict[str, str]:
        """Return the settings of a user."""
        return {"username": user, "password": self.passwords[user]}


def is_secured(data: Path, file: Path) -> bool:
    """Return whether a run of this data folder was ever secured; either trace is enough, so that a lost file opens nothing.

    Args:
        data: the run's folder.
        file: private file of the run.
    """
    return (data / CERTIFICATES / NODE_CERTIFICATE).exists() or _KEY in _read(file)


def load_logins(file: Path, mqtt: MqttSettings, *, has_session: bool, secure: bool = False) -> RunLogins:
    """Return the users of a data folder; make those that are missing, so that devices keep working over restarts.

    Args:
        file: private file of the run, which older versions wrote with the devices' user only.
        mqtt: settings of the person; a client id that they set stays.
        has_session: whether the broker has sessions of an earlier run.
        secure: whether the run is secured, so that Kafka has users.
    """
    found = _read(file)
    # Another id would leave the messages that wait in the session of an older version.
    inherits_session = bool(found) and "client_id" not in found and has_session
    known = {**found, "username": DEVICES_USER}
    known.setdefault("password", secrets.token_urlsafe(18))
    known["own"] = {name: secrets.token_urlsafe(18) for name in _OWN} | found.get("own", {})
    if secure:
        known[_KEY] = {name: secrets.token_urlsafe(_SECRET_BYTES) for name in _KAFKA} | found.get(_KEY, {})
    public_id = str(MqttSettings.model_fields["client_id"].default)
    if not inherits_session:
        known.setdefault("client_id", f"{public_id}-{secrets.token_urlsafe(_SECRET_BYTES)}")
    if known != found:
        write_private(file, json.dumps(known) + "\n")
    client_id = mqtt.client_id if mqtt.client_id != public_id else str(known.get("client_id", public_id))
    own: dict[str, str] = known["own"]
    passwords = {"gateway": own["gateway"], DEVICES_USER: str(known["password"]), **own}
    kafka: dict[str, str] = known[_KEY] if secure else {}
    return RunLogins(passwords, client_id, inherits_session=inherits_session, kafka=kafka)


def read_logins(file: Path) -> dict[str, str]:
    """Return the passwords of Tidegate's own users in a run's private file."""
    own: dict[str, str] = _read(file)["own"]
    return own


def read_kafka_logins(file: Path) -> dict[str, str]:
    """Return the passwords of Kafka's users in a secured run's private file."""
    kafka: dict[str, str] = _read(file)[_KEY]
    return kafka


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found
