"""Prometheus' own configuration: targets, scrape intervals, rule file, Alertmanager."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from monitoring.addresses import Address, parse_address, reached_at
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.targets import JVMS, MetricsTarget, metrics_targets

__all__ = ["scrape_config"]

CLUSTER: Final = "tidegate"
"""Value of the label that separates several installations."""
BENCH_SECONDS: Final = 2


def scrape_config(
    settings: MonitoringSettings,
    *,
    rules: str = "rules.yml",
    every_seconds: int = 5,
    jvm_seconds: int = 15,
) -> dict[str, Any]:
    """Return the content of prometheus.yml.

    Args:
        settings: addresses of the parts, of Prometheus and of Alertmanager.
        rules: file with the rules, in the same folder.
        every_seconds: scrape interval of the parts.
        jvm_seconds: scrape interval of the JVMs.
    """
    jobs = [
        _job(f"tidegate-{part}", targets, jvm_seconds if part in JVMS else None)
        | (_login(settings.read_token_file) if part == "monitor" else {})
        for part, targets in metrics_targets(settings).items()
    ]
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
    if settings.bench_port:
        # Its cells last seconds. No alert fires while no benchmark runs: the rules name the jobs of the parts.
        own = reached_at("127.0.0.1", settings.bench_port)
        jobs.append(_job("tidegate-bench", [MetricsTarget(parse_address(own), own)], BENCH_SECONDS))
    if settings.prometheus_url:
        jobs.append(_job("prometheus", [_own_metrics(settings.prometheus_url)]))
    if settings.alertmanager_url:
        jobs.append(_job("alertmanager", [_own_metrics(settings.alertmanager_url)]))
        found["alerting"] = {"alertmanagers": [_told(parse_address(settings.alertmanager_url, path="/"))]}
    return found


def _job(name: str, targets: Sequence[MetricsTarget], every_seconds: int | None = None) -> dict[str, Any]:
    """Return one scrape job. Scheme and path are in the job if all targets share them, else with each target."""
    every = (
        {}
        if every_seconds is None
        else {"scrape_interval": f"{every_seconds}s", "scrape_timeout": f"{min(every_seconds, 10)}s"}
    )
    schemes, paths = {each.address.scheme for each in targets}, {each.address.path for each in targets}
    shared = {
        **({"scheme": "https"} if schemes == {"https"} else {}),
        **({"metrics_path": min(paths)} if len(paths) == 1 and paths != {"/metrics"} else {}),
    }
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for each in targets:
        labels = {
            **({"__scheme__": each.address.scheme} if len(schemes) > 1 else {}),
            **({"__metrics_path__": each.address.path} if len(paths) > 1 else {}),
            **({"instance": each.instance} if each.instance != each.address.netloc else {}),
        }
        groups.setdefault(tuple(labels.items()), []).append(each.address.netloc)
    static = [{"targets": asked, **({"labels": dict(labels)} if labels else {})} for labels, asked in groups.items()]
    return {"job_name": name, **every, **shared, "static_configs": static}


def _login(token_file: str | None) -> dict[str, Any]:
    """Return the login of the page's own metrics, whose token Prometheus reads from the same file."""
    if token_file is None:
        return {}
    return {"authorization": {"type": "Bearer", "credentials_file": str(Path(token_file).absolute())}}


def _own_metrics(url: str) -> MetricsTarget:
    """Return the metrics target of the server at this URL, which may have a path."""
    base = parse_address(url, path="")
    return MetricsTarget(Address(base.scheme, base.netloc, f"{base.path.rstrip('/')}/metrics"), base.netloc)


def _told(there: Address) -> dict[str, Any]:
    scheme = {"scheme": there.scheme} if there.scheme != "http" else {}
    prefix = {"path_prefix": there.path} if there.path != "/" else {}
    return {**scheme, **prefix, "static_configs": [{"targets": [there.netloc]}]}
