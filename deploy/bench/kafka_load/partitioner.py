"""Records keyed by the addresses of their clients, spread by a partitioner: skew, throughput, and the order of each client."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from deploy.bench.kafka_load.addresses import Partitioner, skew_figures
from deploy.bench.kafka_load.run import settled_ends
from deploy.bench.kafka_load.worker import START_SECONDS, open_worker
from deploy.bench.kafka_load.workload import KEEP_ALL, STAMP_BYTES
from ingest.contract.errors import ConfigError, FatalError
from ingest.security import client_conf
from ingest.settings import KafkaSettings
from ingest.topic_setup import create_topic, delete_topic

__all__ = ["PartitionerRun", "run_partitioner"]

_SLOW_RATE: Final = 2000.0
_MOST_MB: Final = 1000
"""All records are made before the clock starts, and the client holds those that Kafka does not have yet."""


@dataclass(frozen=True, kw_only=True)
class PartitionerRun:
    """One run.

    Attributes:
        topic: made for the run and removed after it.
        messages: records; their keys are client addresses.
        message_bytes: size of a value, 8 or more: it begins with the record's number.
        partitioner: the rule from key to partition.
        networks: /24 networks of the clients; few of them send most of the records.
        partitions, replication: of the topic.
        rate: records a second at most; 0 is as fast as it goes.

    Raises:
        ConfigError: a value is out of its range.
    """

    topic: str
    messages: int
    message_bytes: int = 100
    partitioner: Partitioner = "murmur2"
    networks: int = 500
    partitions: int = 8
    replication: int = 1
    rate: float = 0.0

    def __post_init__(self) -> None:
        if self.message_bytes < STAMP_BYTES or self.messages * self.message_bytes > _MOST_MB * 1_000_000:
            message = (
                f"partitioner {self.topic}: {self.messages:,} messages of {self.message_bytes} B are out of range; wanted "
                f"{STAMP_BYTES} B or more each, and {_MOST_MB:,} MB together at most, which the process holds in memory"
            )
            raise ConfigError(message)


def run_partitioner(run: PartitionerRun, kafka: KafkaSettings) -> dict[str, Any]:
    """Produce, then read all; the partitions of a rule of ours are known before the clock starts.

    Returns:
        `most_to_mean`, `size_variation`: how uneven the partitions are; `clients`; `split_keys`, clients with records in more
        than one partition; `split_networks`, networks; `out_of_order`, records that the one reader got after a later one of
        the same client; `lost`, `again`; `produced`, `consumed`, `produce_per_second`, `consume_per_second`,
        `client_cpu_us_per_message` of the producer; `errors`.

    Raises:
        ConfigError: Kafka can't make such a topic.
        FatalError: a right is missing, or the topic is there already.
        RetryableError: Kafka does not answer.
        UnavailableError: the process failed; the text has its last words.
    """
    settings = kafka.model_copy(update={"replication": run.replication})
    if not create_topic(settings, run.topic, partitions=run.partitions, config=KEEP_ALL):
        message = f"topic {run.topic} is there already: another run uses it, or one was cut off; delete it"
        raise FatalError(message)
    try:
        return _figures(run, kafka)
    finally:
        delete_topic(kafka, run.topic)


def _figures(run: PartitionerRun, kafka: KafkaSettings) -> dict[str, Any]:
    plan = asdict(run) | {"conf": client_conf(kafka, client_id="tidegate-bench")}
    seconds = START_SECONDS + 3 * run.messages / min(run.rate or _SLOW_RATE, _SLOW_RATE)
    with open_worker("keyed", plan) as worker:
        worker.await_ready(seconds)
        worker.say("produce")
        sent = json.loads(worker.answer(seconds))
        ends = settled_ends(kafka, run.topic, run.messages)
        worker.say("read")
        read = json.loads(worker.answer(seconds))
    sizes = [ends.get(number, 0) for number in range(run.partitions)]
    produced, took = sum(sizes), max(sent["produce_seconds"], 1e-6)
    return {
        **skew_figures(sizes),
        **{name: read[name] for name in ("clients", "split_keys", "split_networks", "out_of_order", "lost", "again")},
        "produced": produced,
        "consumed": read["consumed"],
        "produce_per_second": round(produced / took, 1),
        "consume_per_second": round(read["consumed"] / max(read["consume_seconds"], 1e-6), 1),
        "client_cpu_us_per_message": round(sent["cpu_seconds"] / run.messages * 1e6, 3),
        "errors": sent["errors"],
    }
