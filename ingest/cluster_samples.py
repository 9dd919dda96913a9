"""A look at Kafka as samples under kafka_exporter's names, and two of our own; label values in the families' order."""

import math
from collections.abc import Iterable

from ingest.cluster_state import ClusterState, GroupPartition, Partition

__all__ = ["Samples", "cluster_samples", "unreachable"]

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
"""Name -> (label values, value) per series."""


def unreachable() -> Samples:
    """What is known of a Kafka that does not answer."""
    return {"tidegate_kafka_reachable": [((), 0.0)]}


def cluster_samples(state: ClusterState) -> Samples:
    """Every series of one look."""
    counts: dict[str, int] = {}
    for one in state.partitions:
        counts[one.topic] = counts.get(one.topic, 0) + 1
    return {
        "tidegate_kafka_reachable": [((), 1.0)],
        "kafka_brokers": [((), float(state.brokers))],
        "kafka_topic_partitions": [((topic,), float(count)) for topic, count in counts.items()],
        **_partitions(state.partitions),
        **_groups(state.groups),
    }


def _partitions(partitions: Iterable[Partition]) -> Samples:
    names = "current_offset", "oldest_offset", "in_sync_replica", "leader", "under_replicated_partition"
    samples: Samples = {f"kafka_topic_partition_{name}": [] for name in names}
    for one in partitions:
        values = one.end, one.oldest, one.in_sync, one.leader, one.in_sync < one.replicas
        for name, value in zip(names, values, strict=True):
            if value is not None:
                samples[f"kafka_topic_partition_{name}"].append(((one.topic, str(one.partition)), float(value)))
    return samples


def _groups(groups: Iterable[GroupPartition]) -> Samples:
    offsets: list[tuple[tuple[str, ...], float]] = []
    lags: list[tuple[tuple[str, ...], float]] = []
    oldest: dict[tuple[str, ...], float] = {}
    loss: dict[tuple[str, ...], float] = {}
    for one in groups:
        labels = (one.group, one.topic, str(one.partition))
        lags.append((labels, float(one.lag)))
        if one.committed is not None:
            offsets.append((labels, float(one.committed)))
        if one.lag_seconds is not None:
            oldest[labels[:2]] = max(one.lag_seconds, oldest.get(labels[:2], 0.0))
        if one.seconds_to_loss is not None:
            loss[labels[:2]] = min(one.seconds_to_loss, loss.get(labels[:2], math.inf))
    return {
        "kafka_consumergroup_current_offset": offsets,
        "kafka_consumergroup_lag": lags,
        "tidegate_kafka_lag_seconds": list(oldest.items()),
        "tidegate_kafka_time_to_data_loss_seconds": list(loss.items()),
    }
