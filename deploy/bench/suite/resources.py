"""Resources during a run: processes, machine and brokers, sampled once a second and at both ends of each run.

A sample holds counters and gauges by name. Two samples make rates; a run is the difference of its first and its last, so that
a run shorter than a second has figures too.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil

from monitoring.scrape import Scrape, scrape

__all__ = ["Sample", "Sampler", "limit_of", "rates_between"]

SAMPLE_SECONDS: Final = 1.0
KEPT_SAMPLES: Final = 3600
_MB: Final = 1024**2
_GB: Final = 1024**3
_TOPICS: Final = "kafka_server_brokertopicmetrics"
_QUANTILES: Final = ("0.50", "0.95", "0.99", "0.999")
_REQUESTS: Final = "kafka_network_requestmetrics"


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one instant (monotonic seconds): counters only grow, gauges go up and down."""

    at: float
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


def rates_between(first: Sample, last: Sample, between: Sequence[Sample] = ()) -> dict[str, float]:
    """Counters as growth per second; of the gauges the highest, and the lowest of what is available."""
    seconds = max(last.at - first.at, 1e-6)
    figures = {
        name: max(0.0, value - first.counters[name]) / seconds
        for name, value in last.counters.items()
        if name in first.counters
    }
    for name in last.gauges:
        seen = [sample.gauges[name] for sample in (first, *between, last) if name in sample.gauges]
        figures[name] = min(seen) if name.endswith("available_gb") else max(seen)
    return figures


def limit_of(figures: Mapping[str, float], cores: int) -> str:
    """Which resource was full, in words; empty where none was."""
    if figures.get("io_wait_ratio", 0.0) > 0.25:
        return "the processors waited for the disk"
    if figures.get("machine_cpu_cores", 0.0) > 0.9 * cores:
        own, client = figures.get("broker_cpu_cores", 0.0), figures.get("client_cpu_cores", 0.0)
        more = "brokers" if own > client else "clients"
        return f"all {cores} cores were busy, most of it in the {more} ({max(own, client):.2g} cores)"
    if figures.get("client_cpu_cores", 0.0) > 0.9:
        return "the clients used a whole core"
    return ""


class Sampler:
    """Watches the processes of one target: `brokers` by name, and all other descendants of this process as clients."""

    def __init__(
        self,
        *,
        brokers: Mapping[str, int] | None = None,
        jmx_urls: Mapping[str, str] | None = None,
        folder: Path | None,
    ) -> None:
        self._brokers = {} if brokers is None else brokers
        self._jmx_urls = dict(jmx_urls or {})
        self._folder = folder or Path.cwd()
        self._below: dict[int, dict[int, psutil.Process]] = {}
        self._samples: list[Sample] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Sampler"]:
        """Samples once a second while the block runs."""
        thread = threading.Thread(target=self._go, name="bench-sampler", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(5.0)

    def measure(self, run: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], dict[str, float]]:
        """What a run returns, and what it used."""
        first = self.look()
        figures = run()
        last = self.look(at_the_end=True)
        with self._lock:
            between = [sample for sample in self._samples if first.at < sample.at < last.at]
        return figures, rates_between(first, last, between)

    def series(self) -> dict[str, Any]:
        """Figures over time as columns: `seconds` since the first sample and one list for each figure."""
        with self._lock:
            samples = list(self._samples)
        if len(samples) < 2:
            return {}
        rows = [rates_between(first, last) for first, last in pairwise(samples)]
        names = sorted({name for row in rows for name in row})
        columns = {name: [_short(row.get(name)) for row in rows] for name in names}
        return {"seconds": [round(sample.at - samples[0].at, 1) for sample in samples[1:]], **columns}

    def look(self, *, at_the_end: bool = False) -> Sample:
        """All that can be seen now; a broker's answer takes a moment, which must not count as part of a run."""
        answers = () if at_the_end else self._answers()
        at = time.monotonic()
        counters, gauges = self._processes()
        _add_machine(counters, gauges)
        gauges["disk_available_gb"] = psutil.disk_usage(str(self._folder)).free / _GB
        for answer in self._answers() if at_the_end else answers:
            _add_broker(answer, counters, gauges)
        return Sample(at, counters, gauges)

    def _answers(self) -> Sequence[Scrape]:
        """Of all brokers, or of none: a sum that misses one would look like a run without an error."""
        answers = [scrape(url, timeout_seconds=2.0) for url in self._jmx_urls.values()]
        found = [answer for answer in answers if answer is not None]
        return found if len(found) == len(answers) else ()

    def _go(self) -> None:
        while True:
            sample = self.look()
            with self._lock:
                self._samples.append(sample)
                del self._samples[:-KEPT_SAMPLES]
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def _processes(self) -> tuple[dict[str, float], dict[str, float]]:
        counters = {"broker_cpu_cores": 0.0, "client_cpu_cores": 0.0}
        gauges = {"broker_rss_mb": 0.0, "client_rss_mb": 0.0}
        own = psutil.Process()
        names = {pid: name for name, pid in dict(self._brokers).items()}
        of_brokers = {pid for broker in names for pid in self._with_children(broker)}
        found = {process.pid for process in [own, *own.children(recursive=True)]} | of_brokers
        for pid in found:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                with process.oneshot():
                    times, rss = process.cpu_times(), process.memory_info().rss
                part = "broker" if pid in of_brokers else "client"
                # What a child used counts with its parent once it has ended: so no process that comes and goes is missed.
                seconds = times.user + times.system + times.children_user + times.children_system
                counters[f"{part}_cpu_cores"] += seconds
                gauges[f"{part}_rss_mb"] += rss / _MB
                if pid in names:
                    counters[f"{names[pid]}_cpu_cores"] = seconds
                    gauges[f"{names[pid]}_rss_mb"] = rss / _MB
        return counters, gauges

    def _with_children(self, pid: int) -> list[int]:
        """A process and those below it that live. One that a look misses would come back as a jump of all it ever used."""
        known = self._below.setdefault(pid, {})
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            known |= {one.pid: one for one in (process, *process.children(recursive=True)) if one.pid not in known}
        for ended in [number for number, one in known.items() if not one.is_running()]:
            del known[ended]
        return list(known)


