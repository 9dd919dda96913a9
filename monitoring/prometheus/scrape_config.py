"""Prometheus' own configuration: whom to ask and how often, which rules to follow, whom to tell."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from monitoring.settings import MonitoringSettings

__all__ = ["CLUSTER", "scrape_config", "scrape_targets"]

CLUSTER: Final = "tidegate"
"""The label that tells several installations apart."""
JVMS: Final = ("kafka", "spark")
"""Their answer costs more, so they are asked less often."""


def scrape_targets(settings: MonitoringSettings) -> dict[str, tuple[str, ...]]:
    """host:port of each part: what the settings name, else this host's ports; a port 0 is no target."""
    ports = {
        "gateway": settings.gateway_port,
        "stream": settings.stream_port,
        "canary": settings.canary_port,
        "monitor": settings.page_port,
        "kafka": settings.kafka_jmx_port,
        "spark": settings.spark_jmx_port,
    }
    own = {part: (address(settings.host, port),) for part, port in ports.items() if port}
    return {**own, **settings.targets}


def address(host: str, port: int) -> str:
    """As it stands in an URL; one that binds every address is reached by loopback."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def scrape_config(
    settings: MonitoringSettings,
    *,
    targets: Mapping[str, Sequence[str]] | None = None,
    rules: str = "rules.yml",
    every_seconds: int = 5,
    jvm_seconds: int = 15,
) -> dict[str, Any]:
    """The content of prometheus.yml.

    Args:
        settings: where the parts answer, and where Prometheus and Alertmanager do.
        targets: host:port list per part, where they are others.
        rules: file with the rules, beside it.
        every_seconds: how often each part is asked.
        jvm_seconds: how often the JVMs are.
    """
    chosen = scrape_targets(settings) if targets is None else targets
    jobs = [_job(f"tidegate-{part}", chosen[part], jvm_seconds if part in JVMS else None) for part in chosen]
    found: dict[str, Any] = {
        "global": {
            "scrape_interval": f"{every_seconds}s",
            "scrape_timeout": f"{min(every_seconds, 10)}s",
            "evaluation_interval": f"{min(every_seconds, 15)}s",
            "external_labels": {"cluster": CLUSTER},
        },
        "rule_files": [rules],
        "scrape_configs": jobs,
    }
    if settings.prometheus_url:
        jobs.append(_job("prometheus", [_netloc(settings.prometheus_url)]))
    if settings.alertmanager_url:
        there = _netloc(settings.alertmanager_url)
        jobs.append(_job("alertmanager", [there]))
        found["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [there]}]}]}
    return found


def _job(name: str, targets: Sequence[str], every_seconds: int | None = None) -> dict[str, Any]:
    every = {} if every_seconds is None else {"scrape_interval": f"{every_seconds}s", "scrape_timeout": "10s"}
    return {"job_name": name, **every, "static_configs": [{"targets": list(targets)}]}


def _netloc(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return address(parts.hostname or "127.0.0.1", port)
