"""Resources during a run: processes, machine and brokers, sampled once a second and at both ends of each run.

A sample has counters and gauges by name. Two samples give rates. A run is the difference of its first and its last sample, so
that a run of less than a second has figures too.
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

__all__ = ["GB", "MB", "ResourceSample", "ResourceSampler", "busy_before", "busy_during", "rates_between"]

OTHERS_SHARE: Final = 0.25
"""Share of one core that other programs may use on average during a cell whose figures still count."""
SAMPLE_SECONDS: Final = 1.0
KEPT_SAMPLES: Final = 3600
MB: Final = 10**6
GB: Final = 10**9
_SUMS: Final = frozenset({"broker", "client", "machine", "other"})
"""Process groups that `NAME_cpu_cores` and `NAME_rss_mb` are sums of."""
_TOPICS: Final = "kafka_server_brokertopicmetrics"
_QUANTILES: Final = ("0.50", "0.95", "0.99", "0.999")
_REQUESTS: Final = "kafka_network_requestmetrics"
_REQUEST_KINDS: Final = {"Produce": "produce", "FetchConsumer": "fetch"}
_BY_AGENT: Final = frozenset(
    {"bytes_in_per_second", "bytes_out_per_second", "failed_requests_per_second", "errors_per_second"}
    | {f"{kind}_{what}" for kind in _REQUEST_KINDS.values() for what in ("requests_per_second", "total_ms_sum")}
)
"""Counters of brokers' own metrics."""


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """Values at one instant (monotonic seconds): counters only grow, gauges go up and down."""

    at: float
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    starts: tuple[float, ...] = ()
    """Start times of the brokers that served metrics, in seconds since 1970."""


def rates_between(
    first: ResourceSample, last: ResourceSample, between: Sequence[ResourceSample] = ()
) -> dict[str, float]:
    """Counters as growth per second; of the gauges the highest, and the lowest of what is available.

    A time that Kafka sums up over requests becomes the mean of the requests in between. Where a broker started again its counts
    began again too: none of those is known then.
    """
    seconds = max(last.at - first.at, 1e-6)
    unknown = _BY_AGENT if first.starts != last.starts else ()
    figures = {
        name: max(0.0, value - first.counters[name]) / seconds
        for name, value in last.counters.items()
        if name in first.counters and name not in unknown
    }
    for name in _REQUEST_KINDS.values():
        total, requests = figures.pop(f"{name}_total_ms_sum", 0.0), figures.get(f"{name}_requests_per_second", 0.0)
        if requests:
            figures[f"{name}_total_ms_mean"] = total / requests
    for name in last.gauges:
        seen = [sample.gauges[name] for sample in (first, *between, last) if name in sample.gauges]
        figures[name] = min(seen) if name.endswith("available_gb") else max(seen)
    return figures


def busy_before(cores_used: float) -> str:
    """Why figures of this machine would prove nothing; empty where it is quiet.

    `cores_used` is measured before anything starts: a load average would count the scenario that ended a minute ago.
    """
    if cores_used <= OTHERS_SHARE:
        return ""
    return f"the machine was busy before the start: {cores_used:.2f} cores were used, wanted at most {OTHERS_SHARE:g}"


def busy_during(figures: Mapping[str, float]) -> str:
    """Why figures prove nothing that were measured next to other programs; empty where those used little."""
    others = figures.get("other_cpu_cores", 0.0)
    return f"other programs used {others:.2g} cores during the run" if others > OTHERS_SHARE else ""


@dataclass(slots=True)
class _Used:
    """Processor seconds of a broker that lives or has ended: of all its processes, and of the one with its id `alone`."""

    name: str
    seconds: float = 0.0
    alone: float = 0.0
    is_child: bool = False


