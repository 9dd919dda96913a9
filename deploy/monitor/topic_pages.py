"""Topics for the page: a list, and records of one topic. Their content stays plain text in every answer."""

import math
from collections.abc import Mapping
from typing import Any, Final, cast

from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import is_own_topic
from ingest.lag.cluster_state import PartitionState
from ingest.read.browse import Begin, BrowseRequest, BrowseResult, browse_topic
from ingest.read.shown_record import RecordPiece, ShownRecord
from ingest.topics.overview import TopicOverview, topic_overviews
from monitoring.page.page_api import TopicRequest

__all__ = ["list_topics", "show_topic"]

OURS: Final = "telemetry."
"""Prefix of shown topics. The page needs no login, so it does not show topics of others, whatever they hold."""


def _is_shown(name: str) -> bool:
    """Return whether the page shows this topic."""
    return name.startswith(OURS) or is_own_topic(name)


def list_topics(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the topics with their partitions and retention.

    Raises:
        RetryableError: Kafka does not answer.
    """
    return {"topics": [_topic(sight) for sight in topic_overviews(kafka, _is_shown)]}


def show_topic(kafka: KafkaSettings, wanted: TopicRequest) -> dict[str, Any]:
    """Return records of one topic, newest first, and how far the search went.

    Raises:
        UnavailableError: the topic or partition does not exist, or may not be read.
        RetryableError: Kafka does not answer.
    """
    if not _is_shown(wanted.name):
        message = f"Topic {wanted.name} is not one of Tidegate's: this page shows only topics that begin with {OURS}"
        raise UnavailableError(message)
    look = browse_topic(
        kafka,
        BrowseRequest(
            topic=wanted.name,
            begin=cast(Begin, wanted.begin),
            at=wanted.at,
            positions=wanted.places,
            partition=wanted.partition,
            key=None if wanted.key is None else wanted.key.encode("utf-8", "replace"),
            limit=wanted.limit,
        ),
        keyed=is_own_topic(wanted.name),
    )
    return {"topic": wanted.name, **_look(look)}


def _topic(sight: TopicOverview) -> dict[str, Any]:
    told = sight.settings
    kept = told.retention if told else None
    return {
        "topic": sight.name,
        "partitions": [_partition(one, sight) for one in sight.partitions],
        "retention_seconds": _finite(kept.seconds) if kept else None,
        "retention_bytes": _finite(kept.size_bytes) if kept else None,
        "min_in_sync": told.min_in_sync if told else None,
        "policy": kept.policy if kept else None,
        "time_type": ("append" if kept.by_append_time else "create") if kept else None,
    }


def _partition(one: PartitionState, sight: TopicOverview) -> dict[str, Any]:
    known = one.oldest is not None and one.end is not None
    return {
        "partition": one.partition,
        "first": one.oldest,
        "next": one.end,
        "records": (one.end or 0) - (one.oldest or 0) if known else None,
        "leader": one.leader if one.leader >= 0 else None,
        "replicas": len(one.replicas),
        "in_sync": len(one.in_sync),
        "oldest_ms": sight.oldest_ms.get(one.partition),
        "newest_ms": sight.newest_ms.get(one.partition),
    }


def _look(look: BrowseResult) -> dict[str, Any]:
    return {
        "records": [_record(record) for record in look.records],
        "older": _places(look.older),
        "newer": _places(look.newer),
        "looked": look.looked,
        "looked_bytes": look.looked_bytes,
        "spent": look.spent,
        "back_to_ms": look.back_to_ms,
        "only_partition": look.only_partition,
        "gone": look.gone,
        "silent": list(look.silent),
    }


def _places(positions: Mapping[int, int] | None) -> str | None:
    return ",".join(f"{one}:{offset}" for one, offset in sorted(positions.items())) if positions else None


def _record(record: ShownRecord) -> dict[str, Any]:
    headers = record.headers
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at_ms": record.at_ms,
        "time_type": record.time_type,
        "size_bytes": record.size_bytes,
        "key": _piece(record.key),
        "headers": None if headers is None else [{"name": name, "value": _piece(each)} for name, each in headers],
        "value": _piece(record.value),
    }


def _piece(piece: RecordPiece | None) -> dict[str, Any] | None:
    if piece is None:
        return None
    content = {"text": piece.text} if piece.base64 is None else {"base64": piece.base64}
    return {**content, "bytes": piece.size_bytes, "cut": piece.is_cut}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
