"""Logins of devices at the embedded broker: users that publish and read only the topics of their device.

The running broker takes and stores them at once, by messages of its plugin under `$CONTROL`.
"""

import json
import queue
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from deploy.local.broker_rights import DEVICE_ROLE, acl_entries, device_rights
from deploy.local.run_logins import read_logins
from deploy.local.runfile import RunFile
from deploy.snippets import check_device
from gateway.devtools.tool_client import ToolClient
from gateway.gateway_settings import MqttSettings
from gateway.topic_filters import BadFilter, compile_filter
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["check_login", "remove_login", "set_login"]

_CONTROL: Final = "$CONTROL/dynamic-security/v1"
_ANSWER_SECONDS: Final = 10.0
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
    mark, answers, subscribed = secrets.token_hex(8), queue.Queue[dict[str, Any]](), queue.Queue[bool]()
    client = ToolClient(admin, f"tidegate-admin-{mark}")
    client.on_connect = lambda c, _data, _flags, reason, _more: (
        subscribed.put(False) if reason.is_failure else c.subscribe(f"{_CONTROL}/response", qos=1)
    )
    client.on_subscribe = lambda _c, _data, _mid, reasons, _more: subscribed.put(not reasons[0].is_failure)
    client.on_message = lambda _c, _data, message: answers.put(json.loads(message.payload))
    client.begin()
    try:
        if not subscribed.get(timeout=_ANSWER_SECONDS):
            message = "the user admin is refused"
            raise UnavailableError(_failed(admin, message))
        marked = [{**command, "correlationData": mark} for command in commands]
        client.publish(_CONTROL, json.dumps({"commands": marked}), qos=1)
        errors = _errors(answers, mark, len(commands))
    except queue.Empty as error:
        raise UnavailableError(_failed(admin, client.fault or "no answer")) from error
    finally:
        client.disconnect()
        client.loop_stop()
    if bad := next((text for text in errors if harmless not in text), None):
        raise UnavailableError(_failed(admin, bad))
    return bool(errors)


def _errors(answers: "queue.Queue[dict[str, Any]]", mark: str, count: int) -> list[str]:
    """Return the errors among `count` answers to these commands; other people's are passed over."""
    errors: list[str] = []
    while count:
        ours = [one for one in answers.get(timeout=_ANSWER_SECONDS)["responses"] if one.get("correlationData") == mark]
        errors += [str(one["error"]) for one in ours if "error" in one]
        count -= len(ours)
    return errors


def _failed(admin: MqttSettings, why: str) -> str:
    return (
        f"The broker at {admin.host}:{admin.port} did not change the login ({why}). See its log with `tidegate logs broker`, "
        "and restart the run if it does not answer."
    )
