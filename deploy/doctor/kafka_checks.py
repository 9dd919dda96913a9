"""Findings about Kafka's topics: they exist as the settings want them, and keep records until the stream has read them."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from deploy.local.preflight import PreflightCheck
from deploy.local.text_format import format_time_left
from ingest.contract.errors import RetryableError
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, LAND_GROUP, OUTCOMES, READINGS, stream_group
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import LAND_TOPICS, ClusterProbe, is_own_topic
from ingest.lag.cluster_state import ClusterState, GroupPartition
from ingest.topics.copies import Copies
from ingest.topics.overview import TopicOverview, topic_overviews
from ingest.topics.setup import topic_differences

__all__ = ["KafkaFacts", "check_topics", "read_facts"]

NEEDED: Final = (READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE)
KEPT: Final = (READINGS, DEAD_LETTERS, OUTCOMES)
"""Topics that must reach back over an outage: the stream reads the first two, the audit all of them."""
LOOKS: Final = 3
TOPICS_SECONDS: Final = 20.0
FAIL_SECONDS: Final = 6 * 3600.0
WARN_SECONDS: Final = 24 * 3600.0
"""As the alerts TidegateTimeToDataLoss."""


@dataclass(frozen=True, slots=True)
class KafkaFacts:
    """What Kafka says about Tidegate's topics.

    Attributes:
        state: brokers, partitions and the landing's group.
        topics: settings and times of the topics.
        differences: from the settings, sentences by topic.
        now: this machine's clock, epoch seconds.
    """

    state: ClusterState
    topics: Sequence[TopicOverview] = ()
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    now: float = 0.0


def read_facts(kafka: KafkaSettings, streams: Iterable[str] = ()) -> KafkaFacts:
    """Ask Kafka, for some seconds at most; `streams` are the names of applied SQL streams.

    Raises:
        RetryableError: Kafka does not answer.
        ConfigError: the settings cannot work.
    """
    groups = [LAND_GROUP, *map(stream_group, streams)]
    probe = ClusterProbe(kafka, lambda: groups)
    try:
        state = _state(probe)
    finally:
        probe.close()
    topics = topic_overviews(kafka, is_own_topic, most_seconds=TOPICS_SECONDS)
    return KafkaFacts(state, topics, topic_differences(kafka), time.time())


def _state(probe: ClusterProbe) -> ClusterState:
    """Return the first complete look: a look has three seconds, in which a new client may not get to all brokers."""
    for _ in range(LOOKS - 1):
        with suppress(RetryableError):
            return probe.state()
    return probe.state()


def check_topics(facts: KafkaFacts, *, outage_seconds: float) -> Iterator[PreflightCheck]:
    """Yield the findings.

    Args:
        facts: from Kafka.
        outage_seconds: longest outage of the stream that must lose nothing.
    """
    yield from _existence(facts)
    yield from _copies(facts)
    yield from (
        found for one in facts.topics if one.name in KEPT for found in _retention(one, outage_seconds, facts.now)
    )
    yield from _unread(facts)


def _existence(facts: KafkaFacts) -> Iterator[PreflightCheck]:
    known = {one.name: one for one in facts.topics}
    missing = [name for name in NEEDED if name not in known]
    if missing:
        text = f"{', '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist, or this user may not see it"
        fix = (
            "The gateway creates missing topics at its start if its user may (`tidegate topics acl` shows the rights)."
        )
        yield PreflightCheck("topics", "warn", text, fix)
    problems = [f"{one.name}: {problem}" for one in facts.topics for problem in one.problems()]
    for problem in problems:
        yield PreflightCheck("topics", "fail", problem, "Start the missing brokers, and look at their logs.")
    for lines in facts.differences.values():
        for line in lines:
            text, _, fix = line.partition(". ")
            yield PreflightCheck("topics", "warn", text, fix or "Change the topic or the settings.")
    if not missing and not problems and not any(facts.differences.values()):
        counts = ", ".join(f"{name} {len(known[name].partitions)}" for name in NEEDED)
        yield PreflightCheck("topics", "ok", f"all as the settings say (partitions: {counts})")


def _copies(facts: KafkaFacts) -> Iterator[PreflightCheck]:
    """Warn where one disk may hold the only copy of an acknowledged record, even if the settings ask for that."""
    brokers, wanted = facts.state.brokers, facts.state.wanted
    enough = {one.name: least for one in facts.topics if (least := _enough(one)) is not None}
    weak = [name for name, least in enough.items() if least < 2]
    if brokers < 2:
        text = "one broker: Kafka can keep one copy only, so a lost disk loses acknowledged records"
        yield PreflightCheck("copies", "warn", text, "Run Kafka with three brokers where data must not be lost.")
    elif weak:
        text = f"on {brokers} brokers one copy is enough for an acknowledgement of {', '.join(sorted(weak))}"
        yield PreflightCheck("copies", "warn", text, _raise_copies(brokers, wanted))
    elif wanted.min_in_sync < 2 and not enough:
        text = f"on {brokers} brokers the settings make one copy enough for an acknowledgement"
        yield PreflightCheck("copies", "warn", text, _raise_copies(brokers, wanted))
    else:
        least = min(enough.values(), default=wanted.min_in_sync)
        yield PreflightCheck(
            "copies", "ok", f"{brokers} brokers; {least} copies have a record before it is acknowledged"
        )


def _raise_copies(brokers: int, wanted: Copies) -> str:
    fix = "Add copies with Kafka's kafka-reassign-partitions, then run `tidegate topics set TOPIC --as-settings`."
    if wanted.min_in_sync >= 2:
        return fix
    return f"Set kafka.replication = {min(3, brokers)} and leave kafka.min_in_sync out. {fix}"


def _enough(topic: TopicOverview) -> int | None:
    """Return how many copies a record of the topic has at least when Kafka acknowledges it; None if unknown."""
    least = topic.settings.min_in_sync if topic.settings else None
    fewest = min((len(one.replicas) for one in topic.partitions), default=0)
    if least is None and fewest != 1:
        return None
    return min(fewest, least or 1)


def _retention(topic: TopicOverview, outage_seconds: float, now: float) -> Iterator[PreflightCheck]:
    if topic.settings is None:
        text = f"the retention of {topic.name} is unknown: Kafka did not return the topic's settings"
        fix = "Grant the Kafka user DESCRIBE_CONFIGS on the topic, and run the command again."
        yield PreflightCheck("retention", "warn", text, fix)
        return
    keeps = topic.settings.retention
    wanted = f"an outage of {format_time_left(outage_seconds)} must lose nothing"
    if keeps.seconds < outage_seconds:
        text = f"{topic.name} keeps records for {format_time_left(keeps.seconds)}, but {wanted}"
        fix = f"Run `tidegate topics set {topic.name} --retention-hours {math.ceil(outage_seconds / 3600)}`."
        yield PreflightCheck("retention", "fail", text, fix)
    elif (reach := _reach(topic, now)) is not None and reach < min(outage_seconds, keeps.seconds):
        text = f"{topic.name} is full: by its size limit it reaches back only {format_time_left(reach)}, but {wanted}"
        factor = math.ceil(outage_seconds / reach)
        fix = f"Run `tidegate topics set {topic.name} --retention-bytes BYTES` with about {factor} times its limit."
        yield PreflightCheck("retention", "fail", text, fix)
    else:
        yield PreflightCheck(
            "retention", "ok", f"{topic.name} keeps records for {format_time_left(keeps.seconds)}; {wanted}"
        )


def _reach(topic: TopicOverview, now: float) -> float | None:
    """Return the age of the oldest record of the partition that reaches back least, if a size limit deletes records there."""
    if topic.settings is None or math.isinf(topic.settings.retention.size_bytes):
        return None
    dropped = {one.partition for one in topic.partitions if one.oldest and one.end is not None and one.end > one.oldest}
    ages = [now - at / 1000 for partition, at in topic.oldest_ms.items() if partition in dropped]
    return max(1.0, min(ages)) if ages else None


def _unread(facts: KafkaFacts) -> Iterator[PreflightCheck]:
    """Compare the positions of the landing and of SQL streams (their checkpoints) with what Kafka still has."""
    oldest = {(one.topic, one.partition): one.oldest or 0 for one in facts.state.partitions}
    for group in sorted({LAND_GROUP, *(one.group for one in facts.state.groups)}):
        parts = [one for one in facts.state.groups if one.group == group]
        reader = "the stream" if group == LAND_GROUP else group
        lost = {
            f"{one.topic}/{one.partition}": first - one.committed
            for one in parts
            if one.committed is not None and (first := oldest.get((one.topic, one.partition), 0)) > one.committed
        }
        if lost:
            text = f"Kafka has deleted {sum(lost.values()):,} records that {reader} has not read ({', '.join(lost)})"
            fix = "Run `tidegate repair` to see what is lost, and raise the retention of the topic."
            yield PreflightCheck("unread", "fail", text, fix)
        elif any(one.committed is not None for one in parts):
            yield _time_left(reader, parts)
        elif group == LAND_GROUP:
            names = " and ".join(LAND_TOPICS[LAND_GROUP])
            yield PreflightCheck("unread", "ok", f"no stream has landed records of {names} yet")


def _time_left(reader: str, groups: Sequence[GroupPartition]) -> PreflightCheck:
    behind = [one for one in groups if one.lag]
    if not behind:
        return PreflightCheck("unread", "ok", f"{reader} has read everything")
    ages = [one.lag_seconds for one in behind if one.lag_seconds is not None]
    left = min((one.seconds_to_loss for one in behind if one.seconds_to_loss is not None), default=math.inf)
    age = f", the oldest {format_time_left(max(ages))} old" if ages else ""
    text = f"{reader} has not read {sum(one.lag for one in behind):,} records{age}"
    if math.isfinite(left):
        text += f"; Kafka deletes the first of them in {format_time_left(left)}"
    if left >= WARN_SECONDS:
        return PreflightCheck("unread", "ok", text)
    fix = "Start the stream, or raise the retention first: `tidegate topics set TOPIC --retention-hours 720`."
    return PreflightCheck("unread", "fail" if left < FAIL_SECONDS else "warn", text, fix)
