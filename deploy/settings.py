"""All settings as one frozen model, and the origin of each value.

Order: defaults < TOML file < environment `TIDEGATE_<SECTION>__<FIELD>` < flags. A secret may name a file that holds it:
`file:PATH`. This is the only module that reads the environment. All errors of a configuration are reported at once, each with
its origin, key and a suggestion.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from deploy.local.embedded_settings import EmbeddedSettings
from deploy.secret_values import note_secrets
from deploy.settings_faults import ValueOrigins, config_error, describe_faults
from deploy.settings_file import mask_extra, read_toml
from deploy.settings_secrets import read_secret_files
from gateway.decoders.mapping.extends import resolve_extends
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.vendor_settings import VendorSettings
from gateway.gateway_settings import GatewaySettings, MqttSettings, ReceiptSettings, RouteSettings
from gateway.mqtt.session_text import shown_client_id
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import use_s3
from monitoring.monitoring_settings import MonitoringSettings
from streaming.stream_settings import StreamSettings

__all__ = [
    "Settings",
    "child_environment",
    "data_dir",
    "environment_name",
    "fault_folder",
    "java_locale",
    "load_settings",
    "masked_settings",
]

ENV_PREFIX: Final = "TIDEGATE_"


class Settings(BaseModel):
    """One section per hop; a TOML file holds the same names."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Tidegate settings")

    mqtt: MqttSettings = Field(default_factory=MqttSettings, description="The MQTT broker and the gateway's session.")
    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description="The Kafka cluster and its topics.")
    vendors: dict[str, VendorSettings] = Field(
        default_factory=dict,
        description="Rules per device vendor for the objects that its payload decoders return. They apply in mappings "
        "whose `vendors` names the vendor.",
    )
    gateway: GatewaySettings = Field(
        default_factory=GatewaySettings,
        validate_default=True,
        description="Limits for messages, devices and memory of the gateway.",
    )
    mappings: dict[str, MappingSettings] = Field(
        default_factory=dict,
        description="Decoders described in TOML, by name. A route uses one by naming it in `mapping`.",
    )
    routes: tuple[RouteSettings, ...] = Field(
        (), description="Rules that assign a decoder to topics, tried in this order. The first match is used."
    )
    receipts: ReceiptSettings = Field(
        default_factory=ReceiptSettings, description="Receipts: the gateway's answers to devices, and their limits."
    )
    stream: StreamSettings = Field(
        default_factory=StreamSettings, description="The Spark process that writes the tables."
    )
    lake: LakeSettings = Field(default_factory=LakeSettings, description="Location and retention of the Delta tables.")
    monitoring: MonitoringSettings = Field(
        default_factory=MonitoringSettings, description="Metrics, the monitor, its ops page and the objectives."
    )
    embedded: EmbeddedSettings = Field(
        default_factory=EmbeddedSettings, description="The embedded run that `tidegate up` starts."
    )

    @field_validator("gateway")
    @classmethod
    def _put_vendors_in(cls, gateway: GatewaySettings, info: ValidationInfo) -> GatewaySettings:
        return gateway.with_vendors(info.data.get("vendors") or {})

    @field_validator("routes")
    @classmethod
    def _put_mappings_in(cls, routes: tuple[RouteSettings, ...], info: ValidationInfo) -> tuple[RouteSettings, ...]:
        """Replace the name of an own mapping in a route by the mapping; other names are those of shipped mappings."""
        own = info.data.get("mappings") or {}

        def mapping_of(route: RouteSettings) -> MappingSettings | str | None:
            given = route.mapping
            name = given if isinstance(given, str) else ""
            found = own.get(name) if isinstance(given, str) else given
            if found is None:
                return given
            found = resolve_extends(name, found, own)
            if found.extends is None:
                return found
            from gateway.routes import shipped_base

            # Resolve it here: the file that parts start with holds the final mapping and extends nothing.
            return shipped_base(found)

        return tuple(
            route if (mapping := mapping_of(route)) is route.mapping else route.model_copy(update={"mapping": mapping})
            for route in routes
        )


