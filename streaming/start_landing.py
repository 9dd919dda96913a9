"""Start of the landing query: the offsets at which it begins, and a refusal to start if rows would be lost silently."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from ingest.contract.errors import FatalError
from ingest.kafka_settings import KafkaSettings
from ingest.read.record_names import NameReader
from ingest.topics.describe import topic_ids
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.paths import is_local, table_uri, to_path
from lakehouse.tables import READINGS, TABLES
from streaming.checkpoint import Checkpoint, LocalCheckpoint
from streaming.commit_marker import Marker
from streaming.copy_check import CopyCheck, IdentityIndex
from streaming.decode import decode_stream
from streaming.dedup_index import DedupIndex, points_folder
from streaming.driver_check import DriverCheck
from streaming.executors.executor_check import ExecutorCheck
from streaming.executors.identity_parts import IdentityParts
from streaming.executors.parts_folder import drop_parts
from streaming.identity_snapshot import SNAPSHOT_FILE
from streaming.kafka_source import LandedTopics, cut_options, kafka_options, read_topics
from streaming.land import Landing
from streaming.landing_offsets import (
    Cuts,
    Mark,
    Offsets,
    largest_offsets,
    mark_history,
    newest_mark,
    newest_of,
    next_era,
)
from streaming.landing_progress import LandingProgress
from streaming.log_identity import KafkaLog, KafkaView, accepted_cuts, known_names, lost_records
from streaming.lost_records import (
    LostRecords,
    describe_lost_records,
    find_lost_records,
    read_start_instruction,
    recreated_topics,
)
from streaming.stored_times import stored_times
from streaming.stream_settings import StreamSettings
from streaming.vanished_commits import FinishedBatch, refuse_vanished

__all__ = [
    "LAND",
    "LandQuery",
    "choose_start_offsets",
    "find_lost_records",
    "first_offsets",
    "open_check",
    "select_valid_marks",
    "start_landing",
]

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
    check: CopyCheck,
    progress: LandingProgress,
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
    newest = newest_of(marks.values())
    view = KafkaView(
        {topic: begin_offsets(kafka, topic) for topic in topics.names},
        {topic: end_offsets(kafka, topic) for topic in topics.names},
        topic_ids(kafka, topics.names),
    )
    left, begun = read_start_instruction(root), checkpoint.begun()
    order = left.unless_in(newest)
    if begun or not order.replay:
        refuse_vanished(root, newest, FinishedBatch.of(checkpoint) if begun else None, passed_over=bool(order.accepted))
    following = checkpoint.next_offsets() if begun else first_offsets(marks.values(), order.replay)
    reached = largest_offsets(
        following or {}, newest.reach if newest else {}, checkpoint.planned_ends() if begun else {}
    )
    reader = NameReader(kafka)
    log, stored = KafkaLog(kafka, reader), stored_times(root, topics.readings)
    lost = lost_records(view, newest, following or {}, reached, lambda: mark_history(root, TABLES), log, stored)
    # A checkpoint cannot skip anything: only a new one begins at given offsets.
    if refused := order.refused_by_checkpoint(lost, following or {}) if begun else order.refused(lost):
        raise FatalError(describe_lost_records(refused))
    cuts = accepted_cuts(newest, order, recreated_topics(newest, view.ids))
    start = choose_start_offsets(following, view.oldest, [*order.cuts, *lost])
    if begun and left.file is not None and not order.accepted:
        left.settle()
    local = LocalCheckpoint(to_path(checkpoint.path)) if is_local(checkpoint.path) else checkpoint
    fit = select_valid_marks(marks, view.newest, view.ids, cuts)
    era = next_era(marks.values(), checkpoint.query_id() if begun else None)
    names = known_names(newest, view.ids, cuts, lambda: mark_history(root, TABLES))
    marker = Marker(view.ids, order, cuts, names, reader.read, era=era)
    landing = Landing(spark, root, local, check, progress, mirror, fit, topics, marker=marker, fsync=settings.fsync)
    options = kafka_options(kafka, topics, start=start, max_records=settings.max_records_per_batch)
    if not available_now:
        options |= cut_options(settings.batch_cut, settings.max_records_per_batch)
    rows = decode_stream(read_topics(spark, options), topics.readings)
    writer = rows.writeStream.queryName(LAND).option("checkpointLocation", settings.checkpoint)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif settings.trigger_seconds > 0:
        writer = writer.trigger(processingTime=f"{int(settings.trigger_seconds * 1000)} milliseconds")
    query = writer.foreachBatch(landing).start()
    landing.app = str(query.id)
    return LandQuery(query, landing)


def open_check(
    spark: SparkSession, root: str, settings: StreamSettings, progress: LandingProgress
) -> tuple[CopyCheck, IdentityIndex]:
    """Learn what is stored, and return the way to find copies by it, and its identities.

    What the other way has saved is deleted: it does not see which commits are lost until it is used again.

    Raises:
        FatalError: a data file is gone, or another stream has the tables; names the next step.
    """
    snapshot = Path(root) / SNAPSHOT_FILE if is_local(root) else None
    if settings.checks_on_executors:
        if snapshot is not None:
            snapshot.unlink(missing_ok=True)
            shutil.rmtree(points_folder(snapshot), ignore_errors=True)
        parts = IdentityParts(spark, root)
        parts.load(horizon_days=settings.horizon_days)
        return ExecutorCheck(spark, root, parts, progress), parts
    drop_parts(spark, root)
    seen = DedupIndex(snapshot)
    seen.load(root, horizon_days=settings.horizon_days)
    return DriverCheck(spark, root, table_uri(root, READINGS.name), seen, progress), seen


def first_offsets(marks: Iterable[Mark | None], replay: Offsets) -> Offsets | None:
    """Return the start of a new checkpoint: the start of the newest batch in the tables; None if there is none.

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


def choose_start_offsets(following: Offsets | None, oldest: Offsets, lost: Iterable[LostRecords]) -> Offsets:
    """Return the first offset of every partition: where it goes on, but no later than the edge of a cut.

    Its oldest record where it is new, or where what came next is lost.
    """
    known = {topic: dict(parts) for topic, parts in (following or {}).items()}
    for topic, part, offset, edge in lost:
        into = known.setdefault(topic, {})
        # A partition that was added in the newest batch is not in its start: it begins at the oldest record.
        into[part] = edge if edge > offset else min(edge, into.get(part, 0))
    return {
        topic: {part: max(first, known.get(topic, {}).get(part, first)) for part, first in parts.items()}
        for topic, parts in oldest.items()
    }


def select_valid_marks(
    marks: dict[str, Mark | None], newest: Offsets, ids: Mapping[str, str], cuts: Cuts | None = None
) -> dict[str, Mark | None]:
    """Return the marks without offsets of other records: recreated topics, and offsets behind the edge of a cut."""

    def kept(mark: Mark) -> Mark:
        anew, within = recreated_topics(mark, ids), mark.within(cuts or {})

        def held(offsets: Offsets) -> Offsets:
            return {
                topic: {part: end for part, end in parts.items() if end <= newest.get(topic, {}).get(part, -1)}
                for topic, parts in offsets.items()
                if topic not in anew
            }

        return replace(mark, ends=held(within.ends), beyond=held(within.beyond))

    return {table: mark and kept(mark) for table, mark in marks.items()}
