"""Output of `up` when it is ready: the page, MQTT address and credentials, tables, metrics, the next three commands."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deploy.command_line import commands_for_data
from deploy.local.embedded_settings import EmbeddedSettings
from deploy.local.monitor_client import page_address, page_token
from deploy.settings import Settings
from monitoring.addresses import reached_at

__all__ = ["announcement", "metrics_urls", "render_announcement"]

FIRST_QUERY: Final = "select device, metric, value, event_time from readings order by landed_at desc limit 5"


def metrics_urls(settings: Settings) -> dict[str, str]:
    """`/metrics` address per part."""
    monitoring = settings.monitoring
    ports = {"gateway": monitoring.gateway_port, "stream": monitoring.stream_port, "canary": monitoring.canary_port}
    return {part: f"http://{reached_at(monitoring.metrics_host, port)}/metrics" for part, port in ports.items()}


def announcement(settings: Settings, data: Path, ports: Mapping[str, int]) -> dict[str, Any]:
    """Return what a person needs, as data. Most devices speak MQTT 3.1.1, so its port comes first."""
    mqtt, monitoring, embedded = settings.mqtt.with_login("devices"), settings.monitoring, settings.embedded
    line = commands_for_data(data, is_default=data == Path("tidegate-data").absolute())
    name, where = line.name, f" {line.where}" if line.where else ""
    return {
        "page": page_address(monitoring, token=page_token(monitoring)),
        "prometheus": monitoring.prometheus_url if "prometheus" in ports else None,
        "mqtt": {
            "url": f"{'mqtts' if mqtt.tls else 'mqtt'}://{mqtt.host}:{ports['mqtt']}",
            "host": mqtt.host,
            "port": ports["mqtt"],
            "port_v5": ports["mqtt_v5"],
            "username": mqtt.username,
            "password": mqtt.password.get_secret_value() if mqtt.password else None,
            "topic": "tidegate/v1/<device>/readings",
            "network_url": _network_url(embedded, ports),
            "ca_file": embedded.mqtt_ca_file or mqtt.ca_file,
        },
        "kafka": {
            "bootstrap_servers": settings.kafka.bootstrap_servers,
            "security_protocol": settings.kafka.security_protocol,
            "username": settings.kafka.sasl_username,
            "ca_file": settings.kafka.ssl_ca_file,
            "settings_file": str(data / "config.toml"),
        },
        "tables": settings.lake.root,
        "metrics": metrics_urls(settings),
        "next": [
            f"{name} status{where}",
            f'{name} sql "{FIRST_QUERY}"{where}',
            f"{name} down{where}",
        ],
    }


def _network_url(embedded: EmbeddedSettings, ports: Mapping[str, int]) -> str | None:
    """Return the address for other machines; None if only this one reaches the broker."""
    if not embedded.serves_network:
        return None
    scheme, port = ("mqtts", ports["mqtt_tls"]) if "mqtt_tls" in ports else ("mqtt", ports["mqtt"])
    name = embedded.mqtt_name or embedded.mqtt_listen
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def render_announcement(told: Mapping[str, Any], *, as_json: bool, ready: bool = True) -> str:
    """Render the announcement in lines, or as JSON; the page comes first, because it shows all the rest."""
    if as_json:
        return json.dumps({"ready": ready, **told}, indent=2)
    mqtt, kafka = told["mqtt"], told["kafka"]
    version_5 = "" if mqtt["port_v5"] == mqtt["port"] else f"  (MQTT 5 on port {mqtt['port_v5']})"
    lines = [
        f"Page     {told['page']}",
        f"MQTT     {mqtt['url']}{version_5}  user {mqtt['username']}  password {mqtt['password']}",
        *([f"Devices  {mqtt['network_url']}  from other machines"] if mqtt["network_url"] else []),
        *(_secured_lines(kafka) if kafka["security_protocol"] != "PLAINTEXT" else []),
        f"Tables   {told['tables']}",
        f"Metrics  {'  '.join(told['metrics'].values())}",
        *([f"Alerts   {told['prometheus']}/alerts"] if told["prometheus"] else []),
        *(f"{'Next' if number == 0 else '':<7}  {command}" for number, command in enumerate(told["next"])),
    ]
    return "\n".join(lines)


def _secured_lines(kafka: Mapping[str, Any]) -> list[str]:
    """Return the lines that a client of a secured run needs; the password is in the settings file only."""
    login = f"user {kafka['username']}  password in {kafka['settings_file']}"
    return [
        f"Kafka    {kafka['bootstrap_servers']}  {kafka['security_protocol']}  {login}",
        f"Trust    {kafka['ca_file']}  signed the certificates of MQTT and Kafka",
    ]