class ResourceSampler:
    """Watches the processes of one target: `brokers` by name, and all other descendants of this process as clients.

    A broker that has the name of a sum, such as `broker` in a whole pipeline, has its own figures under `server_broker`.
    Of brokers that are not its own nothing is known but what their JMX agents serve. Figures of the machine are of the one
    that runs the load, and without a folder no disk is that of the brokers.
    """

    def __init__(
        self,
        *,
        brokers: Mapping[str, int] | None = None,
        jmx_urls: Mapping[str, str] | None = None,
        folder: Path | None,
        on_sample: Callable[["ResourceSample"], None] = lambda sample: None,
    ) -> None:
        self._brokers = {} if brokers is None else brokers
        self._jmx_urls = dict(jmx_urls or {})
        self._folder = folder
        self._on_sample = on_sample
        self._below: dict[int, dict[int, psutil.Process]] = {}
        self._used: dict[int, _Used] = {}
        self._looking = threading.Lock()
        self._samples: list[ResourceSample] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator["ResourceSampler"]:
        """Samples once a second while the block runs."""
        thread = threading.Thread(target=self._go, name="bench-sampler", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(5.0)

    def measure(self, run: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], dict[str, float]]:
        """Run a function; return its result and the resources that it used."""
        first = self.look()
        figures = run()
        last = self.look(at_the_end=True)
        with self._lock:
            between = [sample for sample in self._samples if first.at < sample.at < last.at]
        return figures, rates_between(first, last, between)

    @property
    def began(self) -> float:
        """Time of the first sample that is kept (monotonic)."""
        with self._lock:
            return self._samples[0].at if self._samples else time.monotonic()

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

    def look(self, *, at_the_end: bool = False) -> ResourceSample:
        """All that can be seen now; a broker's answer takes a moment, which must not count as part of a run."""
        answers = () if at_the_end else self._answers()
        at = time.monotonic()
        with self._looking:
            counters, gauges = self._processes()
        is_elsewhere = "broker_cpu_cores" not in counters
        _add_machine(counters, gauges)
        if self._folder is not None:
            gauges["disk_available_gb"] = psutil.disk_usage(str(self._folder)).free / GB
        answers = self._answers() if at_the_end else answers
        for answer in answers:
            _add_broker(answer, counters, gauges, is_elsewhere=is_elsewhere)
        starts = sorted(round(answer.total("process_start_time_seconds"), 1) for answer in answers)
        return ResourceSample(at, counters, gauges, tuple(starts))

    def _answers(self) -> Sequence[Scrape]:
        """Return the answers of all brokers, or of none: a sum that lacks one would look like a run without an error."""
        answers = [scrape(url, timeout_seconds=2.0) for url in self._jmx_urls.values()]
        found = [answer for answer in answers if answer is not None]
        return found if len(found) == len(answers) else ()

    def _go(self) -> None:
        while True:
            sample = self.look()
            with self._lock:
                self._samples.append(sample)
                del self._samples[:-KEPT_SAMPLES]
            self._on_sample(sample)
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def _processes(self) -> tuple[dict[str, float], dict[str, float]]:
        own = psutil.Process()
        names = {pid: f"server_{name}" if name in _SUMS else name for name, pid in dict(self._brokers).items()}
        parts = ["broker", "client"] if names or self._used else ["client"]
        gauges = {f"{part}_rss_mb": 0.0 for part in parts}
        broker_of = {pid: broker for broker in names for pid in self._with_children(broker)}
        found = {process.pid for process in [own, *own.children(recursive=True)]} | broker_of.keys()
        client, seen, alive = 0.0, dict[int, _Used](), set[int]()
        for pid in found:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                with process.oneshot():
                    times, rss, parent = process.cpu_times(), process.memory_info().rss, process.ppid()
                # The use of a child counts with its parent once it has ended, so no short-lived process is missed.
                seconds = times.user + times.system + times.children_user + times.children_system
                broker = broker_of.get(pid)
                gauges[f"{'client' if broker is None else 'broker'}_rss_mb"] += rss / MB
                if broker is None:
                    client += seconds
                    continue
                used = seen.setdefault(broker, _Used(names[broker]))
                used.seconds += seconds
                if pid == broker:
                    alive.add(pid)
                    used.alone, used.is_child = seconds, parent == own.pid
                    gauges[f"{names[pid]}_rss_mb"] = rss / MB
        # Remains below an ended process would hide what that process used.
        self._used |= {pid: used for pid, used in seen.items() if pid in alive}
        counters = {f"{part}_cpu_cores": 0.0 for part in parts}
        for used in self._used.values():
            counters["broker_cpu_cores"] += used.seconds
            name = f"{used.name}_cpu_cores"
            counters[name] = counters.get(name, 0.0) + used.alone
        # A child of this process that has ended counts with it: so once as a broker, once as a client.
        twice = sum(used.seconds for pid, used in self._used.items() if used.is_child and pid not in alive)
        return {**counters, "client_cpu_cores": client - twice}, gauges

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
    # Share of the machine's capacity: cores that wait for the disk, over all cores.
    counters["io_wait_ratio"] = waiting / (psutil.cpu_count() or 1)
    counters["other_cpu_cores"] = busy - counters.get("broker_cpu_cores", 0.0) - counters["client_cpu_cores"]
    # Count for the whole machine: a process's own count knows its first thread only, and a broker has a hundred.
    counters["context_switches_per_second"] = psutil.cpu_stats().ctx_switches
    network = psutil.net_io_counters()
    if network is not None:
        counters["network_received_bytes_per_second"] = network.bytes_recv
        counters["network_sent_bytes_per_second"] = network.bytes_sent
    gauges["memory_available_gb"] = psutil.virtual_memory().available / GB


