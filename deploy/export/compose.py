"""Files of `tidegate export compose`: the Compose file, the settings for it, configuration of its servers, and a README."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.export.compose_servers import GROUP, confined, health, mosquitto_configuration, server_services
from deploy.export.compose_settings import SECRETS, STATE, ContainerSetup, container_setup
from deploy.export.parts import ProductionPart, secret_extras
from deploy.kafka_users import rights_section
from deploy.settings import Settings
from deploy.settings_file import to_toml
from monitoring.grafana.export_files import grafana_files
from monitoring.prometheus.export_files import prometheus_files

__all__ = ["compose_files"]

SETTINGS: Final = "/etc/tidegate/tidegate.toml"
EXTRAS: Final = "tidegate.env"
_MADE: Final = "# Written by `tidegate export compose`. Run it again with --force to replace this file.\n"
_TEMPORARY_MB: Final = {"stream": 512}
"""Spark unpacks libraries and spills there."""
_PIDS: Final = {"stream": 1024}
_START_SECONDS: Final = {"stream": 180, "canary": 240}
"""A start of Spark with its warm-up takes 25 s on two free cores."""

_README: Final = """\
# Tidegate with Docker Compose

| file | content |
|---|---|
| `compose.yaml` | the services: {services} |
| `config/tidegate.toml` | settings of Tidegate's services, without a secret |
| `prometheus/`, `grafana/` | what `tidegate export prometheus` and `export grafana` write, with the addresses of these services |
{broker_row}
{servers}

## Image

One image has all parts. In a checkout of Tidegate: `make image` (or `docker build -f deploy/docker/Dockerfile -t {image} .`).
`TIDEGATE_IMAGE` names another one.

## Secrets

