"""Values of the Helm chart from the settings: what the chart decides is left out, and each secret becomes a reference.

No value of a secret is ever read here: a reference names the Secret that a person creates.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from deploy.helm.kafka_objects import strimzi_topics, strimzi_users
from deploy.local.budget import memory_budget_mb
from deploy.settings import Settings
from deploy.settings_file import SECRET_NAME
from gateway.gateway_settings import MqttLogin, MqttSettings
from lakehouse.paths import is_local, to_path

__all__ = ["MANAGED", "ChartValues", "chart_values", "dump_values", "fill_values", "part_logins", "secret_fields"]

MANAGED: Final[Mapping[str, frozenset[str]]] = {
    "mqtt": frozenset({"client_id", "subscriptions", "session_file"}),
    "gateway": frozenset({"gateway_id"}),
    "monitoring": frozenset({"host", "metrics_host"}),
}
"""Settings that the chart sets: those of a gateway are in `gateway.members`."""
HOT: Final = ("routes", "mappings", "vendors")
PORTS: Final = ("page_port", "gateway_port", "stream_port", "canary_port")
OTHERS_TARGETS: Final = ("kafka",)
"""Parts outside of the chart, whose metrics it cannot find by itself."""
VOLUME: Final = "/var/lib/tidegate"
PLACES: Final = {"lake.root": f"{VOLUME}/tables", "stream.checkpoint": f"{VOLUME}/checkpoints/land"}
FOLDERS: Final = {
    "gateway.profiles": "gateway",
    "gateway.decoders": "gateway",
    "gateway.device_registry": "gateway",
    "stream.streams_dir": "stream",
}
"""Settings that name local files, and the part that reads them."""
PAGE_LOGIN: Final = ("monitoring", "read_token_file")
"""The page is on all addresses of its pod, so reading it needs a login."""
MEGABYTE: Final = 1024**2
SPARE: Final = 1.25
"""The budget is what a part takes; the limit at which it is killed is a quarter above."""
_WORD: Final = re.compile(r"(?![yYnN]$)[A-Za-z_][\w ./:-]*", re.ASCII)
LOOPBACK: Final = ("127.", "localhost", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class ChartValues:
    """Values by their path in values.yaml (`gateway.members`), and sentences about what a person has to do."""

    filled: Mapping[str, Any]
    notes: tuple[str, ...]


class _Indented(yaml.SafeDumper):  # type: ignore[misc] # the package has no types
    """Writer of YAML whose list items are deeper than their key, as in values.yaml, and whose texts stay texts in helm."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """See yaml.Dumper."""
        super().increase_indent(flow, indentless=False)

    def text(self, text: str) -> yaml.Node:
        """Write a text in quotes unless it is a plain word: helm takes 1e3, 0o17 and y for other values, and PyYAML does not."""
        style = None if _WORD.fullmatch(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Indented.add_representer(str, _Indented.text)


def chart_values(settings: Settings, given: Mapping[str, Any]) -> ChartValues:
    """Return the values for these settings; `given` is the content of their file."""
    plain, notes = _plain_settings(settings), list(_loopback_notes(settings))
    plain |= {name: given[name] for name in HOT if name in given}
    for path, place in PLACES.items():
        section, name = path.split(".")
        uri = str(getattr(getattr(settings, section), name))
        if is_local(uri) and not to_path(uri).is_relative_to(VOLUME):
            plain.setdefault(section, {})[name] = place
    for path, part in FOLDERS.items():
        section, name = path.split(".")
        folder = getattr(getattr(settings, section), name)
        if folder is not None:
            notes.append(f"{path} is {folder}: mount it there with {part}.extraVolumes and {part}.extraVolumeMounts.")
    for section in Settings.model_fields:
        extra = getattr(getattr(settings, section), "extra", None) or {}
        notes += [
            f"{section}.extra: {option} sounds like a secret and is not in the values. Set it from a Secret with extraEnv."
            for option in extra
            if SECRET_NAME.search(option)
        ]
    filled = {
        "settings": plain,
        "secrets": _secret_references(settings),
        "gateway.members": [_member(settings)],
        "canary.enabled": settings.monitoring.canary_port != 0,
        **_memory(settings),
        "strimzi.topics.list": strimzi_topics(settings.kafka),
        "strimzi.users.list": strimzi_users(),
        **part_logins(settings.mqtt),
    }
    return ChartValues(filled, tuple(notes))


def secret_fields(model: type[BaseModel]) -> Iterator[str]:
    """Yield the fields of a section that hold a secret, and those that name a file which the part only reads."""
    for name, field in model.model_fields.items():
        is_secret = SecretStr in (field.annotation, *get_args(field.annotation))
        if is_secret or (name.endswith("_file") and name != "session_file"):
            yield name


def fill_values(template: str, filled: Mapping[str, Any]) -> str:
    """Return values.yaml with these values in place of the shipped ones; all other lines stay, comments included.

    Raises:
        KeyError: the template has no line for a path.
    """
    lines, stack, left = list[str](), list[str](), dict(filled)
    skipped: int | None = None
    for line in template.splitlines():
        indent = len(line) - len(line.lstrip())
        if skipped is not None and line.strip() and indent > skipped:
            continue
        skipped = None
        if found := re.fullmatch(r" *(\w+):.*", line):
            stack = [*stack[: indent // 2], found[1]]
            path = ".".join(stack)
            if path in left:
                text = dump_values({found[1]: left.pop(path)})
                lines += [" " * indent + each for each in text.split("\n")[:-1]]
                skipped = indent
                continue
        lines.append(line)
    if left:
        raise KeyError(*left)
    return "\n".join(lines) + "\n"


def dump_values(values: Mapping[str, Any]) -> str:
    """Return the values as YAML that helm reads as the same values."""
    return str(yaml.dump(values, Dumper=_Indented, sort_keys=False, allow_unicode=True, width=10_000))


def _plain_settings(settings: Settings) -> dict[str, Any]:
    """Return the given settings without secrets, defaults, and what the chart decides."""
    found: dict[str, Any] = {}
    for section, body in to_jsonable_python(_without_secrets(settings.model_dump(exclude_unset=True))).items():
        if section in HOT:
            if body:
                found[section] = body
            continue
        model = getattr(settings, section)
        left_out = {*MANAGED.get(section, ()), *secret_fields(type(model))}
        left_out |= {name for name in body if isinstance(getattr(model, name), BaseModel)}
        kept = {name: value for name, value in body.items() if name not in left_out and value is not None}
        if "extra" in kept:
            kept["extra"] = {name: text for name, text in kept["extra"].items() if not SECRET_NAME.search(name)}
        if section == "embedded":
            kept = {name: value for name, value in kept.items() if name == "canary_seconds"}
        if section == "monitoring":
            kept = {name: value for name, value in kept.items() if name not in PORTS or value}
            kept["targets"] = {name: list(each) for name, each in model.targets.items() if name in OTHERS_TARGETS}
        kept = {name: value for name, value in kept.items() if value not in ({}, None)}
        if kept:
            found[section] = kept
    return found


def _without_secrets(value: Any) -> Any:
    """Return the value without secrets at any depth."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items() if not isinstance(item, SecretStr)}
    return value


