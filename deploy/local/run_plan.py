"""Plan of an embedded run: ports, credentials, the settings that every part is started with, the parts."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local import artifacts
from deploy.local.broker import choose_broker, make_broker
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.page_access import PAGE_TOKEN, make_page_token
from deploy.local.part import PartSpec
from deploy.local.part_specs import pipeline_specs, watcher_spec
from deploy.local.port_claims import PortClaims
from deploy.local.ports import choose_port
from deploy.local.prometheus_servers import WATCHERS, make_watchers, watcher_obstacle
from deploy.local.runfile import RunFile
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml, write_private

__all__ = ["RunPlan", "choose_ports", "embedded_settings", "make_plan"]

STOP_ORDER: Final = (
    "prometheus",
    "alertmanager",
    "monitor",
    "fleet",
    "canary",
    "gateway",
    "stream",
    "kafka",
    "broker",
)
"""Order of a stop: watching parts go first, so that a requested stop raises no alarm."""
HOST: Final = "127.0.0.1"
EXPORTERS: Final = ("page", "gateway", "stream", "canary", "kafka_jmx", "spark_jmx")


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run before it starts. `remarks` are for the person, `notes` are standing warnings for `status`."""

    settings: Settings
    specs: Sequence[PartSpec]
    remarks: Sequence[str]
    notes: Sequence[dict[str, str]]
    stop_order: Sequence[str] = STOP_ORDER


def make_plan(
    settings: Settings,
    data: Path,
    run: RunFile,
    claims: PortClaims,
    *,
    port_offset: int,
    fleet: bool,
    prometheus: bool = True,
) -> RunPlan:
    """Choose ports and credentials, write config.toml and run.json, and say how each part is started.

    Raises:
        TidegateError: no Java, no broker, or no free port.
    """
    remarks: list[str] = []
    # A Prometheus that the person names is used instead of an embedded one.
    ours = prometheus and settings.monitoring.prometheus_url is None
    watchers = [name for name in WATCHERS if ours and watcher_obstacle(name) is None]
    run.ports = choose_ports(settings, port_offset, claims, remarks, watchers)
    username, password = _credentials(data / run.credentials)
    broker = make_broker(
        choose_broker(settings.embedded.broker),
        data / "mqtt",
        run.ports["mqtt"],
        users={username: password},
        port_v5=run.ports["mqtt_v5"],
        window=settings.gateway.window_messages,
    )
    run.ports["mqtt_v5"] = broker.port_v5
    for folder in ("profiles", "decoders"):
        (data / folder).mkdir(exist_ok=True)
    (data / "devices.jsonl").touch()
    make_page_token(data)
    effective = embedded_settings(settings, data, run.ports, username=username, password=password)
    write_private(data / run.config, to_toml(effective))
    run.write(data)
    kafka = EmbeddedKafka(
        data / "kafka",
        find_java(),
        run.ports["kafka"],
        run.ports["kafka_controller"],
        heap=effective.embedded.kafka_heap,
        flush_records=effective.embedded.kafka_flush_records,
        temporary=data / "tmp",
        jmx=(effective.monitoring.metrics_host, run.ports["kafka_jmx"]) if "kafka_jmx" in run.ports else None,
    )
    return RunPlan(
        settings=effective,
        specs=[
            *pipeline_specs(effective, data / run.config, broker, kafka, fleet=fleet),
            *(watcher_spec(watcher) for watcher in make_watchers(effective, data, run.ports)),
        ],
        remarks=remarks,
        notes=[{"part": "broker", "text": text} for text in broker.warnings] + _notes_of_agents(),
    )


def choose_ports(
    settings: Settings, offset: int, claims: PortClaims, remarks: list[str], watchers: Sequence[str]
) -> dict[str, int]:
    """A port for each listener of the run; `remarks` gets a sentence about each wish that did not come true."""
    embedded, monitoring = settings.embedded, settings.monitoring
    wishes = {
        "mqtt": (embedded.mqtt_port, HOST),
        "mqtt_v5": (embedded.mqtt_v5_port, HOST),
        "kafka": (embedded.kafka_port, HOST),
        "kafka_controller": (embedded.kafka_controller_port, HOST),
        "page": (monitoring.page_port, monitoring.host),
        "gateway": (monitoring.gateway_port, monitoring.metrics_host),
        "stream": (monitoring.stream_port, monitoring.metrics_host),
        "canary": (monitoring.canary_port, monitoring.metrics_host),
        **{f"{name}_jmx": (port, monitoring.metrics_host) for name, port in _agents(settings).items()},
        **{name: (getattr(embedded, f"{name}_port"), HOST) for name in watchers},
    }
    ports: dict[str, int] = {}
    for name, (wish, host) in wishes.items():
        preferred = wish + offset if wish else 0
        ports[name], remark = choose_port(preferred, host, taken=ports.values(), claim=claims.claim)
        if remark:
            remarks.append(f"{name + ':':<11} {remark}")
    return ports