Each secret is a file with one line that group {group}, the group of the image, may read and nobody else:

    mkdir -m 0711 secrets
{secrets}
    sudo chown root:{group} secrets/* && sudo chmod 0440 secrets/*
{extras}
Each line waits for the secret and Ctrl-D. `openssl rand -hex 16` makes one.
{rights}
## Start

    docker compose up --detach --wait
    docker compose ps
    docker compose logs --follow gateway

Services start in the order of their health: broker and Kafka, then gateway and stream, then the canary. The page is at
http://127.0.0.1:9470/ (with `#token=` and the token of the page: also redrives), Grafana at http://127.0.0.1:3000/ (user
admin).{mqtt}

    docker compose exec stream tidegate sql --config {settings} "select * from readings limit 5"
    docker compose exec stream tidegate audit --config {settings}

After a change of `config/tidegate.toml`: `docker compose restart`. Routes, mappings and vendors apply without it.

## Limits

- Kafka is one node without TLS, inside the network of the Compose file: a power failure may lose its newest records. For
  production set `[kafka] bootstrap_servers` to a cluster of three and export again; Kafka is then no service here.
- Each container has a read-only root, no capabilities, no new privileges, a log of bounded size and a memory limit. Only Kafka
  can write its root, because its image writes the configuration when it starts. `docker compose down` keeps the data.
- Compose restarts a service after every exit, also after code 78 (configuration), with growing pauses. The log says why.
{binds}"""


def compose_files(settings: Settings, *, image: str) -> dict[str, str]:
    """Return path below the folder -> content. The same settings give the same bytes.

    Args:
        settings: those of the pipeline, with the addresses and paths of this machine.
        image: default name of Tidegate's image.
    """
    setup = container_setup(settings)
    watched = setup.settings.monitoring.model_copy(update={"alertmanager_url": "http://alertmanager:9093"})
    extras = secret_extras(settings, tuple(dict.fromkeys(s for part in setup.parts for s in part.sections)))
    services = server_services(setup) | {part.name: _service(setup, part, image, settings) for part in setup.parts}
    return {
        "compose.yaml": _MADE + _yaml(_compose(setup, services)),
        "config/tidegate.toml": _MADE + to_toml(setup.settings, only_given=True),
        **({"mosquitto/mosquitto.conf": mosquitto_configuration(setup.settings)} if setup.own_broker else {}),
        **{f"prometheus/{name}": text for name, text in prometheus_files(watched).items() if name != "README.md"},
        **{f"grafana/{name}": text for name, text in grafana_files(watched).items() if name != "README.md"},
        "README.md": _readme(setup, services, image, extras),
    }


def _compose(setup: ContainerSetup, services: dict[str, Any]) -> dict[str, Any]:
    named = {
        mount.partition(":")[0]
        for service in services.values()
        for mount in service["volumes"]
        if isinstance(mount, str) and not mount.startswith((".", "/"))
    }
    names = (*setup.secrets, "grafana.password")
    return {
        "services": services,
        "volumes": {name: {} for name in sorted(named)},
        "secrets": {name: {"file": f"./secrets/{name}"} for name in names},
    }


def _service(setup: ContainerSetup, part: ProductionPart, image: str, settings: Settings) -> dict[str, Any]:
    flags = ["--log-dir", f"{STATE}/stream/logs"] if part.name == "stream" else []
    names = [name for name, users in setup.secrets.items() if part.name in users]
    # Tokens of the page are named in the settings.
    passed = {name for name in names if not name.endswith("_token")}
    variables = {f"TIDEGATE_{name.upper().replace('.', '__')}": f"file:{SECRETS}/{name}" for name in sorted(passed)}
    after = {name: {"condition": "service_healthy"} for name in _earlier(setup, part)}
    return {
        "image": f"${{TIDEGATE_IMAGE:-{image}}}",
        "user": f"{GROUP}:{GROUP}",
        "command": ["tidegate", part.name, "--config", SETTINGS, *flags],
        **({"environment": variables} if variables else {}),
        **({"env_file": [f"./{EXTRAS}"]} if secret_extras(settings, part.sections) else {}),
        **({"ports": [f"127.0.0.1:{part.port}:{part.port}"]} if part.name == "monitor" else {}),
        **({"secrets": names} if names else {}),
        "volumes": _volumes(setup, part),
        **({"depends_on": after} if after else {}),
        "healthcheck": health(
            "python3", "-P", "-m", "deploy.docker.healthz", part.name, start_seconds=_START_SECONDS.get(part.name, 60)
        ),
        "stop_grace_period": f"{part.stop_seconds}s",
        **confined(
            memory_mb=part.memory_mb, pids=_PIDS.get(part.name, 256), temporary_mb=_TEMPORARY_MB.get(part.name, 64)
        ),
    }


def _earlier(setup: ContainerSetup, part: ProductionPart) -> list[str]:
    """Return the services that must be healthy first. The monitor waits for none: its page shows the start of the others."""
    kafka = ["kafka"] if setup.own_kafka else []
    broker = ["mosquitto"] if setup.own_broker else []
    return {"gateway": [*broker, *kafka], "stream": kafka, "canary": ["gateway", "stream"]}.get(part.name, [])


def _volumes(setup: ContainerSetup, part: ProductionPart) -> list[Any]:
    own = {
        "gateway": [f"gateway:{STATE}/gateway"],
        "stream": [f"stream:{STATE}/stream"],
        "canary": [f"stream:{STATE}/stream:ro"],
        "monitor": [f"stream:{STATE}/stream", f"monitor:{STATE}/monitor"],
    }[part.name]
    # `$` begins a variable in a Compose file.
    paths = [(str(path).replace("$", "$$"), writes) for path, writes in sorted(setup.binds[part.name].items())]
    binds = [
        {"type": "bind", "source": path, "target": path, **({} if writes else {"read_only": True})}
        for path, writes in paths
    ]
    return ["./config:/etc/tidegate:ro", *own, *binds]


def _readme(setup: ContainerSetup, services: dict[str, Any], image: str, extras: tuple[str, ...]) -> str:
    own = [name for name, is_own in (("the MQTT broker", setup.own_broker), ("Kafka", setup.own_kafka)) if is_own]
    stays = [name for name, is_own in (("The MQTT broker", setup.own_broker), ("Kafka", setup.own_kafka)) if not is_own]
    servers = f"{' and '.join(own)} at a loopback address in the settings became a service here." if own else ""
    servers += "".join(f" {name} stays at the address in the settings." for name in stays)
    binds: dict[Path, bool] = {}
    for found in setup.binds.values():
        for path, writes in found.items():
            binds[path] = binds.get(path, False) or writes
    variables = ", ".join("TIDEGATE_" + name.upper().replace(".", "__") for name in extras)
    return _README.format(
        services=", ".join(services),
        broker_row="| `mosquitto/mosquitto.conf` | a broker that keeps its queue over a kill |\n"
        if setup.own_broker
        else "",
        servers=servers.strip()[:1].upper() + servers.strip()[1:],
        image=image,
        group=GROUP,
        settings=SETTINGS,
        secrets="\n".join(
            f"    install -m 0400 /dev/stdin secrets/{name}" for name in (*setup.secrets, "grafana.password")
        ),
        extras=f"\nOptions of {', '.join(extras)} include secrets: give all of them as {variables}\n(a JSON object) in {EXTRAS}, "
        "with mode 0600.\n"
        if extras
        else "",
        mqtt=f"\nDevices connect to port {setup.mqtt_port} as {setup.settings.mqtt.username}; "
        "`TIDEGATE_MQTT_ADDRESS=0.0.0.0` opens it to other machines."
        if setup.own_broker
        else "",
        binds=_binds_text(binds),
        rights=rights_section(setup.settings),
    )


def _binds_text(binds: dict[Path, bool]) -> str:
    if not binds:
        return ""
    lines = "".join(f"    {path}{' (written)' if writes else ''}\n" for path, writes in sorted(binds.items()))
    return (
        f"\nThese folders and files of the host are used under their own path. User {GROUP} must be able to read them, and\n"
        f"to write those that are marked:\n\n{lines}"
    )


def _yaml(content: dict[str, Any]) -> str:
    # Without shared objects there are no aliases, so a person can change one service alone.
    return str(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False, allow_unicode=True, width=120))