def _add_broker(found: Scrape, counters: dict[str, float], gauges: dict[str, float], *, is_elsewhere: bool) -> None:
    """One broker's own metrics, added to those of the others; what its agent does not serve stays absent."""
    served = {name for name, _ in found.values}

    def add(figures: dict[str, float], name: str, metric: str, scale: float = 1.0, **labels: str) -> None:
        if metric in served:
            figures[name] = figures.get(name, 0.0) + found.total(metric, **labels) * scale

    if is_elsewhere:
        add(counters, "broker_cpu_cores", "process_cpu_seconds_total")
        add(gauges, "broker_rss_mb", "process_resident_memory_bytes", 1 / MB)
    add(counters, "bytes_in_per_second", f"{_TOPICS}_bytesin_total")
    add(counters, "bytes_out_per_second", f"{_TOPICS}_bytesout_total")
    for kind in ("produce", "fetch"):
        add(counters, "failed_requests_per_second", f"{_TOPICS}_failed{kind}requests_total")
    add(counters, "errors_per_second", f"{_REQUESTS}_errors_total")
    add(counters, "errors_per_second", f"{_REQUESTS}_errors_total", -1.0, error="NONE")
    for request, short in _REQUEST_KINDS.items():
        _add_total_time(found, request, short, counters, gauges)
    for operation in ("Produce", "Fetch"):
        metric = "kafka_server_delayedoperationpurgatory_purgatorysize"
        add(gauges, f"purgatory_{operation.lower()}", metric, delayedOperation=operation)


def _add_total_time(
    found: Scrape, request: str, short: str, counters: dict[str, float], gauges: dict[str, float]
) -> None:
    """Percentiles of the slowest broker, and the sum over the requests of all."""
    means, counts = (found.by_label(f"{_REQUESTS}_totaltimems_{what}", "request") for what in ("mean", "count"))
    if request in means and request in counts:
        for name, value in (("requests_per_second", 1.0), ("total_ms_sum", means[request])):
            counters[f"{short}_{name}"] = counters.get(f"{short}_{name}", 0.0) + value * counts[request]
    for (name, labels), value in found.values.items():
        pairs = dict(labels)
        if name == f"{_REQUESTS}_totaltimems" and pairs.get("request") == request and pairs["quantile"] in _QUANTILES:
            key = f"{short}_total_ms_p{pairs['quantile'].removeprefix('0.')}"
            gauges[key] = max(gauges.get(key, 0.0), value)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
