"""Samples of one look at Kafka, under kafka_exporter's names and our own; label values in the order of the families."""

import math
from collections.abc import Callable, Iterable

from ingest.lag.cluster_state import ClusterState, GroupPartition, PartitionState

__all__ = ["Samples", "cluster_samples", "unreachable_samples"]

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
"""Name -> (label values, value) per series."""


def unreachable_samples() -> Samples:
    """Return the samples of a Kafka that does not answer."""
    return {"tidegate_kafka_reachable": [((), 0.0)]}


def cluster_samples(state: ClusterState) -> Samples:
    """Return every series of one look."""
    counts: dict[str, int] = {}
    for one in state.partitions:
        counts[one.topic] = counts.get(one.topic, 0) + 1
    return {
        "tidegate_kafka_reachable": [((), 1.0)],
        "kafka_brokers": [((), float(state.brokers))],
        "kafka_topic_partitions": [((topic,), float(count)) for topic, count in counts.items()],
        **_partitions(state.partitions),
        "tidegate_kafka_under_min_isr_partitions": _under_min_isr(state),
        **_groups(state.groups),
    }


def _partitions(partitions: Iterable[PartitionState]) -> Samples:
    names = "current_offset", "oldest_offset", "in_sync_replica", "leader", "under_replicated_partition"
    samples: Samples = {f"kafka_topic_partition_{name}": [] for name in names}
    for one in partitions:
        values = one.end, one.oldest, len(one.in_sync), one.leader, bool(one.missing)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                samples[f"kafka_topic_partition_{name}"].append(((one.topic, str(one.partition)), float(value)))
    return samples


def _under_min_isr(state: ClusterState) -> list[tuple[tuple[str, ...], float]]:
    """Return per topic the number of partitions for which Kafka accepts no record, including 0, where the settings are known."""
    found: dict[tuple[str, ...], float] = {}
    for one in state.partitions:
        least = state.min_in_sync.get(one.topic)
        if least is not None:
            found[one.topic,] = found.get((one.topic,), 0.0) + one.is_refused(least)
    return list(found.items())


def _groups(groups: Iterable[GroupPartition]) -> Samples:
    offsets: list[tuple[tuple[str, ...], float]] = []
    lags: list[tuple[tuple[str, ...], float]] = []
    behind: dict[tuple[str, ...], list[GroupPartition]] = {}
    for one in groups:
        labels = (one.group, one.topic, str(one.partition))
        lags.append((labels, float(one.lag)))
        if one.committed is not None:
            offsets.append((labels, float(one.committed)))
        behind.setdefault(labels[:2], [])
        if one.lag:
            behind[labels[:2]].append(one)
    ages = [(where, _worst(max, [one.lag_seconds for one in parts], 0.0)) for where, parts in behind.items()]
    left = [(where, _worst(min, [one.seconds_to_loss for one in parts], math.inf)) for where, parts in behind.items()]
    return {
        "kafka_consumergroup_current_offset": offsets,
        "kafka_consumergroup_lag": lags,
        "tidegate_kafka_lag_seconds": [(where, value) for where, value in ages if value is not None],
        "tidegate_kafka_time_to_data_loss_seconds": [(where, value) for where, value in left if value is not None],
    }


def _worst(pick: Callable[[list[float]], float], values: list[float | None], none_behind: float) -> float | None:
    """Pick the worst value of the partitions that are behind; None where it is unknown for all of them."""
    known = [value for value in values if value is not None]
    return pick(known) if known else (None if values else none_behind)
