"""The processes of a pipeline in production: memory, time to stop, and the files, folders and secrets that each one uses."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

from pydantic import BaseModel, SecretStr

from deploy.local.budget import memory_budget_mb
from deploy.settings import Settings
from deploy.settings_file import SECRET_NAME
from lakehouse.paths import is_local, to_path

__all__ = [
    "PartName",
    "ProductionPart",
    "input_paths",
    "production_parts",
    "secret_extras",
    "secret_settings",
    "without_secrets",
]

PartName = Literal["gateway", "stream", "monitor", "canary"]
Model = TypeVar("Model", bound=BaseModel)

MEGABYTE: Final = 1024**2
SPARE: Final = 1.25
"""The budget is what a part takes; the limit at which the system ends it is a quarter above."""
DECODERS_MB: Final = 256
"""Memory of the processes of own decoders, which run inside the limit of the gateway."""
STOP_SECONDS: Final = 30
"""The gateway drains for up to 9 s, and the monitor ends within seconds."""
STREAM_STOP_SECONDS: Final = 90
"""The stream finishes its batch, and its JVM may take 20 s more."""
_FOLDERS: Final = ("profiles", "decoders", "streams_dir")
_WRITTEN: Final = ("session_file",)
_SHARED: Final = ("profiles", "device_registry")
"""Written by the gateway too, if it takes them from Kafka."""
_USES: Final[dict[PartName, tuple[str, ...]]] = {
    "gateway": ("mqtt", "kafka", "gateway"),
    "stream": ("kafka", "stream", "lake"),
    "monitor": ("mqtt", "kafka", "gateway", "stream", "lake", "monitoring"),
    "canary": ("mqtt", "lake"),
}
"""Sections of the settings whose files and secrets a part reads."""


@dataclass(frozen=True, slots=True)
class ProductionPart:
    """One process.

    Attributes:
        name: its command, `tidegate NAME`.
        title: what it does, as a short phrase.
        sections: sections of the settings whose files and secrets it reads.
        port: port of its `/healthz`; 0 for a free port that no other part knows.
        memory_mb: limit of its memory, with its child processes.
        stop_seconds: time between SIGTERM and a kill; longer than the part needs to drain.
        writes: local folders that it writes, as the settings name them. A relative path begins at the working directory.
        reads: local folders of other parts that it reads.
    """

    name: PartName
    title: str
    sections: tuple[str, ...]
    port: int
    memory_mb: int
    stop_seconds: int
    writes: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()


def production_parts(settings: Settings) -> tuple[ProductionPart, ...]:
    """Return the parts in the order of a reading's way. There is no canary if `monitoring.canary_port` is 0."""
    monitoring = settings.monitoring
    root = tuple(_local(settings.lake.root))
    # Each SQL stream has its checkpoint next to that of the landing.
    checkpoints = tuple(path.parent for path in _local(settings.stream.checkpoint))
    parts = (
        _part(settings, "gateway", "MQTT to Kafka", monitoring.gateway_port, writes=tuple(_written_by_gateway(settings))),
        _part(settings, "stream", "Kafka to tables", monitoring.stream_port, writes=(*root, *checkpoints)),
        _part(settings, "canary", "readings that measure freshness", monitoring.canary_port, reads=root),
        # It keeps the journal of redrives next to the tables.
        _part(settings, "monitor", "ops page and alerts", monitoring.page_port, writes=root),
    )  # fmt: skip
    return tuple(part for part in parts if part.name != "canary" or part.port)


def _written_by_gateway(settings: Settings) -> Iterator[Path]:
    if settings.mqtt.session_file:
        yield Path(settings.mqtt.session_file).parent
    gateway = settings.gateway
    if gateway.shared_inputs:
        if gateway.profiles is not None:
            yield Path(gateway.profiles)
        if gateway.device_registry is not None:
            yield Path(gateway.device_registry).parent


def _part(
    settings: Settings,
    name: PartName,
    title: str,
    port: int,
    *,
    writes: tuple[Path, ...] = (),
    reads: tuple[Path, ...] = (),
) -> ProductionPart:
    stop = STREAM_STOP_SECONDS if name == "stream" else STOP_SECONDS
    return ProductionPart(name, title, _USES[name], port, _memory_mb(settings, name), stop, writes, reads)


def _memory_mb(settings: Settings, name: PartName) -> int:
    budget = memory_budget_mb(settings)[name]
    if name == "gateway":
        # The budget holds for the load of an embedded run; here the window may be full.
        budget += settings.gateway.window_bytes // MEGABYTE + (DECODERS_MB if settings.gateway.decoders else 0)
    return round(budget * SPARE)


def _local(uri: str) -> Iterator[Path]:
    if is_local(uri):
        yield to_path(uri)


def input_paths(settings: BaseModel, sections: tuple[str, ...], part: str | None = None) -> dict[str, Path]:
    """Return the files and folders that these sections name and that are only read: setting -> path.

    A file that is replaced while it is read by name (the device registry) is given as its folder.

    Args:
        settings: the settings.
        sections: names of sections.
        part: only what this part uses; a table in a section, such as `mqtt.canary`, is for the part of its name.
    """
    found: dict[str, Path] = {}
    for setting, model, name, value in _values(settings, sections, part):
        if not isinstance(value, str) or name in _WRITTEN:
            continue
        if name in _SHARED and getattr(model, "shared_inputs", False):
            continue
        if name.endswith("_file") or name in _FOLDERS:
            found[setting] = Path(value)
        elif name == "device_registry":
            found[setting] = Path(value).parent
    return found


def secret_settings(settings: BaseModel, sections: tuple[str, ...], part: str | None = None) -> tuple[str, ...]:
    """Return the names `section.field` of the secrets that these sections need: those given, and passwords of given users.

    The arguments are those of `input_paths`.
    """
    found = []
    for setting, model, name, value in _values(settings, sections, part):
        field = type(model).model_fields[name]
        if SecretStr not in (field.annotation, *get_args(field.annotation)):
            continue
        user = getattr(model, name.replace("password", "username"), None)
        if value is not None or isinstance(user, str):
            found.append(setting)
    return tuple(found)


def secret_extras(settings: BaseModel, sections: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names `section.extra` of pass-through options of which one sounds like a secret."""
    return tuple(
        setting
        for setting, _, name, value in _values(settings, sections)
        if name == "extra" and isinstance(value, dict) and any(SECRET_NAME.search(option) for option in value)
    )


def without_secrets(settings: Model) -> Model:
    """Return the settings without all secrets, and without pass-through options that sound like one."""
    changed: dict[str, object] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            changed[name] = None
        elif isinstance(value, BaseModel):
            changed[name] = without_secrets(value)
        elif name == "extra" and isinstance(value, dict):
            changed[name] = {option: text for option, text in value.items() if not SECRET_NAME.search(option)}
    return settings.model_copy(update={name: new for name, new in changed.items() if new != getattr(settings, name)})


def _values(
    settings: BaseModel, sections: tuple[str, ...], part: str | None = None
) -> Iterator[tuple[str, BaseModel, str, object]]:
    """Yield the dotted name, the model, the field and the value of each setting, also of those in tables of a section."""
    for section in sections:
        yield from _fields(section, getattr(settings, section), part)


def _fields(prefix: str, model: BaseModel, part: str | None) -> Iterator[tuple[str, BaseModel, str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if not isinstance(value, BaseModel):
            yield f"{prefix}.{name}", model, name, value
        elif part in (None, name):
            yield from _fields(f"{prefix}.{name}", value, part)