def _add_machine(counters: dict[str, float], gauges: dict[str, float]) -> None:
    times = psutil.cpu_times()
    idle, waiting = times.idle, getattr(times, "iowait", 0.0)
    busy = sum(times) - idle - waiting - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    counters["machine_cpu_cores"] = busy
    # Of what this machine could do: cores that wait for the disk, over all cores.
    counters["io_wait_ratio"] = waiting / (psutil.cpu_count() or 1)
    counters["other_cpu_cores"] = busy - counters["broker_cpu_cores"] - counters["client_cpu_cores"]
    # Of the whole machine: a process's own count knows its first thread only, and a broker has a hundred.
    counters["context_switches_per_second"] = psutil.cpu_stats().ctx_switches
    network = psutil.net_io_counters()
    if network is not None:
        counters["network_received_bytes_per_second"] = network.bytes_recv
        counters["network_sent_bytes_per_second"] = network.bytes_sent
    gauges["memory_available_gb"] = psutil.virtual_memory().available / _GB


def _add_broker(found: Scrape, counters: dict[str, float], gauges: dict[str, float]) -> None:
    """One broker's own metrics, added to those of the others."""

    def count(name: str, value: float) -> None:
        counters[name] = counters.get(name, 0.0) + value

    count("bytes_in_per_second", found.total(f"{_TOPICS}_bytesin_total"))
    count("bytes_out_per_second", found.total(f"{_TOPICS}_bytesout_total"))
    failed = (f"{_TOPICS}_failedproducerequests_total", f"{_TOPICS}_failedfetchrequests_total")
    count("failed_requests_per_second", sum(found.total(name) for name in failed))
    errors = found.by_label(f"{_REQUESTS}_errors_total", "error")
    count("errors_per_second", sum(value for error, value in errors.items() if error != "NONE"))
    for request, short in (("Produce", "produce"), ("FetchConsumer", "fetch")):
        for (name, labels), value in found.values.items():
            pairs = dict(labels)
            if (
                name == f"{_REQUESTS}_totaltimems"
                and pairs.get("request") == request
                and pairs.get("quantile") in _QUANTILES
            ):
                key = f"{short}_total_ms_p{pairs['quantile'].removeprefix('0.')}"
                gauges[key] = max(gauges.get(key, 0.0), value)
    for operation in ("Produce", "Fetch"):
        size = found.total("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation=operation)
        gauges[f"purgatory_{operation.lower()}"] = gauges.get(f"purgatory_{operation.lower()}", 0.0) + size


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
