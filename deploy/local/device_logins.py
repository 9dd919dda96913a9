"""Logins of devices at the embedded broker: users that publish and read only the topics of their device.

The running broker takes and stores them at once, by messages of its plugin under `$CONTROL`.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from deploy.local.broker_rights import DEVICE_ROLE, acl_entries, device_rights
from deploy.local.run_logins import read_logins
from deploy.local.runfile import RunFile
from deploy.snippets import check_device
from gateway.devtools.broker_request import send_request
from gateway.gateway_settings import MqttSettings
from gateway.topic_filters import BadFilter, compile_filter
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["check_login", "remove_login", "set_login"]

_CONTROL: Final = "$CONTROL/dynamic-security/v1"
_RESERVED: Final = frozenset({"gateway", "canary", "monitor", "admin", "tidegate", "tidegate-canary"})
_EXISTS: Final = "already exists"
_MISSING: Final = "not found"


def check_login(device: str, topics: Sequence[str]) -> None:
    """Check that a device may have a login of this name, and that each further topic is a topic filter.

    Raises:
        ConfigError: the broker would understand a wildcard, the name is one of Tidegate's own, or a filter is not one.
    """
    check_device(device)
    if device in _RESERVED:
        message = f"{device} is a user of Tidegate itself. Choose another device id."
        raise ConfigError(message)
    for topic in topics:
        try:
            compile_filter(topic)
        except BadFilter as error:
            message = f"--topic {topic!r}: {error}. Name an MQTT topic filter such as shellies/{device}/#."
            raise ConfigError(message) from error
        if topic.startswith("$") or "{" in topic:
            message = f"--topic {topic!r}: a device publishes on no $ topic, and wildcards are + and #."
            raise ConfigError(message)


def set_login(mqtt: MqttSettings, folder: Path, run: RunFile, device: str, topics: Sequence[str]) -> str:
    """Create the login of a device, or give it a new password and these topics; return the password.

    Raises:
        ConfigError: see `check_login`.
        UnavailableError: the run's broker has no access list, or it does not answer.
    """
    check_login(device, topics)
    password, role = secrets.token_urlsafe(18), f"{DEVICE_ROLE}{device}"
    entries = acl_entries(device_rights(device, topics))
    _order(
        _admin(mqtt, folder, run),
        [
            {"command": "createRole", "rolename": role},
            {"command": "modifyRole", "rolename": role, "acls": entries},
            {"command": "createClient", "username": device, "password": password},
            {"command": "modifyClient", "username": device, "password": password, "roles": [{"rolename": role}]},
        ],
        harmless=_EXISTS,
    )
    return password


def remove_login(mqtt: MqttSettings, folder: Path, run: RunFile, device: str) -> bool:
    """Remove the login of a device and end its connections; return whether there was one.

    Raises:
        ConfigError: see `check_login`.
        UnavailableError: the run's broker has no access list, or it does not answer.
    """
    check_login(device, ())
    role = f"{DEVICE_ROLE}{device}"
    commands = [{"command": "deleteClient", "username": device}, {"command": "deleteRole", "rolename": role}]
    return not _order(_admin(mqtt, folder, run), commands, harmless=_MISSING)


def _admin(mqtt: MqttSettings, folder: Path, run: RunFile) -> MqttSettings:
    """Return the settings of the user that may change users."""
    if not run.has_access_list:
        message = (
            "The broker of this run has no access list, so a device cannot have a login of its own. Install mosquitto with its "
            "plugin mosquitto_dynamic_security, and restart with `tidegate up`."
        )
        raise UnavailableError(message)
    secret = read_logins(folder / run.credentials)["admin"]
    return mqtt.model_copy(update={"username": "admin", "password": SecretStr(secret)})


def _order(admin: MqttSettings, commands: list[dict[str, Any]], *, harmless: str) -> bool:
    """Send commands and wait for their answers; return whether a harmless error was among them.

    Raises:
        UnavailableError: the broker does not answer, or answers with another error.
    """
    mark = secrets.token_hex(8)
    ours: list[dict[str, Any]] = []

    def is_done(answer: bytes) -> bool:
        # Each administrator gets all answers; the mark is in ours.
        ours.extend(one for one in json.loads(answer)["responses"] if one.get("correlationData") == mark)
        return len(ours) >= len(commands)

    request = {"commands": [{**command, "correlationData": mark} for command in commands]}
    try:
        send_request(
            admin, _CONTROL, json.dumps(request).encode(), answers_on=f"{_CONTROL}/response", is_done=is_done,
            client_id=f"tidegate-admin-{mark}",
        )  # fmt: skip
    except UnavailableError as error:
        raise UnavailableError(_failed(admin, str(error))) from error
    errors = [str(one["error"]) for one in ours if "error" in one]
    if bad := next((text for text in errors if harmless not in text), None):
        raise UnavailableError(_failed(admin, bad))
    return bool(errors)


def _failed(admin: MqttSettings, why: str) -> str:
    return (
        f"The broker at {admin.host}:{admin.port} did not change the login ({why}). See its log with `tidegate logs broker`, "
        "and restart the run if it does not answer."
    )