def _secret_references(settings: Settings) -> dict[str, dict[str, dict[str, str]]]:
    """Return a reference for each given secret and file, and for the password of each given user."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for section in Settings.model_fields:
        model = getattr(settings, section)
        for name in secret_fields(type(model)) if isinstance(model, BaseModel) else ():
            user = getattr(model, name.replace("password", "username"), None) if name.endswith("password") else None
            if getattr(model, name) is not None or user is not None or (section, name) == PAGE_LOGIN:
                found.setdefault(section, {})[name] = {"name": f"tidegate-{section}", "key": name}
    return found


def part_logins(mqtt: MqttSettings) -> dict[str, Any]:
    """Return settings and secrets of the parts with a user of their own at the broker, such as `mqtt.canary`."""
    found: dict[str, Any] = {}
    for part in ("monitor", "canary"):
        login: MqttLogin | None = getattr(mqtt, part)
        if login is not None:
            names = set(secret_fields(type(login)))
            given = {name for name, value in login if value is not None}
            secrets = {name: {"name": f"tidegate-mqtt-{part}", "key": name} for name in sorted(names & given)}
            found[f"{part}.settings"] = {"mqtt": login.model_dump(mode="json", include=given - names)}
            found[f"{part}.secrets"] = {"mqtt": secrets}
    return found


def _member(settings: Settings) -> dict[str, Any]:
    return {
        "id": settings.gateway.gateway_id,
        "clientId": settings.mqtt.client_id,
        "subscriptions": list(settings.mqtt.subscriptions),
    }


def _memory(settings: Settings) -> dict[str, str]:
    """Return the memory of the parts for which settings decide it: a request, and more as the limit that kills them."""
    budget = memory_budget_mb(settings)
    # The budget holds for the load of an embedded run; here the window may be full.
    budget["gateway"] += 2 * settings.gateway.window_bytes // MEGABYTE
    found = {}
    for part in ("gateway", "stream"):
        found[f"{part}.resources.requests.memory"] = f"{budget[part]}Mi"
        found[f"{part}.resources.limits.memory"] = f"{round(budget[part] * SPARE)}Mi"
    return found


def _loopback_notes(settings: Settings) -> Iterator[str]:
    addresses = {"mqtt.host": settings.mqtt.host, "kafka.bootstrap_servers": settings.kafka.bootstrap_servers}
    for path, address in addresses.items():
        if address.startswith(LOOPBACK):
            yield f"{path} is {address}, which is the pod itself there: set settings.{path} in values.yaml."
