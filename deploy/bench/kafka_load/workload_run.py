"""One run of a load on Kafka: it makes the topics, starts the clients' processes, repeats sessions and returns figures.

Rates are medians of the sessions, counts are sums. A run may repeat sessions until the medians are stable.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Any, Final, Literal

from deploy.bench.kafka_load.client_work import ClientWork, elapsed_seconds
from deploy.bench.kafka_load.latency import merge_latencies
from deploy.bench.kafka_load.segments import ReadCost, SegmentFiles
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.worker import START_SECONDS, LoadWorker, open_worker
from deploy.bench.kafka_load.workload import AWAITED_MB, Workload, split_evenly
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf
from ingest.topics.offsets import end_offsets

__all__ = ["LoadSession", "are_stable", "figures_of", "median_error", "run_workload", "settled_ends"]

_LEAD_SECONDS: Final = 0.1
"""Time between the start command and the first record: all processes have read it by then."""
_RUN_SECONDS: Final = 600.0
_LEAST_CPU_SECONDS: Final = 0.1
"""The system counts processor time in hundredths of a second: a shorter time has no meaning."""
_SLOW_RATE: Final = 2000.0
"""Records per second that a load without a rate reaches at least; time limits allow for a third of that."""
_ARRIVE_SECONDS: Final = 5.0
"""Longest wait for one more record: one without acknowledgement, or one that the replicas still copy."""
_FEWEST: Final = 8
"""Least number of sessions for a stable median: of fewer, the 95 % interval would reach from the lowest to the highest."""


@dataclass(frozen=True, kw_only=True)
class LoadSession:
    """Results of one session's producers and consumers, and the number of its records in Kafka.

    `stored` includes what the topic held before the clock started. `costs` are those of Kafka's servers while producing and
    while consuming; in mode `stream` both are those of the whole session. None if the servers run on another machine.
    """

    sent: Sequence[ClientWork]
    read: Sequence[ClientWork]
    stored: int
    costs: tuple[ReadCost, ReadCost] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds from the first start to the last end, by side: producers and consumers."""
        parts = {"produce": self.sent, "consume": self.read}
        return {name: elapsed_seconds(group) for name, group in parts.items() if group}

    @property
    def consumed(self) -> int:
        """Number of records that the consumers read."""
        return sum(one.messages for one in self.read)

    def rates(self, retained: int = 0) -> dict[str, float]:
        """Return records per second, by side; `retained` records were in the topic before and do not count as produced."""
        records = {"produce": self.stored - retained, "consume": self.consumed}
        return {name: records[name] / seconds for name, seconds in self.seconds.items()}


