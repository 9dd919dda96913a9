"""Plan of an embedded run: ports, credentials, the settings of all parts, and the specification of each part.

The specification of a part says how to start it, and how to see that it is ready or hangs.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local import artifacts
from deploy.local.announce import metrics_urls
from deploy.local.broker import EmbeddedBroker
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.monitor_client import PAGE_TOKEN, make_page_token, page_address
from deploy.local.part import PartSpec
from deploy.local.ports import PortClaims, choose_port
from deploy.local.prometheus_servers import WATCHERS, Watcher, make_watchers, watcher_obstacle
from deploy.local.run_broker import make_run_broker, name_for_devices, notes_of_broker
from deploy.local.run_logins import DEVICES_USER, RunLogins, load_logins
from deploy.local.run_security import ConfigFiles, decide_security, make_security, write_settings
from deploy.local.runfile import RunFile
from deploy.settings import Settings, load_settings
from monitoring.scrape import SILENT, healthz

__all__ = ["RunPlan", "choose_ports", "embedded_settings", "make_plan", "reports_hang"]

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
"""Order of a stop: the parts that watch others stop first, so that a requested stop fires no alert."""
HOST: Final = "127.0.0.1"
EMBEDDED_PROFILE: Final = "balanced"
"""Profile of the stream of an embedded run whose settings name none."""
EXPORTERS: Final = ("page", "gateway", "stream", "canary", "kafka_jmx", "spark_jmx")
_WHOLE: Final = ("mappings", "routes", "vendors")
"""Sections that are not tables of plain fields; unset values in them stay unset, because a mapping's cases inherit them."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run before it starts. `remarks` are sentences for the person; `notes` are warnings that `status` shows all the time."""

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
    secure: bool = False,
) -> RunPlan:
    """Choose ports and credentials, write config.toml and run.json, and specify each part.

    `secure` secures the run. A folder that was secured once stays so, also without it.

    Raises:
        TidegateError: Java or a broker is missing, no port is free, or the broker cannot serve other machines as it should.
    """
    remarks: list[str] = []
    secure = decide_security(settings, data, run, remarks, asked=secure)
    # A Prometheus that the person names is used instead of an embedded one.
    ours = prometheus and settings.monitoring.prometheus_url is None
    watchers = [name for name in WATCHERS if ours and watcher_obstacle(name) is None]
    run.ports = choose_ports(settings, port_offset, claims, remarks, watchers, secure=secure)
    has_session = (data / "mqtt" / "mosquitto.db").exists()
    logins = load_logins(data / run.credentials, settings.mqtt, has_session=has_session, secure=secure)
    tls, profile = make_security(data, run.ports) if secure else (None, None)
    broker = make_run_broker(settings, data / "mqtt", run.ports, logins, tls)
    run.ports["mqtt_v5"], run.has_access_list = broker.port_v5, broker.has_access_list
    for folder in ("profiles", "decoders"):
        (data / folder).mkdir(exist_ok=True)
    (data / "devices.jsonl").touch()
    make_page_token(data)
    effective = embedded_settings(settings, data, run.ports, logins)
    files = write_settings(effective, data, run, logins)
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
        profile=profile,
    )
    return RunPlan(
        settings=effective,
        specs=[
            *_pipeline_specs(effective, files, broker, kafka, fleet=fleet),
            *(_watcher_spec(watcher) for watcher in make_watchers(effective, data, run.ports)),
        ],
        remarks=remarks,
        notes=[*notes_of_broker(broker, logins, settings.embedded), *_notes_of_agents()],
    )


