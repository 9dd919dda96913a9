"""One run of a load: its topics, its processes, and the figures."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, Final

from deploy.bench.kafka_load.latency import merged
from deploy.bench.kafka_load.workload import Workload, shares
from deploy.settings import child_environment
from ingest.contract.errors import FatalError, UnavailableError
from ingest.offsets import end_offsets
from ingest.security import client_conf
from ingest.settings import KafkaSettings
from ingest.topic_setup import create_topic, delete_topic

__all__ = ["LoadRun", "run_workload"]

_LEAD_SECONDS: Final = 0.2
"""Between the word to begin and the first record: all processes have read it by then."""
_START_SECONDS: Final = 120.0
_RUN_SECONDS: Final = 3600.0


def run_workload(
    workload: Workload, kafka: KafkaSettings, *, on_started: Callable[[list[int]], None] = lambda pids: None
) -> dict[str, Any]:
    """Run a load once, in processes of its own; its topics are made before and removed after it.

    Args:
        workload: what is produced and consumed.
        kafka: the cluster.
        on_started: gets the process ids of producers and consumers before the clock starts.

    Returns:
        `produced`, `consumed`, `lost`, `errors`; `produce_seconds`, `consume_seconds`; `produce_per_second`,
        `consume_per_second` (records), `produce_mb_per_second`, `consume_mb_per_second` (values alone);
        `client_cpu_us_per_message` of producers and consumers together; `ack_p50_ms` to `ack_max_ms`, from due to
        acknowledged; in mode `stream` also `end_to_end_p50_ms` to `end_to_end_max_ms`, from due to consumed; with a rate
        `late_ms`, the longest time by which a record left after it was due; `curves`, percentiles for plots.

    Raises:
        ConfigError: Kafka can't make such a topic.
        FatalError: a right is missing; the text says which.
        RetryableError: Kafka does not answer.
        UnavailableError: a process of the load failed; the text has its last words.
    """
    with _topics(workload, kafka):
        return LoadRun(workload, kafka, on_started).figures()


class LoadRun:
    """The processes of one run."""

    def __init__(self, workload: Workload, kafka: KafkaSettings, on_started: Callable[[list[int]], None]) -> None:
        self._workload, self._kafka, self._on_started = workload, kafka, on_started
        self._conf = client_conf(kafka, client_id="tidegate-bench")

    def figures(self) -> dict[str, Any]:
        """Run it."""
        workload = self._workload
        with ExitStack() as parts:
            producers = [parts.enter_context(_worker("produce", plan)) for plan in self._produce_plans()]
            _await_ready(producers)
            # A consumer's warm-up reads what the producers' wrote.
            consumers = [parts.enter_context(_worker("consume", plan)) for plan in self._consume_plans()]
            _await_ready(consumers)
            self._on_started([one.pid for one in (*producers, *consumers)])
            streaming = workload.mode == "stream"
            begin_at = time.time() + _LEAD_SECONDS
            if streaming:
                _say(consumers, begin_at)
            _say(producers, begin_at)
            sent = [_answer(one) for one in producers]
            ends = end_offsets(self._kafka, self._workload.topic)
            if not streaming:
                _say(consumers, time.time() + _LEAD_SECONDS)
            _say(consumers, json.dumps(ends))
            return self._figures(sent, [_answer(one) for one in consumers], sum(ends.values()))

    def _produce_plans(self) -> Iterator[dict[str, Any]]:
        workload = self._workload
        parts = zip(
            shares(workload.messages, workload.producers),
            shares(workload.warmup_messages, workload.producers),
            strict=True,
        )
        for number, (messages, warmup) in enumerate(parts):
            yield {
                "workload": asdict(workload), "conf": self._conf, "messages": messages, "number": number,
                "warm_topic": _warm(workload), "warmup_messages": warmup,
            }  # fmt: skip

    def _consume_plans(self) -> Iterator[dict[str, Any]]:
        workload = self._workload
        for number in range(workload.consumers if workload.consume else 0):
            partitions = list(range(number, workload.partitions, workload.consumers))
            yield {
                "topic": workload.topic, "partitions": partitions, "conf": self._conf, "warm_topic": _warm(workload),
            }  # fmt: skip

    def _figures(self, sent: Sequence[dict[str, Any]], read: Sequence[dict[str, Any]], stored: int) -> dict[str, Any]:
        workload = self._workload
        acks, reads = merged(one["latencies"] for one in sent), merged(one["latencies"] for one in read)
        consumed = sum(one["messages"] for one in read)
        cpu = sum(one["cpu_seconds"] for one in (*sent, *read))
        found: dict[str, Any] = {
            "produced": stored,
            "consumed": consumed,
            "lost": workload.messages - (min(stored, consumed) if read else stored),
            "errors": sum(one["errors"] for one in (*sent, *read)) + sum(one["failed"] for one in sent),
            "client_cpu_us_per_message": round(cpu / workload.messages * 1_000_000, 3),
            **_speed("produce", stored, workload, _span(sent)),
            **acks.figures("ack"),
        }
        curves = {"ack": acks.curve()}
        if read:
            found |= _speed("consume", consumed, workload, _span(read))
        if read and workload.mode == "stream":
            found |= reads.figures("end_to_end")
            curves["end_to_end"] = reads.curve()
        if workload.rate:
            found["late_ms"] = round(max(one["late_ms"] for one in sent), 3)
        return found | {"curves": curves}


def _span(parts: Sequence[dict[str, Any]]) -> float:
    return float(max(one["ended"] for one in parts) - min(one["began"] for one in parts))


def _speed(name: str, messages: int, workload: Workload, seconds: float) -> dict[str, float]:
    seconds = max(seconds, 1e-6)
    return {
        f"{name}_seconds": round(seconds, 4),
        f"{name}_per_second": round(messages / seconds, 1),
        f"{name}_mb_per_second": round(messages * workload.message_bytes / seconds / 1e6, 3),
    }


def _warm(workload: Workload) -> str:
    return f"{workload.topic}-warm"


@contextmanager
def _topics(workload: Workload, kafka: KafkaSettings) -> Iterator[None]:
    """The two topics of a run: this one's records, and those of its warm-up."""
    kafka = kafka.model_copy(update={"replication": workload.replication})
    made: list[str] = []
    try:
        for name in (workload.topic, _warm(workload)):
            if not create_topic(kafka, name, partitions=workload.partitions, config=dict(workload.properties)):
                message = f"topic {name} is there already: another run uses it, or one was cut off; delete it"
                raise FatalError(message)
            made.append(name)
        yield
    finally:
        # Another run's topics of these names are not ours to remove.
        for name in made:
            delete_topic(kafka, name)