def run_workload(
    workload: Workload,
    kafka: KafkaSettings,
    *,
    on_started: Callable[[list[int]], None] = lambda pids: None,
    files: SegmentFiles | None = None,
    producer: Literal["produce", "native"] = "produce",
) -> dict[str, Any]:
    """Run a load once, in processes of its own. Its topics exist only during the run.

    With `sessions`, the same processes repeat the load. Percentiles then cover the records of all sessions.

    Args:
        workload: the records, their producers and their consumers.
        kafka: the cluster.
        on_started: gets the process ids of producers and consumers before the clock starts.
        files: the topic's files, if its brokers run on this machine; else None.
        producer: module of the producers; `native` is a C client, for comparison.

    Returns:
        Figures by name. `produce_…` is shown below; consumers have the same figures as `consume_…`.
        - `produced`, `consumed`, `lost`, `errors`: records. `duplicates`: records in Kafka beyond those that were sent; each
          comes from a repeated request and may hide a lost record.
        - `produce_seconds`, `produce_per_second` (records), `produce_mb_per_second` (MB of values).
        - `ack_p50_ms` to `ack_max_ms`: from due to acknowledged. In mode `stream` also `end_to_end_p50_ms` to
          `end_to_end_max_ms`: from due to consumed. A percentile needs enough timed records: 100 for p99, 1,000 for p999.
        - `client_cpu_us_per_message`: producers and consumers together. `python_cpu_us_per_message`: only the producers'
          threads that run Python.
        - `produce_client_cores`, `produce_python_cores`: busy cores during the sessions. In mode `stream` the client's figure
          has both sides.
        - `curves`, `over_time`: percentiles for plots; the time counts from the start of each session.
        - With a rate: `late_ms`, the longest time between the due time of a record and its departure.
        - With sessions: `sessions_run` and `produce_median_error_ratio` (see `median_error`).
        - With `retained_mb`: `fill_mb_per_second` of writing these. The disk has all of them when the clock starts.
        - With `files`: `produce_broker_cores`, `produce_broker_cpu_us_per_message`, and `stored_mb`, the size of all copies.
          In mode `split` also `disk_read_mb`, read from the disk while the consumers ran, and `broker_cpu_us_per_mb_read`, the
          brokers' processor time per MB of values. With `cold` also `cold_mb`, which only the disk had before that.

    Raises:
        ConfigError: Kafka does not accept such a topic.
        FatalError: a right is missing; the text says which.
        RetryableError: Kafka does not answer.
        UnavailableError: a process of the load failed (the text has its last words), or `cold` without `files`.
    """
    if workload.cold and files is None:
        message = (
            "cold segments need a cluster on this machine; the page cache of another one cannot be dropped from here"
        )
        raise UnavailableError(message)
    try:
        with temporary_topic(workload, kafka), temporary_topic(workload, kafka, _warm(workload)):
            return LoadRun(workload, kafka, on_started, files, producer).figures()
    finally:
        if files is not None and workload.megabytes >= AWAITED_MB:
            files.await_gone()


