"""Kafka for the page: partitions with their end offsets, and progress of the consumer groups."""

from collections.abc import Mapping
from typing import Any, Final

from monitoring.sample_history import History, Labels
from monitoring.snapshot.snapshot_inputs import KafkaNames
from monitoring.snapshot.sums import finite, total

__all__ = ["METRICS", "kafka", "kafka_rate", "lag"]

RATE_SECONDS: Final = 30.0
"""Window of the rates; the probe runs only every few seconds."""

_END: Final = "kafka_topic_partition_current_offset"
_COMMITTED: Final = "kafka_consumergroup_current_offset"
_LAG: Final = "kafka_consumergroup_lag"
_LAG_SECONDS: Final = "tidegate_kafka_lag_seconds"
_LOSS: Final = "tidegate_kafka_time_to_data_loss_seconds"
_BROKERS: Final = "kafka_brokers"
_BEHIND: Final = "tidegate_stream_offsets_behind"
_REACHABLE: Final = "tidegate_kafka_reachable"

METRICS: Final = frozenset({_END, _COMMITTED, _LAG, _LAG_SECONDS, _LOSS, _BROKERS, _BEHIND, _REACHABLE})


def kafka(memory: History, names: KafkaNames) -> dict[str, Any]:
    """Return brokers, partitions and groups, in order of their names."""
    return {
        "brokers": total(memory.latest(_BROKERS)),
        "partitions": _partitions(memory, names),
        "groups": _groups(memory),
    }


def lag(memory: History, names: KafkaNames) -> dict[str, float]:
    """Return the records not landed yet, per topic, as Kafka reports them, so that the lag grows while the stream is down.

    The lag is unknown while Kafka does not answer: the stream's last figure would look like no lag.
    """
    if _is_away(memory):
        return {}
    told = memory.latest(_LAG, consumergroup=names.group) or memory.latest(_BEHIND)
    return _per(told, "topic")


def kafka_rate(memory: History, topic: str) -> float | None:
    """Return the records appended to a topic per second; None while Kafka does not answer."""
    return None if _is_away(memory) else total(memory.rate(_END, RATE_SECONDS, topic=topic))


def _is_away(memory: History) -> bool:
    return total(memory.latest(_REACHABLE)) == 0


def _rates(memory: History, metric: str) -> Mapping[Labels, float]:
    """Return rates; none while Kafka does not answer, since earlier rates do not hold any more."""
    return {} if _is_away(memory) else memory.rate(metric, RATE_SECONDS)


def _partitions(memory: History, names: KafkaNames) -> list[dict[str, Any]]:
    place = ("topic", "partition")
    ends, rates = _keyed(memory.latest(_END), *place), _keyed(_rates(memory, _END), *place)
    committed = _keyed(memory.latest(_COMMITTED, consumergroup=names.group), *place)
    behind = _keyed(memory.latest(_LAG, consumergroup=names.group), *place)
    return [
        {
            "topic": topic,
            "partition": int(partition),
            "end": end,
            "committed": committed.get((topic, partition)),
            "lag": behind.get((topic, partition)),
            "per_second": finite(rates.get((topic, partition))),
        }
        for (topic, partition), end in sorted(ends.items(), key=lambda each: (each[0][0], int(each[0][1])))
    ]


def _groups(memory: History) -> list[dict[str, Any]]:
    place = ("consumergroup", "topic")
    behind, rates = _keyed(memory.latest(_LAG), *place), _keyed(_rates(memory, _COMMITTED), *place)
    ages, losses = _keyed(memory.latest(_LAG_SECONDS), *place), _keyed(memory.latest(_LOSS), *place)
    return [
        {
            "group": group,
            "topic": topic,
            "lag": records,
            "lag_seconds": finite(ages.get((group, topic)), 1),
            "per_second": finite(rates.get((group, topic))),
            "time_to_data_loss_seconds": finite(losses.get((group, topic)), 0),
        }
        for (group, topic), records in sorted(behind.items())
    ]


def _keyed(series: Mapping[Labels, float], *names: str) -> dict[tuple[str, ...], float]:
    """Return sums by the values of these labels."""
    found: dict[tuple[str, ...], float] = {}
    for labels, value in series.items():
        named = dict(labels)
        key = tuple(named.get(name, "") for name in names)
        found[key] = found.get(key, 0.0) + value
    return found


def _per(series: Mapping[Labels, float], name: str) -> dict[str, float]:
    return {key[0]: value for key, value in sorted(_keyed(series, name).items())}
