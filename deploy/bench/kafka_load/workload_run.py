"""One run of a load: its topics, its processes, and its sessions."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict
from typing import Any, Final, Literal

from deploy.bench.kafka_load.client_work import ClientWork
from deploy.bench.kafka_load.segments import ReadCost, SegmentFiles
from deploy.bench.kafka_load.sessions import LoadSession, are_stable, figures_of
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.worker import START_SECONDS, LoadWorker, open_worker
from deploy.bench.kafka_load.workload import AWAITED_MB, Workload, split_evenly
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf
from ingest.topics.offsets import end_offsets

__all__ = ["LoadRun", "run_workload", "settled_ends"]

_LEAD_SECONDS: Final = 0.1
"""Time between the start command and the first record: all processes have read it by then."""
_RUN_SECONDS: Final = 600.0
_LEAST_CPU_SECONDS: Final = 0.1
"""The system counts processor time in hundredths: less of it says nothing."""
_SLOW_RATE: Final = 2000.0
"""Records a second that a load without a rate reaches at least; a third of it is still waited for."""
_ARRIVE_SECONDS: Final = 5.0
"""Kafka has a record that it never acknowledged, or that its replicas still copy, so long after the one before."""


def run_workload(
    workload: Workload,
    kafka: KafkaSettings,
    *,
    on_started: Callable[[list[int]], None] = lambda pids: None,
    files: SegmentFiles | None = None,
    producer: Literal["produce", "native"] = "produce",
) -> dict[str, Any]:
    """Run a load once, in processes of its own; its topics are made before and removed after it.

    With `sessions` it repeats the load in the same processes: rates are medians of the sessions, counts are sums, percentiles
    are those of all records.

    Args:
        workload: what is produced and consumed.
        kafka: the cluster.
        on_started: gets the process ids of producers and consumers before the clock starts.
        files: of the topic, where its brokers run on this machine.
        producer: module of the producers; `native` is a C client, for comparison.

    Returns:
        `produced`, `consumed`, `lost`, `duplicates`, `errors`; `produce_seconds`, `consume_seconds`; `produce_per_second`,
        `consume_per_second` (records), `produce_mb_per_second`, `consume_mb_per_second` (values alone);
        `client_cpu_us_per_message` of producers and consumers together, `python_cpu_us_per_message` of the producers' threads
        that run Python; `produce_client_cores`, `produce_python_cores`, and with `files` `produce_broker_cores` and
        `produce_broker_cpu_us_per_message`: busy cores during the sessions (`consume_…` likewise; in mode `stream` of both sides
        together); with sessions `sessions_run` and `produce_median_error_ratio` (see `median_error`); `ack_p50_ms` to
        `ack_max_ms`, from due to acknowledged; in mode `stream` also `end_to_end_p50_ms` to `end_to_end_max_ms`, from due to
        consumed; with a rate `late_ms`, the longest time by which a record left after it was due; `curves` and `over_time`,
        percentiles for plots; with sessions of all of them, by the time since each began.
        `duplicates` are records that Kafka has beyond those that were sent, by repeated requests: each may hide a lost one.
        With `retained_mb` also `fill_mb_per_second`, at which that was written; the disk has all of it when the clock starts.
        With `files` also `stored_mb`, the size of all copies; in mode `split` `disk_read_mb`, which the brokers read from the
        disk while the consumers read, and `broker_cpu_us_per_mb_read`, their processor time for a MB of values; with `cold`
        also `cold_mb`, which only the disk had when the consumers began.
        A percentile needs enough records that were timed: 1,000 for `ack_p999_ms`, 100 for `ack_p99_ms`.

    Raises:
        ConfigError: Kafka can't make such a topic.
        FatalError: a right is missing; the text says which.
        RetryableError: Kafka does not answer.
        UnavailableError: a process of the load failed; the text has its last words. Or `cold` without `files`.
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
    """The processes of one run."""

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
        """Run its sessions: as many as are wanted, or until their medians are stable."""
        workload = self._workload
        sessions: list[LoadSession] = []
        with ExitStack() as parts:
            producers = [parts.enter_context(open_worker(self._producer, plan)) for plan in self._produce_plans()]
            self._await_ready(producers)
            # A consumer's warm-up reads what the producers' wrote.
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
        """Measure the work of the brokers while the block runs; unknown for those of another machine."""
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
    """Ends of the partitions when all messages are there, or no more come.

    With acks=0 a record is on its way when the producer is done; with acks=1 a replica may still copy it, and Kafka shows
    nobody what is not copied. Both would look like a loss.
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