class LoadRun:
    """The processes of one run, and its sessions."""

    def __init__(
        self,
        workload: Workload,
        kafka: KafkaSettings,
        on_started: Callable[[list[int]], None],
        files: SegmentFiles | None = None,
        producer: Literal["produce", "native"] = "produce",
    ) -> None:
        self._workload, self._kafka, self._on_started, self._files = workload, kafka, on_started, files
        self._producer = producer
        self._conf = client_conf(kafka, client_id="tidegate-bench")
        self._ends: dict[int, int] = {}
        self._cold_mb = 0.0

    def figures(self) -> dict[str, Any]:
        """Run the sessions until their medians are stable, at most as many as the workload names; return the figures."""
        workload = self._workload
        sessions: list[LoadSession] = []
        with ExitStack() as parts:
            producers = [parts.enter_context(open_worker(self._producer, plan)) for plan in self._produce_plans()]
            self._await_ready(producers)
            # The consumers' warm-up reads what the producers' warm-up wrote.
            consumers = [parts.enter_context(open_worker("consume", plan)) for plan in self._consume_plans()]
            self._await_ready(consumers)
            self._on_started([one.pid for one in (*producers, *consumers)])
            if self._files is not None and workload.retained:
                self._files.write_out()
            while len(sessions) < workload.sessions and not are_stable(sessions, workload.stable_ratio):
                sessions.append(self._session(producers, consumers))
            return figures_of(workload, sessions) | self._file_figures(sessions)

    def _session(self, producers: Sequence[LoadWorker], consumers: Sequence[LoadWorker]) -> LoadSession:
        workload = self._workload
        streaming, before = workload.mode == "stream", sum(self._ends.values())
        with self._cost() as whole:
            with self._cost() as producing:
                begin_at = time.time() + _LEAD_SECONDS
                if streaming:
                    _say(consumers, begin_at)
                _say(producers, begin_at)
                sent = [self._work(one) for one in producers]
            self._ends = settled_ends(self._kafka, workload.topic, before + workload.stored)
            if workload.cold and self._files is not None:
                self._cold_mb = self._files.drop()
            with self._cost() as consuming:
                if not streaming:
                    _say(consumers, time.time() + _LEAD_SECONDS)
                _say(consumers, json.dumps(self._ends))
                read = [self._work(one) for one in consumers]
        stored = sum(self._ends.values()) - before
        costs = (whole, whole) if streaming else (producing, consuming)
        return LoadSession(sent=sent, read=read, stored=stored, costs=costs if self._files is not None else None)

    def _cost(self) -> AbstractContextManager[ReadCost]:
        """Measure the work of the brokers while the block runs; all zero for brokers on another machine."""
        return nullcontext(ReadCost()) if self._files is None else self._files.cost()

    def _file_figures(self, sessions: Sequence[LoadSession]) -> dict[str, float]:
        workload = self._workload
        if self._files is None:
            return {}
        found = {"stored_mb": round(self._files.stored_mb, 1)}
        if workload.cold:
            found["cold_mb"] = round(self._cold_mb, 1)
        if workload.consume and workload.mode == "split":
            costs = [one.costs[1] for one in sessions if one.costs is not None]
            megabytes = max(sum(part.bytes for one in sessions for part in one.read), 1) / 1e6
            found["disk_read_mb"] = round(sum(cost.disk_bytes for cost in costs) / 1e6, 1)
            cpu_seconds = sum(cost.cpu_seconds for cost in costs)
            if cpu_seconds >= _LEAST_CPU_SECONDS:
                found["broker_cpu_us_per_mb_read"] = round(cpu_seconds / megabytes * 1e6, 1)
        return found

    def _await_ready(self, workers: Sequence[LoadWorker]) -> None:
        workload = self._workload
        warm_up = (workload.warmup_messages + workload.retained) / min(workload.rate or _SLOW_RATE, _SLOW_RATE)
        for worker in workers:
            worker.await_ready(START_SECONDS + 3 * warm_up)

    def _work(self, worker: LoadWorker) -> ClientWork:
        seconds = self._workload.stored / (self._workload.rate or _SLOW_RATE)
        return worker.work(_RUN_SECONDS + 3 * seconds)

    def _produce_plans(self) -> Iterator[dict[str, Any]]:
        workload = self._workload
        parts = zip(
            split_evenly(workload.messages, workload.producers),
            split_evenly(workload.warmup_messages, workload.producers),
            split_evenly(workload.retained, workload.producers),
            strict=True,
        )
        for number, (messages, warmup, retained) in enumerate(parts):
            yield {
                "workload": asdict(workload), "conf": self._conf, "messages": messages, "number": number,
                "warm_topic": _warm(workload), "warmup_messages": warmup, "retained": retained,
            }  # fmt: skip

    def _consume_plans(self) -> Iterator[dict[str, Any]]:
        workload = self._workload
        for number in range(workload.consumers if workload.consume else 0):
            partitions = list(range(number, workload.partitions, workload.consumers))
            yield {
                "topic": workload.topic, "partitions": partitions, "conf": self._conf, "warm_topic": _warm(workload),
                "fetch_bytes": workload.fetch_bytes, "fetch_min_bytes": workload.fetch_min_bytes,
            }  # fmt: skip


def settled_ends(kafka: KafkaSettings, topic: str, messages: int) -> dict[int, int]:
    """Return the ends of the partitions when all messages are there, or when no more come.

    With acks=0 the last records are still on their way when the producer is done. With acks=1 a replica may still copy them,
    and Kafka shows a record only after that. Without the wait, both would look like a loss.
    """
    ends, since = end_offsets(kafka, topic), time.monotonic()
    while sum(ends.values()) < messages and time.monotonic() - since < _ARRIVE_SECONDS:
        time.sleep(0.05)
        found = end_offsets(kafka, topic)
        if found != ends:
            ends, since = found, time.monotonic()
    return ends


def _warm(workload: Workload) -> str:
    return f"{workload.topic}-warm"


def _say(workers: Sequence[LoadWorker], what: float | str) -> None:
    for worker in workers:
        worker.say(what)


def median_error(values: Sequence[float]) -> float:
    """Return the error of the median: half of its 95 % confidence interval, as a ratio of the median.

    The interval is that of order statistics, which holds for any distribution.
    """
    ordered, count = sorted(values), len(values)
    rank = max(0, ceil(count / 2 - 0.98 * sqrt(count)) - 1)
    median = statistics.median(ordered)
    return (ordered[count - 1 - rank] - ordered[rank]) / 2 / median if median else 0.0


