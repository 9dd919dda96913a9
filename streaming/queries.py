"""Starts the landing query: decides where it begins, and refuses where going on would lose rows without a word."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import SparkSession

from ingest.admin import begin_offsets, end_offsets
from ingest.contract.errors import FatalError
from ingest.settings import KafkaSettings
from lakehouse.tables import TABLES
from streaming.checkpoint import Checkpoint
from streaming.decode import decoded
from streaming.dedupe import Seen
from streaming.land import Landing
from streaming.offsets import Mark, Offsets, newest_mark
from streaming.progress import Progress
from streaming.settings import StreamSettings
from streaming.source import LandedTopics, kafka_options, read_topics

__all__ = ["LAND", "LandQuery", "first_offsets", "fitting", "gone", "start_landing"]

logger = logging.getLogger("tidegate.streaming.queries")

LAND: Final = "land"
"""The query's name, in metrics and in Kafka's group `tidegate-land`."""


@dataclass(slots=True)
class LandQuery:
    """A started query and what it lands with."""

    query: Any
    landing: Landing


def start_landing(
    spark: SparkSession,
    root: str,
    kafka: KafkaSettings,
    settings: StreamSettings,
    seen: Seen,
    progress: Progress,
    mirror: Callable[[Offsets], object],
    topics: LandedTopics,
    *,
    available_now: bool = False,
) -> LandQuery:
    """Start the query on its checkpoint, or from where the tables are when the checkpoint is new.

    With `available_now` it lands what is in Kafka at the start and ends.

    Raises:
        FatalError: the checkpoint is damaged, or Kafka no longer has what comes next.
        RetryableError: Kafka does not answer.
    """
    checkpoint = Checkpoint(spark, settings.checkpoint)
    marks = {name: newest_mark(root, name) for name in TABLES}
    oldest = {topic: begin_offsets(kafka, topic) for topic in topics.names}
    newest = {topic: end_offsets(kafka, topic) for topic in topics.names}
    if checkpoint.query_id() is None:
        start = first_offsets(marks, oldest, newest)
    else:
        start = oldest
        following = checkpoint.next_offsets() or {}
        if lost := gone(following, oldest, newest):
            raise FatalError(_loss(lost, settings.checkpoint))
    landing = Landing(spark, root, checkpoint, seen, progress, mirror, fitting(marks, newest), topics)
    options = kafka_options(kafka, topics, start=start, max_records=settings.max_records_per_batch)
    rows = decoded(read_topics(spark, options), topics.readings)
    writer = rows.writeStream.queryName(LAND).option("checkpointLocation", settings.checkpoint)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif settings.trigger_seconds > 0:
        writer = writer.trigger(processingTime=f"{int(settings.trigger_seconds * 1000)} milliseconds")
    query = writer.foreachBatch(landing).start()
    landing.app = str(query.id)
    return LandQuery(query, landing)


def first_offsets(marks: dict[str, Mark | None], oldest: Offsets, newest: Offsets) -> Offsets:
    """Where a new checkpoint begins: at the start of the newest batch in the tables, else at the oldest record.

    That batch may have reached one table and not the other, so all of it is read again; what each table has of it is
    filtered out. A partition that no longer fits (its topic was made anew, or what came next expired) begins at its oldest
    record, and that is told.
    """
    known = [mark for mark in marks.values() if mark is not None]
    if not known:
        return oldest
    begun = max(known, key=lambda mark: sum(sum(parts.values()) for parts in mark.ends.values())).starts
    begin: Offsets = {}
    for topic, parts in oldest.items():
        begin[topic] = {}
        for part, first in parts.items():
            stored = begun.get(topic, {}).get(part, first)
            fits = first <= stored <= newest[topic][part]
            begin[topic][part] = stored if fits else first
            if not fits:
                logger.warning("%s", _skipped(topic, part, stored, first))
    return begin


def fitting(marks: dict[str, Mark | None], newest: Offsets) -> dict[str, Mark | None]:
    """The marks without the partitions that Kafka's no longer reach: those were made anew, and their records are new."""

    def kept(mark: Mark) -> Mark:
        ends = {
            topic: {part: end for part, end in parts.items() if end <= newest.get(topic, {}).get(part, -1)}
            for topic, parts in mark.ends.items()
        }
        return replace(mark, ends=ends)

    return {table: mark and kept(mark) for table, mark in marks.items()}


def gone(following: Offsets, oldest: Offsets, newest: Offsets) -> list[tuple[str, int, int, int]]:
    """(topic, partition, next, oldest or end) where Kafka's partition no longer holds the record that comes next."""
    lost = []
    for topic, parts in following.items():
        for part, offset in parts.items():
            first, end = oldest.get(topic, {}).get(part), newest.get(topic, {}).get(part)
            if first is None or end is None:
                lost.append((topic, part, offset, -1))
            elif offset < first:
                lost.append((topic, part, offset, first))
            elif offset > end:
                lost.append((topic, part, offset, end))
    return lost


def _loss(lost: list[tuple[str, int, int, int]], checkpoint: str) -> str:
    shown = "; ".join(_lost_range(*each) for each in lost)
    return (
        f"Kafka no longer has records that were not stored yet: {shown}. Nothing is skipped in silence. To accept the loss "
        f"and go on with what Kafka still has, move the checkpoint {checkpoint} away and start again; stored rows stay."
    )


def _lost_range(topic: str, part: int, following: int, edge: int) -> str:
    where = f"{topic} partition {part}"
    if edge < 0:
        return f"{where} is not there any more (stored up to offset {following - 1})"
    if edge < following:
        return f"{where} ends at offset {edge}, before {following} which comes next: the topic was made anew or cut"
    return f"{where} offsets {following} to {edge - 1} ({edge - following} records)"


def _skipped(topic: str, part: int, stored: int, first: int) -> str:
    if stored < first:
        return f"{_lost_range(topic, part, stored, first)} expired in Kafka before they were stored; landing begins at {first}"
    return f"{topic} partition {part} was made anew (stored up to {stored}): landing begins at its oldest record"
