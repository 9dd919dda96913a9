"""Quantiles, totals and health as another process's exporter tells them."""

import http.client
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.exporter import MOST_CONNECTIONS, Exporter
from monitoring.scrape import SILENT, healthz, histogram_quantiles, scrape


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


def test_a_process_that_waits_is_alive_and_one_that_hangs_is_not(registry: CollectorRegistry) -> None:
    """A liveness probe would else restart a gateway for as long as its broker is away."""
    alive = True
    exporter = Exporter(registry, healthy=lambda: (False, "waits for Kafka"), alive=lambda: alive)
    base = f"http://127.0.0.1:{exporter.port}"
    assert healthz(f"{base}/healthz") == (False, "waits for Kafka")
    assert healthz(f"{base}/livez") == (True, "waits for Kafka")
    alive = False
    assert healthz(f"{base}/livez") == (False, "waits for Kafka")
    exporter.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nhalf",
        b"SSH-2.0-something\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
        b"HTTP/1.1 200 OK\r\nContent-Length: nonsense\r\n\r\nx { not metrics",
    ],
)
def test_half_an_answer_and_another_protocol_are_no_answer(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _address = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert scrape(f"{url}/metrics", timeout_seconds=5) is None
        healthy, words = healthz(f"{url}/healthz", timeout_seconds=5)
        thread.join()
    if b"nonsense" not in answer:
        assert (healthy, words) == (False, SILENT)


def test_a_scraper_that_hangs_keeps_no_other_from_its_metrics(registry: CollectorRegistry) -> None:
    """Half a request, or an answer that is never read, holds one thread for some seconds and nobody else."""
    counter = Counter("seen_total", "Seen.", registry=registry)
    counter.inc()
    exporter = Exporter(registry, healthy=lambda: (True, ""))
    hanging = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(20)]
    for number, connection in enumerate(hanging):
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" if number % 2 else b"GET /met")
    now = scrape(f"http://127.0.0.1:{exporter.port}/metrics")
    assert now is not None
    assert now.total("seen_total") == 1
    for connection in hanging:
        connection.close()
    exporter.close()


def test_many_slow_clients_end_their_own_connections_only(
    registry: CollectorRegistry, wait_until: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Three times as many half requests as there are places: the scraper still gets its answer, the oldest are ended."""
    exporter = Exporter(registry, healthy=lambda: (True, "well"))
    slow = []
    try:
        for _ in range(3 * MOST_CONNECTIONS):
            slow.append(socket.create_connection(("127.0.0.1", exporter.port), timeout=10))
            slow[-1].sendall(b"GET /met")
        assert healthz(f"http://127.0.0.1:{exporter.port}/healthz", timeout_seconds=10) == (True, "well")
        assert slow[0].recv(1) == b""
        wait_until(lambda: len(exporter._server._began) <= MOST_CONNECTIONS, what="no more than the bound")
    finally:
        for connection in slow:
            connection.close()
        wait_until(lambda: not exporter._server._began, what="the ends of all connections")
        exporter.close()
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_a_byte_now_and_then_is_ended(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.exporter.LONGEST_SECONDS", 0.2)
    exporter = Exporter(registry, healthy=lambda: (True, "well"))
    try:
        with socket.create_connection(("127.0.0.1", exporter.port), timeout=10) as slow:
            slow.sendall(b"GET /healthz HTTP/1.0\r\nX-Slow: ")
            assert slow.recv(1) == b""
    finally:
        exporter.close()


def test_an_exporter_names_no_software_and_takes_no_other_method(registry: CollectorRegistry) -> None:
    exporter = Exporter(registry, healthy=lambda: (True, "well"))
    try:
        for method, path, status in (("GET", "/metrics", 200), ("GET", "/nowhere", 404), ("POST", "/metrics", 501)):
            connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=10)
            connection.request(method, path)
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Server")) == (status, "tidegate")
            assert b"Python" not in answer.read()
            connection.close()
    finally:
        exporter.close()


def test_a_scraper_that_gives_up_leaves_no_traceback(
    registry: CollectorRegistry, wait_until: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    many = Gauge("tidegate_many", "More than a socket holds.", ["n"], registry=registry)
    for n in range(20_000):
        many.labels(str(n))
    exporter = Exporter(registry, healthy=lambda: (True, ""))
    try:
        with socket.create_connection(("127.0.0.1", exporter.port)) as scraper:
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert scrape(f"http://127.0.0.1:{exporter.port}/metrics", timeout_seconds=30) is not None
        wait_until(lambda: not exporter._server._began, what="the ends of both connections")
    finally:
        exporter.close()
    assert capfd.readouterr().err == ""