def are_stable(sessions: Sequence[LoadSession], ratio: float) -> bool:
    """Return whether the error of each rate's median is at most this ratio."""
    if ratio <= 0 or len(sessions) < _FEWEST:
        return False
    names = sessions[0].seconds
    return all(median_error([one.rates()[name] for one in sessions]) <= ratio for name in names)


def figures_of(workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, Any]:
    """Return the figures that `run_workload` describes, without those of the topic's files."""
    sent = [one for session in sessions for one in session.sent]
    read = [one for session in sessions for one in session.read]
    acks, reads = merge_latencies(one.latencies for one in sent), merge_latencies(one.latencies for one in read)
    messages = workload.messages * len(sessions)
    found: dict[str, Any] = {
        "produced": sum(one.stored for one in sessions),
        "consumed": sum(one.consumed for one in sessions),
        "lost": sum(_lost(one, workload.stored) for one in sessions),
        "duplicates": sum(max(0, one.stored - workload.stored) for one in sessions),
        "errors": sum(one.errors for one in (*sent, *read)),
        "python_cpu_us_per_message": _micros(sum(one.python_cpu_seconds for one in sent), messages),
        **acks.figures("ack"),
    }
    curves, over_time = {"ack": acks.curve()}, {"ack": acks.over_time()}
    for name in sessions[0].seconds:
        found |= _rate_figures(name, workload, sessions)
    if not workload.retained:
        found["client_cpu_us_per_message"] = _micros(sum(one.cpu_seconds for one in (*sent, *read)), messages)
    elif fill_seconds := max(one.fill_seconds for one in sent):
        found["fill_mb_per_second"] = round(workload.retained * workload.message_bytes / fill_seconds / 1e6, 3)
    if read and workload.mode == "stream":
        found |= reads.figures("end_to_end")
        curves["end_to_end"], over_time["end_to_end"] = reads.curve(), reads.over_time()
    if workload.rate:
        found["late_ms"] = round(max(one.late_ms for one in sent), 3)
    if workload.sessions > 1:
        found["sessions_run"] = len(sessions)
    return found | _core_figures(workload, sessions) | {"curves": curves, "over_time": over_time}


def _lost(one: LoadSession, wanted: int) -> int:
    return max(0, wanted - (min(one.stored, one.consumed) if one.read else one.stored))


def _rate_figures(name: str, workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, float]:
    rates = [one.rates(workload.retained)[name] for one in sessions]
    rate = statistics.median(rates)
    found = {
        f"{name}_seconds": round(statistics.median(one.seconds[name] for one in sessions), 4),
        f"{name}_per_second": round(rate, 1),
        f"{name}_mb_per_second": round(rate * workload.message_bytes / 1e6, 3),
    }
    if len(sessions) > 1:
        found[f"{name}_median_error_ratio"] = round(median_error(rates), 4)
    return found


def _core_figures(workload: Workload, sessions: Sequence[LoadSession]) -> dict[str, float]:
    """Return the busy cores during the sessions. Idle time between two sessions would make a figure of the whole run smaller."""
    found: dict[str, float] = {}
    for number, name in enumerate(sessions[0].seconds):
        seconds = sum(one.seconds[name] for one in sessions)
        both = workload.mode == "stream"
        parts = [
            part for one in sessions for part in ((*one.sent, *one.read) if both else (one.sent, one.read)[number])
        ]
        found[f"{name}_client_cores"] = _short(sum(part.cpu_seconds for part in parts) / seconds)
        costs = [one.costs[number].cpu_seconds for one in sessions if one.costs is not None]
        if costs:
            found[f"{name}_broker_cores"] = _short(sum(costs) / seconds)
            found[f"{name}_broker_cpu_us_per_message"] = _micros(sum(costs), workload.messages * len(sessions))
    python = sum(part.python_cpu_seconds for one in sessions for part in one.sent)
    return found | {"produce_python_cores": _short(python / sum(one.seconds["produce"] for one in sessions))}


def _short(value: float) -> float:
    return round(value, 3)


def _micros(seconds: float, messages: int) -> float:
    return round(seconds / messages * 1_000_000, 3)
