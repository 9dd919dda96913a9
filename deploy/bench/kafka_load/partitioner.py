"""Records with client addresses as keys, spread by a partitioner: skew, throughput, and the order of each client."""

from dataclasses import asdict
from typing import Any, Final

from deploy.bench.kafka_load.addresses import Partitioner, skew_figures
from deploy.bench.kafka_load.client_work import elapsed_seconds
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.worker import START_SECONDS, open_worker
from deploy.bench.kafka_load.workload import Workload
from deploy.bench.kafka_load.workload_run import settled_ends
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

__all__ = ["run_partitioner"]

_SLOW_RATE: Final = 2000.0
_MOST_MB: Final = 1000
"""All records are made before the clock starts, and the client holds those that Kafka does not have yet."""


def run_partitioner(
    workload: Workload, kafka: KafkaSettings, *, partitioner: Partitioner = "murmur2", networks: int = 500
) -> dict[str, Any]:
    """Produce, then read all; the partitions of a rule of ours are known before the clock starts.

    Args:
        workload: its topic, and the number, size and highest rate of its records; one process sends and reads all.
        kafka: the cluster.
        partitioner: the rule from key to partition.
        networks: /24 networks of the clients whose addresses are the keys; few of them send most of the records.

    Returns:
        `most_to_mean`, `size_variation`: how uneven the partitions are; `clients`; `split_keys`, clients with records in more
        than one partition; `split_networks`, networks; `out_of_order`, records that the one reader got after a later one of
        the same client; `lost`, `again`; `produced`, `consumed`, `produce_per_second`, `consume_per_second`,
        `client_cpu_us_per_message` of the producer; `errors`.

    Raises:
        ConfigError: all records together are too large, or Kafka can't make such a topic.
        FatalError: a right is missing, or the topic is there already.
        RetryableError: Kafka does not answer.
        UnavailableError: the process failed; the text has its last words.
    """
    if workload.messages * workload.message_bytes > _MOST_MB * 1_000_000:
        message = (
            f"partitioner {workload.topic}: {workload.messages:,} messages of {workload.message_bytes} B are too many; wanted "
            f"at most {_MOST_MB:,} MB together, because the process holds them in memory"
        )
        raise ConfigError(message)
    plan = {
        "workload": asdict(workload), "conf": client_conf(kafka, client_id="tidegate-bench"),
        "partitioner": partitioner, "networks": networks,
    }  # fmt: skip
    seconds = START_SECONDS + 3 * workload.messages / min(workload.rate or _SLOW_RATE, _SLOW_RATE)
    with temporary_topic(workload, kafka), open_worker("keyed", plan) as worker:
        worker.await_ready(seconds)
        worker.say("produce")
        sent = worker.work(seconds)
        ends = settled_ends(kafka, workload.topic, workload.messages)
        worker.say("read")
        read = worker.work(seconds)
    sizes = [ends.get(number, 0) for number in range(workload.partitions)]
    produced = sum(sizes)
    return {
        **skew_figures(sizes),
        **read.figures,
        "again": read.again,
        "produced": produced,
        "consumed": read.messages,
        "produce_per_second": round(produced / elapsed_seconds([sent]), 1),
        "consume_per_second": round(read.messages / elapsed_seconds([read]), 1),
        "client_cpu_us_per_message": round(sent.cpu_seconds / workload.messages * 1e6, 3),
        "errors": sent.errors,
    }