@contextmanager
def _worker(kind: str, plan: dict[str, Any]) -> Iterator["subprocess.Popen[str]"]:
    """A process of the load, ended with the block."""
    command = [sys.executable, "-P", "-m", f"deploy.bench.kafka_load.{kind}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=child_environment("bench"), start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _say([process], json.dumps(plan))
            yield process
        finally:
            process.kill()


def _say(workers: Sequence["subprocess.Popen[str]"], what: float | str) -> None:
    for worker in workers:
        if worker.stdin is None:
            raise AssertionError
        try:
            worker.stdin.write(f"{what}\n")
            worker.stdin.flush()
        except BrokenPipeError:
            raise _failed(worker) from None


def _await_ready(workers: Sequence["subprocess.Popen[str]"]) -> None:
    for worker in workers:
        if _line(worker).strip() != "ready":
            raise _failed(worker)


def _answer(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    text = _line(worker)
    if not text:
        raise _failed(worker)
    return dict(json.loads(text))


def _line(worker: "subprocess.Popen[str]") -> str:
    if worker.stdout is None:
        raise AssertionError
    return worker.stdout.readline()


def _failed(worker: "subprocess.Popen[str]") -> UnavailableError:
    worker.kill()
    words = "" if worker.stderr is None else worker.stderr.read()
    last = next((line for line in reversed(words.splitlines()) if line.strip()), "it said nothing")
    return UnavailableError(f"a process of the load ended early: {last.strip()[:500]}")