def choose_ports(
    settings: Settings,
    offset: int,
    claims: PortClaims,
    remarks: list[str],
    watchers: Sequence[str],
    *,
    secure: bool = False,
) -> dict[str, int]:
    """Return a port for each listener of the run; `remarks` gets a sentence for each port that is not the preferred one."""
    embedded, monitoring = settings.embedded, settings.monitoring
    # The port of MQTT with TLS is for the listener that other machines reach, if there is one.
    own_tls = secure and not embedded.mqtt_cert_file
    wishes = {
        "mqtt": (
            embedded.mqtt_tls_port if own_tls else embedded.mqtt_port,
            embedded.mqtt_listen if embedded.mqtt_allow_plaintext else HOST,
        ),
        "mqtt_v5": (embedded.mqtt_v5_port, HOST),
        **({"mqtt_tls": (embedded.mqtt_tls_port, embedded.mqtt_listen)} if embedded.mqtt_cert_file else {}),
        "kafka": (embedded.kafka_port, HOST),
        "kafka_controller": (embedded.kafka_controller_port, HOST),
        **({"kafka_internal": (0, HOST)} if secure else {}),
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
    """Return the preferred ports of the agents in the JVMs. No agent runs if its port is 0 or its jar was not fetched."""
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


def _place(given: str | None, default: Path) -> Path:
    """Return the place that a person names, relative to the working directory, or else the default in the run's folder."""
    return default if given is None else Path(given).absolute()


def embedded_settings(settings: Settings, data: Path, ports: dict[str, int], logins: RunLogins) -> Settings:
    """Return the person's settings, completed and overridden by what the embedded run decides."""
    embedded = settings.embedded
    mqtt_port = ports["mqtt_v5" if settings.mqtt.protocol == "5" else "mqtt"]
    decided: dict[str, dict[str, Any]] = {
        "mqtt": {
            "host": HOST,
            "port": mqtt_port,
            **logins.login("gateway"),
            **dict.fromkeys(("ca_file", "crl_file", "cert_file", "key_file", "key_password")),
            "tls": False,
            "client_id": logins.client_id,
            "canary": logins.login("canary"),
            "monitor": logins.login("monitor"),
            "devices": logins.login(DEVICES_USER),
            "session_file": str(data / "gateway-session.json"),
        },
        "embedded": {
            "mqtt_name": name_for_devices(embedded),
            "mqtt_ca_file": embedded.mqtt_ca_file and str(Path(embedded.mqtt_ca_file).absolute()),
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
            # A laptop's fleet is small, and a batch for each of its messages would keep more than a core busy.
            "profile": settings.stream.profile if "profile" in settings.stream.model_fields_set else EMBEDDED_PROFILE,
        },
        "lake": {"root": str(data / "tables")},
        "monitoring": {
            # Nobody may scrape or miss an agent that does not run.
            **{f"{part}_port": ports.get(part, 0) for part in EXPORTERS if part in ports or part.endswith("_jmx")},
            "page_token_file": str(_place(settings.monitoring.page_token_file, data / PAGE_TOKEN)),
            **(
                {"read_token_file": str(Path(reads).absolute())}
                if (reads := settings.monitoring.read_token_file)
                else {}
            ),
            **{f"{name}_url": f"http://{HOST}:{ports[name]}" for name in WATCHERS if name in ports},
        },
    }
    if logins.kafka:
        # Imported here: a plain run does not pay for it.
        from deploy.local.secured_run import secured_settings

        for section, fields in secured_settings(data, logins).items():
            decided[section] |= fields
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


def _pipeline_specs(
    settings: Settings, files: ConfigFiles, broker: EmbeddedBroker, kafka: EmbeddedKafka, *, fleet: bool
) -> list[PartSpec]:
    """Return the parts of a run in the order in which `status` shows them."""
    seconds = settings.embedded.stop_timeout_seconds
    urls = {part: url.replace("/metrics", "/healthz") for part, url in metrics_urls(settings).items()}

    def hop(name: str, *after: str, flags: Sequence[str] = ()) -> PartSpec:
        return PartSpec(
            name=name,
            command=_ours(name, "--config", files.of(name), *flags),
            ready=_healthy(urls[name]),
            after=after,
            stop_seconds=seconds,
            stalled=reports_hang,
            stalls_with=("kafka",),
        )

    specs = [
        PartSpec(
            name="broker",
            command=_prepared(broker),
            ready=_answers(broker, f"{broker.kind} "),
            stop_seconds=seconds,
            stalled=reports_hang,
        ),
        PartSpec(
            name="kafka",
            command=_prepared(kafka),
            ready=_answers(kafka),
            stop_seconds=max(seconds, 30.0),
            stalled=reports_hang,
        ),
        PartSpec(
            name="topics",
            command=_ours(
                "make-topics",
                "--config",
                files.of("admin"),
                *(["--logins", str(files.logins)] if files.secured else []),
            ),
            ready=_never,
            after=("kafka",),
            one_shot=True,
        ),
        hop("gateway", "topics", "broker"),
        # Spark starts at once: it takes longest and waits for Kafka by itself. It cannot wait for its user's rights.
        hop("stream", *(["topics"] if files.secured else []), flags=("--log-dir", str(files.shared.parent / "logs"))),
    ]
    if fleet and settings.embedded.fleet_devices:
        specs.append(_fleet(settings, files.of("fleet")))
    return [*specs, hop("canary", "gateway", "stream"), _monitor(settings, files.of("monitor"))]


def _monitor(settings: Settings, config: str) -> PartSpec:
    """Return the monitor, which needs no other part, so that its page shows the start of all the others."""
    return PartSpec(
        name="monitor",
        command=_ours("monitor", "--config", config),
        ready=_healthy(f"{page_address(settings.monitoring)}healthz"),
        stop_seconds=10.0,
        stalled=reports_hang,
    )


def _watcher_spec(watcher: Watcher) -> PartSpec:
    """Return Prometheus or Alertmanager; the run is ready without them."""
    return PartSpec(
        name=watcher.name,
        command=_prepared(watcher),
        ready=watcher.ready,
        stop_seconds=10.0,
        stalled=reports_hang,
        optional=True,
    )


def _fleet(settings: Settings, config: str) -> PartSpec:
    devices, rate = settings.embedded.fleet_devices, settings.embedded.fleet_rate
    command = _ours("device", "simulate", "--config", config, "--devices", str(devices), "--rate", f"{rate:g}")
    return PartSpec(
        name="fleet", command=command, ready=lambda: (True, f"{devices} devices, {rate:g} messages/s"),
        after=("gateway", "stream"), stop_seconds=10.0,
    )  # fmt: skip


def _ours(*arguments: str) -> Callable[[], Sequence[str]]:
    # -P: a folder named like one of our packages in the working directory must not be imported.
    return lambda: [sys.executable, "-P", "-m", "deploy.cli", *arguments]


def _prepared(server: EmbeddedBroker | EmbeddedKafka | Watcher) -> Callable[[], Sequence[str]]:
    def command() -> Sequence[str]:
        server.prepare()
        return server.command()

    return command


def _answers(server: EmbeddedBroker | EmbeddedKafka, kind: str = "") -> Callable[[], tuple[bool, str]]:
    def ready() -> tuple[bool, str]:
        return (True, f"{kind}on {HOST}:{server.port}") if server.ready() else (False, SILENT)

    return ready


def reports_hang(detail: str) -> bool:
    """Return whether this detail means that the part hangs: it does not answer, or reports that its own loop stopped.

    A part that waits for another one reports that instead: a restart would not help.
    """
    return detail == SILENT or "stalled" in detail or "has not turned" in detail


def _healthy(url: str) -> Callable[[], tuple[bool, str]]:
    return lambda: healthz(url)


def _never() -> tuple[bool, str]:
    return False, ""