def _agents(settings: Settings) -> dict[str, int]:
    """Preferred ports of the agents in the JVMs; 0 means no agent, and so does a jar that could not be fetched."""
    if not artifacts.jmx_agent().is_file():
        return {}
    wishes = {"kafka": settings.embedded.kafka_jmx_port, "spark": settings.embedded.spark_jmx_port}
    return {name: port for name, port in wishes.items() if port}


def _notes_of_agents() -> list[dict[str, str]]:
    if artifacts.jmx_agent().is_file():
        return []
    text = (
        "Kafka's and Spark's JVMs have no metrics, because the agent could not be fetched. The next start tries again."
    )
    return [{"part": "kafka", "text": text}]


def _credentials(file: Path) -> tuple[str, str]:
    """Made once per data folder, so that devices keep working over restarts."""
    if not file.exists():
        write_private(file, json.dumps({"username": "tidegate", "password": secrets.token_urlsafe(18)}) + "\n")
    found: dict[str, str] = json.loads(file.read_text("utf-8"))
    return found["username"], found["password"]


def _place(given: str | None, default: Path) -> Path:
    """Return the place that a person names, relative to where they are, else a place in the run's own folder."""
    return default if given is None else Path(given).absolute()


def embedded_settings(
    settings: Settings, data: Path, ports: dict[str, int], *, username: str, password: str
) -> Settings:
    """The person's settings with everything that the embedded run decides put in."""
    embedded = settings.embedded
    mqtt_port = ports["mqtt_v5" if settings.mqtt.protocol == "5" else "mqtt"]
    decided: dict[str, dict[str, Any]] = {
        "mqtt": {
            "host": HOST,
            "port": mqtt_port,
            "username": username,
            "password": password,
            "tls": False,
            "session_file": str(data / "gateway-session.json"),
        },
        "kafka": {
            "bootstrap_servers": f"{HOST}:{ports['kafka']}",
            "security_protocol": "PLAINTEXT",
            "partitions": embedded.kafka_partitions,
            "replication": 1,
            "retention_bytes": embedded.kafka_retention_bytes,
        },
        "gateway": {
            "profiles": str(_place(settings.gateway.profiles, data / "profiles")),
            "decoders": str(_place(settings.gateway.decoders, data / "decoders")),
            "device_registry": str(_place(settings.gateway.device_registry, data / "devices.jsonl")),
        },
        "stream": {
            "checkpoint": str(data / "checkpoints" / "land"),
            "streams_dir": str(_place(settings.stream.streams_dir, data / "streams")),
        },
        "lake": {"root": str(data / "tables")},
        "monitoring": {
            # An agent that is not there is not to be looked for, nor missed.
            **{f"{part}_port": ports.get(part, 0) for part in EXPORTERS if part in ports or part.endswith("_jmx")},
            "page_token_file": str(_place(settings.monitoring.page_token_file, data / PAGE_TOKEN)),
            **{f"{name}_url": f"http://{HOST}:{ports[name]}" for name in WATCHERS if name in ports},
        },
    }
    overrides = {f"{section}.{field}": value for section, fields in decided.items() for field, value in fields.items()}
    plain = settings.model_dump()
    overrides = {
        **{
            f"{section}.{field}": value
            for section, fields in plain.items()
            if section not in _WHOLE
            for field, value in fields.items()
        },
        **settings.model_dump(include=set(_WHOLE), exclude_unset=True),
        **overrides,
    }
    return load_settings(overrides=overrides, environ={})


_WHOLE: Final = ("mappings", "routes", "vendors")
"""Sections that are not tables of plain fields; unset values in them stay unset, because a mapping's cases inherit them."""
