"""Targets that serve every declared metric with numbers that move, for a real Prometheus to look at."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from deploy.local.ports import choose_port
from ingest.contract.reasons import IgnoredReason, Reason
from monitoring.metrics.bench import BENCH
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.families import MetricFamily, ProbeCollector
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.jvm import AGENT, KAFKA_JVM, SPARK_JVM
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.metrics.stream import StreamMetrics

VALUES = {
    "request": ("Produce", "FetchConsumer"), "error": ("NONE", "NOT_LEADER_OR_FOLLOWER"), "area": ("heap", "nonheap"),
    "mode": ("idle", "iowait", "user"), "quantile": ("0.5", "0.99"), "delayedOperation": ("Produce", "Fetch"),
    "table": ("readings", "devices"),
}  # fmt: skip
"""Label values that queries name; of other labels one value is enough."""

GROWING = ("_total", "_count", "_sum")


@dataclass
class Prometheus:
    url: str
    process: "subprocess.Popen[bytes]"


class Feed:
    """The registries of the seven jobs; every scrape finds all counters grown."""

    def __init__(self) -> None:
        self.registries = {part: CollectorRegistry() for part in ("gateway", "stream", "canary", "monitor", "bench")}
        GatewayMetrics(self.registries["gateway"], reasons=list(Reason), ignored_reasons=list(IgnoredReason))
        stream = StreamMetrics(
            self.registries["stream"], query="land", tables=VALUES["table"], topics=("t",), chores=("ledger",)
        )
        stream.sql.add("hot")
        CanaryMetrics(self.registries["canary"])
        probes = MonitorMetrics(self.registries["monitor"]).families
        for part, registry in self.registries.items():
            build_info(registry, "1", part)
            process_metrics(registry)
        self._probed: list[tuple[ProbeCollector, str, tuple[MetricFamily, ...]]] = [
            (probes, probe, families) for probe, families in PROBES.items()
        ]
        for part, families in (("kafka", KAFKA_JVM), ("spark", SPARK_JVM)):
            self.registries[part] = CollectorRegistry()
            told = tuple(_as_told(each) for each in (*AGENT, *families))
            self._probed.append((ProbeCollector(self.registries[part], told), part, told))
        self._probed.append((ProbeCollector(self.registries["bench"], BENCH), "bench", BENCH))
        self._lock = threading.Lock()

    def text(self, part: str) -> bytes:
        """`/metrics` of a part."""
        with self._lock:
            for registry in self.registries.values():
                for collector in list(registry._collector_to_names):
                    _move(collector)
            for collector, probe, families in self._probed:
                collector.replace(probe, {each.name: list(_samples(each)) for each in families})
            return generate_latest(self.registries[part])


def _move(collector: Any) -> None:
    """Every series of a metric of prometheus_client: counters grow, histograms get an observation, gauges are set."""
    kind = getattr(collector, "_type", None)
    names = getattr(collector, "_labelnames", None)
    if kind is None or names is None:
        return
    if names and not collector._metrics:
        for values in product(*(VALUES.get(name, (f"a-{name}",)) for name in names)):
            collector.labels(*values)
    for series in collector._metrics.values() if names else [collector]:
        if kind == "counter":
            series.inc()
        elif kind == "histogram":
            series.observe(0.2)
        else:
            series.set(time.time() - 1 if collector._name.endswith("timestamp_seconds") else 1)


def _as_told(family: MetricFamily) -> MetricFamily:
    """prometheus_client appends `_total` to a counter's name; the agent does not, where the bean is called `_count`."""
    return family if family.name.endswith("_total") else replace(family, kind="gauge")


def _samples(family: MetricFamily) -> Iterator[tuple[tuple[str, ...], float]]:
    value = time.time() if family.name.endswith(GROWING) or family.name.startswith(("broker_", "kafka_topic_")) else 1.0
    yield from ((values, value) for values in product(*(VALUES.get(name, (f"a-{name}",)) for name in family.labels)))


def _serve(feed: Feed) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = feed.text(self.path.strip("/"))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture(scope="session")
def metrics_feed() -> Feed:
    """All that the seven jobs serve, with samples of every family."""
    feed = Feed()
    feed.text("gateway")
    return feed


@pytest.fixture(scope="session")
def start_prometheus() -> Iterator[Callable[..., Prometheus]]:
    """`start_prometheus(folder, configuration, rules)` runs the one of this machine on a free port until the tests end."""
    import shutil

    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus on this machine: apt-get install prometheus")
    started: list[Prometheus] = []

    def start(folder: Path, configuration: dict[str, Any], rules: dict[str, Any] | None = None) -> Prometheus:
        port, _ = choose_port(0)
        if rules is not None:
            (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
            configuration = configuration | {"rule_files": ["rules.yml"]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
        flags = [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        process = subprocess.Popen(["prometheus", *flags], cwd=folder)
        started.append(Prometheus(f"http://127.0.0.1:{port}", process))
        return started[-1]

    yield start
    for each in started:
        each.process.terminate()
        each.process.wait(20)


@pytest.fixture(scope="session")
def fed_prometheus(
    start_prometheus: Callable[..., Prometheus], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes all of a made-up pipeline each second, with our rules."""
    from monitoring.alerts.rules import rule_file
    from monitoring.monitoring_settings import MonitoringSettings

    feed = Feed()
    server = _serve(feed)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    target = f"127.0.0.1:{server.server_address[1]}"
    jobs = [
        {"job_name": f"tidegate-{part}", "metrics_path": f"/{part}", "static_configs": [{"targets": [target]}]}
        for part in feed.registries
    ]
    configuration = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "scrape_configs": jobs}
    yield start_prometheus(tmp_path_factory.mktemp("prometheus"), configuration, rule_file(MonitoringSettings()))
    server.shutdown()
    thread.join(5)
