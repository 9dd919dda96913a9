"""Quantiles, totals and health as another process's exporter tells them."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from monitoring.exporter import Exporter
from monitoring.scrape import healthz, histogram_quantiles, scrape


def test_reads_an_exporter_and_finds_totals_and_quantiles(registry: CollectorRegistry) -> None:
    counter = Counter("seen_total", "Seen.", ["kind"], registry=registry)
    latency = Histogram("latency_seconds", "Latency.", buckets=(0.1, 0.2, 0.4), registry=registry)
    counter.labels("a").inc(2)
    counter.labels("b").inc(3)
    exporter = Exporter(registry, healthy=lambda: (False, "waits for Kafka"))
    base = f"http://127.0.0.1:{exporter.port}"
    before = scrape(f"{base}/metrics")
    for _ in range(10):
        latency.observe(0.15)
    now = scrape(f"{base}/metrics")
    assert now is not None
    assert before is not None
    assert now.total("seen_total") == 5
    assert now.total("seen_total", kind="b") == 3
    assert now.by_label("seen_total", "kind") == {"a": 2, "b": 3}
    quantiles = histogram_quantiles(now, before, "latency_seconds", (0.5, 1.0))
    assert quantiles is not None
    assert [round(value, 3) for value in quantiles] == [0.15, 0.2]
    assert histogram_quantiles(now, now, "latency_seconds", (0.5,)) is None
    assert healthz(f"{base}/healthz") == (False, "waits for Kafka")
    exporter.close()
    assert scrape(f"{base}/metrics") is None
    assert healthz(f"{base}/healthz") == (False, "does not answer yet")
