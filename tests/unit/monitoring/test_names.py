"""What is declared is what is served: the same names and labels, for each process."""

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ingest.contract.reasons import IgnoredReason, Reason
from monitoring.metrics.bench import BENCH
from monitoring.metrics.canary import CanaryMetrics
from monitoring.metrics.families import ProbeCollector
from monitoring.metrics.gateway import GatewayMetrics
from monitoring.metrics.jvm import JVM
from monitoring.metrics.monitor import PROBES, MonitorMetrics
from monitoring.metrics.names import declared_samples
from monitoring.metrics.process_metrics import build_info, process_metrics
from monitoring.metrics.stream import StreamMetrics


@pytest.fixture
def registries() -> dict[str, CollectorRegistry]:
    """The registries of the five processes, as they are served."""
    made = {part: CollectorRegistry() for part in ("gateway", "stream", "canary", "monitor", "bench")}
    GatewayMetrics(made["gateway"], reasons=list(Reason), ignored_reasons=list(IgnoredReason))
    tables = ("readings", "rollups_1m")
    stream = StreamMetrics(made["stream"], query="land", tables=tables, topics=("t",), chores=("ledger",))
    stream.sql.add("hot")
    for figure in ("files", "small_files", "bytes", "snapshot_load", "maintained"):
        # Those are known when the table was looked at for the first time, and 0 would be wrong before.
        getattr(stream, f"table_{figure}").labels("readings").set(1)
    CanaryMetrics(made["canary"])
    monitor = MonitorMetrics(made["monitor"])
    for probe, families in PROBES.items():
        monitor.families.replace(probe, {each.name: [(tuple("x" for _ in each.labels), 1.0)] for each in families})
    bench = ProbeCollector(made["bench"], BENCH)
    bench.replace("all", {each.name: [(tuple("x" for _ in each.labels), 1.0)] for each in BENCH})
    for part, registry in made.items():
        build_info(registry, "1", part)
        process_metrics(registry)
    return made


def test_every_served_sample_is_declared_with_its_labels(registries: dict[str, CollectorRegistry]) -> None:
    for part, registry in registries.items():
        text = generate_latest(registry).decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert samples
        for sample in samples:
            assert set(declared_samples()[sample.name]) == set(sample.labels), (part, sample.name)


def test_every_declared_sample_is_served_by_some_process(registries: dict[str, CollectorRegistry]) -> None:
    served = {
        sample.name
        for registry in registries.values()
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }

    assert set(declared_samples()) - served - {family.name for family in JVM} == {"up"}


def test_no_series_says_only_when_another_one_was_made(registries: dict[str, CollectorRegistry]) -> None:
    Counter("tidegate_test", "A counter.", registry=registries["canary"]).inc()

    assert b"_created" not in generate_latest(registries["canary"])


def test_no_label_can_name_a_device_or_a_text() -> None:
    of_jvms = {label for family in JVM for label in family.labels}
    assert not {"device", "client_id", "clientid", "mqtt_topic"} & of_jvms
    closed = of_jvms | {
        "le", "qos", "reason", "why", "result", "stage", "hop", "query", "phase", "table", "topic", "chore", "stream",
        "version", "part", "implementation", "major", "minor", "patchlevel", "generation", "probe", "state", "code",
        "partition", "consumergroup", "mode", "mountpoint", "outcome", "server", "kind", "memory",
        "scenario", "target", "cell", "percentile",
    }  # fmt: skip

    assert {label for labels in declared_samples().values() for label in labels} <= closed
