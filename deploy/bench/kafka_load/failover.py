"""Outage of Kafka's deciding server: the time until records, a new topic and all replicas are available again."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.bench.kafka_load.feed import RecordFeed, SteadyLoad, count_backwards, longest_pause_ms
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.workload import due_us
from deploy.bench.waiting import await_condition
from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_reader import ClusterReader
from ingest.security import client_conf
from ingest.topics.offsets import end_offsets
from ingest.topics.setup import delete_topic

__all__ = ["FailoverTimes", "Outage", "figures_of", "run_failover"]

Outage = Callable[[], AbstractContextManager[int]]
"""Kills a server and starts it again at the end of the block, whose value is the time of the kill in microseconds since 1970."""

_STEADY_SECONDS: Final = 2.0
_AWAY_SECONDS: Final = 1.0
"""Pause between the last recovery and the restart."""
_PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.02
_TRY_SECONDS: Final = 1.0
"""A request for a new topic that has no answer then is sent again."""
_NEW_TOPIC_RATE: Final = 50.0
_await = partial(await_condition, seconds=_PATIENCE_SECONDS, look_seconds=_POLL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class FailoverTimes:
    """Events of a failover, in microseconds since 1970.

    Attributes:
        killed_us: just before the kill.
        first_after: number of the first record that was produced when the server was dead.
        new_topic_us: when the new topic acknowledged its first record.
        restarted_us: just before the killed server was started again.
        answered_us: when it answered again.
        acknowledged: number of a record to the time of its acknowledgement.
        in_sync: times, each with the copies in sync of the partition that had the fewest.
        records: all of the topic as (partition, number, 0), in the order of each partition.
    """

    killed_us: int
    first_after: int
    new_topic_us: int
    restarted_us: int
    answered_us: int
    acknowledged: Mapping[int, int]
    in_sync: Sequence[tuple[int, int]]
    records: Sequence[tuple[int, int, int]]


def run_failover(load: SteadyLoad, kafka: KafkaSettings, outage: Outage) -> dict[str, float]:
    """Kill a server under a steady load with acks=all, wait until all works without it, start it again.

    The new topic has a copy less than the other one: so many brokers are left, and ZooKeeper mode refuses more.

    Returns:
        See `figures_of`, and `failed`, records that Kafka rejected.

    Raises:
        UnavailableError: something did not come back within two minutes.
    """
    with temporary_topic(load, kafka):
        try:
            return _measure(load, kafka, outage)
        finally:
            delete_topic(kafka, _new(load))


def _measure(load: SteadyLoad, kafka: KafkaSettings, outage: Outage) -> dict[str, float]:
    conf = client_conf(kafka, client_id="tidegate-bench")
    everywhere = set(range(load.partitions))
    with ExitStack() as parts:
        feed = _feeding(parts, RecordFeed(load, conf))
        watch = parts.enter_context(_watching(kafka, load.topic))
        _await(lambda: _served(load, feed, 0) == everywhere, f"not all partitions of {load.topic} accepted a record")
        _await(lambda: _least(watch) == load.replication, f"not all copies of {load.topic} were in sync")
        time.sleep(_STEADY_SECONDS)
        away = parts.enter_context(ExitStack())
        killed_us, first_after = away.enter_context(outage()), feed.produced
        new_topic_us = _await_new_topic(load, conf)
        _await(
            lambda: _served(load, feed, first_after) == everywhere,
            "not all partitions accepted a record after the kill",
        )
        time.sleep(_AWAY_SECONDS)
        restarted_us = _now_us()
        away.close()
        answered_us = _now_us()
        _await(lambda: _least(watch) == load.replication, "not all copies were in sync after the restart")
        time.sleep(_STEADY_SECONDS)
        feed.stop()
        course = FailoverTimes(
            killed_us=killed_us, first_after=first_after, new_topic_us=new_topic_us, restarted_us=restarted_us,
            answered_us=answered_us, acknowledged=dict(feed.acknowledged), in_sync=list(watch),
            records=_read(kafka, load.topic, conf),
        )  # fmt: skip
        return {**figures_of(load, course), "failed": feed.failed}


def figures_of(load: SteadyLoad, course: FailoverTimes) -> dict[str, float]:
    """The figures of a course; those with `_ms` count from the kill, where nothing else is said.

    Returns:
        `first_produce_ms`, until Kafka acknowledged a record that was produced after the kill; `all_partitions_ms`, until
        each partition had such a record; `partition_unacknowledged_ms`, the longest time without an acknowledgement of a
        partition; `new_topic_ms`, until a new topic took a record; `restart_ms`, from the restart of the killed server to its
        answer; `full_isr_ms`, from the restart until all copies were in sync, absent where they were so all the time;
        `least_in_sync`, copies in sync of the worst partition while the server was away; `lost`, records that were
        acknowledged and are not there; `again`, that are there more than once; `out_of_order`, after a later one.
    """
    after: dict[int, list[int]] = defaultdict(list)
    times: dict[int, list[int]] = defaultdict(list)
    for number, at in course.acknowledged.items():
        times[number % load.partitions].append(at)
        if number >= course.first_after:
            after[number % load.partitions].append(at)
    firsts = [min(found) for found in after.values()]
    stored = Counter(number for _, number, _ in course.records)
    away = [copies for at, copies in course.in_sync if course.killed_us < at < course.restarted_us]
    figures: dict[str, float] = {
        "first_produce_ms": _ms(min(firsts) - course.killed_us),
        "all_partitions_ms": _ms(max(firsts) - course.killed_us),
        "partition_unacknowledged_ms": max(longest_pause_ms(found, course.killed_us) for found in times.values()),
        "new_topic_ms": _ms(course.new_topic_us - course.killed_us),
        "restart_ms": _ms(course.answered_us - course.restarted_us),
        "lost": sum(number not in stored for number in course.acknowledged),
        "again": sum(count - 1 for count in stored.values()),
        "out_of_order": count_backwards(course.records),
    }
    if away:
        figures["least_in_sync"] = min(away)
    full = [at for at, copies in course.in_sync if at > course.restarted_us and copies >= load.replication]
    if full and away and min(away) < load.replication:
        figures["full_isr_ms"] = _ms(full[0] - course.restarted_us)
    return figures


def _feeding(parts: ExitStack, feed: RecordFeed) -> RecordFeed:
    feed.start()
    parts.callback(feed.stop)
    return feed


def _served(load: SteadyLoad, feed: RecordFeed, since: int) -> set[int]:
    """Partitions with an acknowledged record of this number or a later one."""
    return {number % load.partitions for number in feed.acknowledged.copy() if number >= since}


@contextmanager
def _watching(kafka: KafkaSettings, topic: str) -> Iterator[list[tuple[int, int]]]:
    """A list that grows while the block runs: times, each with the copies in sync of the partition that had the fewest."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def look() -> None:
        reader = ClusterReader(kafka)
        while not over.wait(_POLL_SECONDS):
            try:
                _, partitions = reader.topics(lambda name: name == topic, _TRY_SECONDS)
            except RetryableError:
                continue
            seen.append((_now_us(), min((len(one.in_sync) for one in partitions), default=0)))
        reader.close()

    thread = threading.Thread(target=look, name="bench-copies", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _least(seen: Sequence[tuple[int, int]]) -> int:
    """Copies in sync at the last look."""
    return seen[-1][1] if seen else 0


def _await_new_topic(load: SteadyLoad, conf: Mapping[str, Any]) -> int:
    """Make a topic as often as it takes, produce to it, and return the time of the first acknowledgement."""
    new = replace(load, topic=_new(load), partitions=1, replication=max(1, load.replication - 1), rate=_NEW_TOPIC_RATE)
    wanted = NewTopic(new.topic, new.partitions, new.replication, config=new.topic_config)
    quiet: dict[str, Any] = {"error_cb": lambda _error: None, "log_level": 0}
    client = AdminClient({**conf, **quiet})
    _await(lambda: _made(client, wanted), "no new topic could be created after the kill")
    with ExitStack() as parts:
        feed = _feeding(parts, RecordFeed(new, dict(conf)))
        _await(lambda: bool(feed.acknowledged), "the new topic did not accept a record")
        return min(feed.acknowledged.copy().values())


def _made(client: AdminClient, new: NewTopic) -> bool:
    try:
        # Else the client asks the controller that it once heard of, until its next look at the cluster minutes later.
        client.list_topics(timeout=_TRY_SECONDS)
        (made,) = client.create_topics([new], request_timeout=_TRY_SECONDS, operation_timeout=_TRY_SECONDS).values()
        made.result(2 * _TRY_SECONDS)
    except KafkaException as error:
        # An earlier request was carried out after its time.
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    except TimeoutError:
        return False
    return True


def _read(kafka: KafkaSettings, topic: str, conf: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """All records of the topic as (partition, number, 0)."""
    ends = end_offsets(kafka, topic)
    consumer = Consumer(
        {**conf, "group.id": topic, "enable.auto.commit": False, "error_cb": lambda _error: None, "log_level": 0}
    )
    found: list[tuple[int, int, int]] = []
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            value, partition = message.value(), message.partition()
            if message.error() is None and value is not None and partition is not None:
                found.append((partition, due_us(value), 0))
    consumer.close()
    return found


def _new(load: SteadyLoad) -> str:
    return f"{load.topic}-new"


def _now_us() -> int:
    return time.time_ns() // 1000


def _ms(microseconds: int) -> float:
    return round(microseconds / 1000, 1)
