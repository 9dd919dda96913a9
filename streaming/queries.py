"""Starts the landing query: decides where it begins, and refuses where going on would lose rows without a word."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from ingest.contract.errors import FatalError
from ingest.offsets import begin_offsets, end_offsets
from ingest.settings import KafkaSettings
from ingest.topic_state import topic_ids
from lakehouse.files import is_local
from lakehouse.tables import TABLES
from streaming.checkpoint import Checkpoint, LocalCheckpoint
from streaming.decode import decoded
from streaming.dedupe import Seen
from streaming.land import Landing
from streaming.losses import Lost, gone, lost_text, read_order, remade_topics
from streaming.offsets import Mark, Offsets, newest_mark, newest_of
from streaming.progress import Progress
from streaming.settings import StreamSettings
from streaming.source import LandedTopics, kafka_options, read_topics

__all__ = ["LAND", "LandQuery", "begin_at", "first_offsets", "fitting", "gone", "start_landing"]

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
    checkpoint.verify()
    marks = {name: newest_mark(root, name) for name in TABLES}
    oldest = {topic: begin_offsets(kafka, topic) for topic in topics.names}
    newest = {topic: end_offsets(kafka, topic) for topic in topics.names}
    ids, order, begun = topic_ids(kafka, topics.names), read_order(root), checkpoint.begun()
    following = checkpoint.next_offsets() if begun else first_offsets(marks.values(), order.replay)
    lost = gone(following or {}, oldest, newest, remade_topics(newest_of(marks.values()), ids))
    # A checkpoint cannot pass over anything: only a new one begins where it is told.
    if refused := lost if begun else order.refused(lost):
        raise FatalError(lost_text(refused))
    start = begin_at(following, oldest, lost)
    if begun and order.file is not None and not order.accepted:
        order.settle()
    local = LocalCheckpoint(Path(checkpoint.path.removeprefix("file://"))) if is_local(checkpoint.path) else checkpoint
    landing = Landing(
        spark, root, local, seen, progress, mirror, fitting(marks, newest, ids), topics, ids=ids, order=order
    )
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


def first_offsets(marks: Iterable[Mark | None], replay: Offsets) -> Offsets | None:
    """Where a new checkpoint goes on: at the start of the newest batch in the tables; None where there is none.

    That batch may have reached one table and not the other, so all of it is read again; what each table has of it is
    filtered out. A repair may ask for an earlier offset (`replay`).
    """
    mark = newest_of(marks)
    if mark is None:
        return replay or None
    topics = {*mark.starts, *replay}
    begun = {topic: dict(mark.starts.get(topic, {})) for topic in topics}
    for topic, parts in replay.items():
        for part, offset in parts.items():
            begun[topic][part] = min(offset, begun[topic].get(part, offset))
    return begun


def begin_at(following: Offsets | None, oldest: Offsets, lost: Iterable[Lost]) -> Offsets:
    """Every partition's first offset: where it goes on, or its oldest record where it is new or what came next is lost."""
    passed = {each[:2] for each in lost}
    known = {topic: dict(parts) for topic, parts in (following or {}).items()}
    return {
        topic: {
            part: first if (topic, part) in passed else known.get(topic, {}).get(part, first)
            for part, first in parts.items()
        }
        for topic, parts in oldest.items()
    }


def fitting(marks: dict[str, Mark | None], newest: Offsets, ids: Mapping[str, str]) -> dict[str, Mark | None]:
    """The marks without the partitions that are others now: those were made anew, and their records are new."""

    def kept(mark: Mark) -> Mark:
        anew = remade_topics(mark, ids)
        ends = {
            topic: {part: end for part, end in parts.items() if end <= newest.get(topic, {}).get(part, -1)}
            for topic, parts in mark.ends.items()
            if topic not in anew
        }
        return replace(mark, ends=ends)

    return {table: mark and kept(mark) for table, mark in marks.items()}
