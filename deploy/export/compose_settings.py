"""Settings of a pipeline whose parts are containers: addresses and folders inside of them, and no secrets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from deploy.export.parts import ProductionPart, input_paths, production_parts, secret_settings, without_secrets
from deploy.settings import Settings
from gateway.gateway_settings import MqttSettings
from ingest.kafka_settings import KafkaSettings
from lakehouse.paths import is_local, to_path
from monitoring.addresses import is_loopback
from monitoring.monitoring_settings import MonitoringSettings, Part

__all__ = ["SECRETS", "STATE", "ContainerSetup", "container_setup"]

Model = TypeVar("Model", bound=BaseModel)

STATE: Final = "/var/lib/tidegate"
"""Folder of the image with a folder for the volume of each part; nothing else can be written."""
SECRETS: Final = "/run/secrets"
MQTT_USER: Final = "tidegate"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside a container; Compose publishes single ports
_LOGINS: Final = ("sasl_", "ssl_", "oauth_")
_TOKENS: Final = {"page_token_file": "monitoring.page_token", "read_token_file": "monitoring.read_token"}
"""Settings with a token of the page -> name of the secret. Prometheus reads the page's own metrics with the token for readers."""


@dataclass(frozen=True, slots=True)
class ContainerSetup:
    """Settings for containers, and what they need from the host.

    Attributes:
        settings: settings without secrets, with the addresses and folders of the containers.
        parts: the parts by these settings.
        secrets: name of each secret -> services that read it.
        binds: part -> folders and files of the host that it uses under the same path, each with True if it writes them.
        own_broker: True if the MQTT broker is a service of the Compose file.
        own_kafka: the same for Kafka.
        mqtt_port: port of the own broker on the host.
    """

    settings: Settings
    parts: tuple[ProductionPart, ...]
    secrets: dict[str, tuple[str, ...]]
    binds: dict[str, dict[Path, bool]]
    own_broker: bool
    own_kafka: bool
    mqtt_port: int


def container_setup(settings: Settings) -> ContainerSetup:
    """Return the setup. A server with a loopback address becomes a service; any other address stays as it is."""
    own_broker = is_loopback(settings.mqtt.host)
    own_kafka = all(is_loopback(each.rpartition(":")[0]) for each in settings.kafka.bootstrap_servers.split(","))
    inside = _updated(
        without_secrets(settings),
        mqtt=_mqtt(settings, own=own_broker),
        kafka=_kafka() if own_kafka else {},
        stream={"checkpoint": _place(settings.stream.checkpoint, "stream/checkpoints/land")},
        lake={"root": _place(settings.lake.root, "stream/tables")},
        monitoring=_monitoring(settings.monitoring),
    )
    inside = _absolute(inside)
    parts = production_parts(inside)
    wanted = _updated(settings, mqtt=_mqtt(settings, own=own_broker), kafka=_kafka() if own_kafka else {})
    secrets: dict[str, list[str]] = {}
    for part in parts:
        for name in secret_settings(wanted, part.sections, part.name):
            secrets.setdefault(name, []).append(part.name)
    for field, name in _TOKENS.items():
        secrets[name] = ["monitor", "prometheus"] if field == "read_token_file" else ["monitor"]
    return ContainerSetup(
        settings=inside,
        parts=parts,
        secrets={name: tuple(users) for name, users in secrets.items()},
        binds={part.name: dict(_binds(inside, part)) for part in parts},
        own_broker=own_broker,
        own_kafka=own_kafka,
        mqtt_port=settings.mqtt.port,
    )


def _updated(settings: Settings, **sections: dict[str, Any]) -> Settings:
    return settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=update) for name, update in sections.items()}
    )


def _mqtt(settings: Settings, *, own: bool) -> dict[str, Any]:
    session = _place(settings.mqtt.session_file or "session.json", "gateway/session.json")
    if not own:
        return {"session_file": session}
    # The own broker has one user and serves no TLS: it is reached inside the network of the Compose file.
    fields = MqttSettings.model_fields.items()
    return {
        **{name: field.default for name, field in fields if _is_security(name, getattr(settings.mqtt, name))},
        "session_file": session,
        "host": "mosquitto",
        "port": 1883,
        "username": settings.mqtt.username or MQTT_USER,
    }


def _is_security(name: str, value: object) -> bool:
    """Return whether a field is about TLS or a certificate, or is the login of a single part."""
    return name.startswith(("tls", "key_")) or name.endswith("_file") or isinstance(value, BaseModel)


def _kafka() -> dict[str, Any]:
    defaults = {name: field.default for name, field in KafkaSettings.model_fields.items() if name.startswith(_LOGINS)}
    return {**defaults, "bootstrap_servers": "kafka:9092", "security_protocol": "PLAINTEXT", "replication": 1}


def _monitoring(settings: MonitoringSettings) -> dict[str, Any]:
    defaults = MonitoringSettings()
    ports = {name: getattr(defaults, name) for name in ("page_port", "gateway_port", "stream_port")}
    canary = defaults.canary_port if settings.canary_port else 0
    spark = settings.spark_jmx_port
    targets: dict[Part, tuple[str, ...]] = {
        **settings.targets,
        "gateway": (f"gateway:{ports['gateway_port']}",),
        "stream": (f"stream:{ports['stream_port']}",),
        "monitor": (f"monitor:{ports['page_port']}",),
        "canary": (f"canary:{canary}",) if canary else (),
        **({"spark": (f"stream:{spark}",)} if spark else {}),
    }
    tokens = {field: f"{SECRETS}/{name}" for field, name in _TOKENS.items()}
    return {
        **ports,
        **tokens,
        "canary_port": canary,
        "host": EVERYWHERE,
        "metrics_host": EVERYWHERE,
        "targets": targets,
        "prometheus_url": "http://prometheus:9090",
        "alertmanager_url": None,
        "kafka_jmx_port": 0,
        "state_dir": f"{STATE}/monitor",
    }


def _place(given: str, default: str) -> str:
    """Return a URI or an absolute path unchanged; a relative path, and one where the volumes are, is in a volume."""
    if not is_local(given) or (to_path(given).is_absolute() and not to_path(given).is_relative_to(STATE)):
        return given
    return f"{STATE}/{default}"


def _absolute(settings: Settings) -> Settings:
    """Return the settings with absolute paths of input files, which the containers see under the same path."""
    for setting in input_paths(settings, ("mqtt", "kafka", "gateway", "stream", "monitoring")):
        settings = _with_absolute(settings, setting.split("."))
    return settings


def _with_absolute(model: Model, path: Sequence[str]) -> Model:
    name, *rest = path
    value = getattr(model, name)
    changed = _with_absolute(value, rest) if rest else str(Path(value).absolute())
    return model.model_copy(update={name: changed})


def _binds(settings: Settings, part: ProductionPart) -> Iterator[tuple[Path, bool]]:
    for path in input_paths(settings, part.sections, part.name).values():
        if not path.is_relative_to(SECRETS):
            yield path, False
    for paths, writes in ((part.reads, False), (part.writes, True)):
        yield from ((path, writes) for path in paths if not path.is_relative_to(STATE))