def load_settings(
    file: Path | None = None,
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the effective settings. Where the tables are in an object store, readers in this process have its login then.

    Args:
        file: a TOML file, or None for the defaults.
        overrides: values of flags, keyed `section.field`; they win.
        environ: replaces the process environment, for tests.

    Raises:
        ConfigError: the file is unreadable or not TOML, a key is unknown or a value is wrong, or a file with a secret cannot be
            used. The text lists all errors.
    """
    values: dict[str, Any] = {}
    origins = ValueOrigins(file)
    if file is not None:
        values = read_toml(file)
    _merge_environment(values, os.environ if environ is None else environ, origins)
    for path, value in (overrides or {}).items():
        _set(values, path.split("."), value)
        origins.note(path, f"flag {path}")
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # Not chained: pydantic's own text repeats values, and one of them may be a secret.
        raise config_error(describe_faults(error, Settings, origins)) from None
    settings = read_secret_files(settings, origins)
    note_secrets(settings)
    use_s3(settings.lake)
    return settings


def environment_name(path: str) -> str:
    """Return the environment variable that sets `section.field`."""
    return ENV_PREFIX + path.replace(".", "__").upper()


def _merge_environment(values: dict[str, Any], environ: Mapping[str, str], origins: ValueOrigins) -> None:
    for name, text in sorted(environ.items()):
        if not name.startswith(ENV_PREFIX) or "__" not in name:
            continue
        path = name.removeprefix(ENV_PREFIX).lower().split("__")
        _set(values, path, _structured(text))
        origins.note(".".join(path), f"environment {name}")


def _structured(text: str) -> object:
    """Parse lists and tables as JSON; leave everything else as text, which pydantic converts by the field's type."""
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _set(values: dict[str, Any], path: list[str], value: object) -> None:
    for part in path[:-1]:
        inner = values.get(part)
        if not isinstance(inner, dict):
            inner = values[part] = {}
        values = inner
    values[path[-1]] = value


def masked_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values for people; secrets are shown as `**********`."""
    plain: dict[str, Any] = settings.model_dump(mode="json")
    for section in plain.values():
        if isinstance(section, dict) and "extra" in section:
            section["extra"] = mask_extra(section["extra"])
    plain["mqtt"]["client_id"] = shown_client_id(settings.mqtt.client_id)
    return plain


def data_dir(flag: Path | None) -> Path:
    """Return the folder of an embedded run: --data, else TIDEGATE_DATA, else ./tidegate-data."""
    chosen = flag if flag is not None else Path(os.environ.get("TIDEGATE_DATA") or "tidegate-data")
    if chosen.exists() and not chosen.is_dir():
        msg = f"--data {chosen} is a file, not a folder. Name a folder; a missing one is created."
        raise ConfigError(msg)
    return chosen.expanduser().absolute()


def child_environment(run_id: str, data: Path | None = None) -> dict[str, str]:
    """Return the environment of a part of the embedded run whose folder is `data`.

    Settings are left out: the part's own file already holds them, and its ports may differ from those in the environment.
    The run id marks the process, so that a stop finds it even when its parent is gone. Temporary files go into the run's
    own folder; the next start deletes those that a killed part left there.
    """
    kept = {name: value for name, value in os.environ.items() if not (name.startswith(ENV_PREFIX) and "__" in name)}
    places = {"TMPDIR": str(data / "tmp"), "TIDEGATE_LOGS": str(data / "logs")} if data is not None else {}
    return {**kept, **java_locale(), **places, "TIDEGATE_RUN_ID": run_id, "TZ": "UTC", "PYTHONUNBUFFERED": "1"}


def java_locale(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that make Java read file names as UTF-8; in the C locale it cannot open non-ASCII paths."""
    given = os.environ if environ is None else environ
    locale = next((given[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if given.get(name)), "C")
    return {"LC_ALL": "C.UTF-8"} if locale in ("C", "POSIX") else {}


def fault_folder(arguments: Sequence[str]) -> Path:
    """Return the folder for the traceback of an unexpected error: the logs of the run, else the temporary folder.

    Args:
        arguments: those of the command, which may name the run by --data.
    """
    named = next((Path(value) for flag, value in pairwise(arguments) if flag == "--data"), None)
    named = named or next((Path(text[7:]) for text in arguments if text.startswith("--data=")), None)
    logs = Path(os.environ.get("TIDEGATE_LOGS") or data_dir(named) / "logs")
    return logs if logs.is_dir() else Path(tempfile.gettempdir())
