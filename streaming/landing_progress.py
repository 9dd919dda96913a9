"""Progress of the landing: metrics of batches, latency of every row, lag, and one sentence about the state."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.reading import REDRIVE_GATEWAY
from lakehouse.tables import READINGS
from monitoring.metrics.stream import PHASES, StreamMetrics, bucket_bounds, observe_counts, observe_same
from streaming.landing_offsets import parse_source_offsets, record_count

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LandingProgress", "StreamState", "unseen_reports"]

logger = logging.getLogger("tidegate.streaming.progress")

_KAFKA_HALF_US: Final = 500
"""Kafka's clock has whole milliseconds and is rounded down: its middle is right to half of one, on both sides."""

IDLE_SECONDS: Final = 10.0
"""Seconds after the newest batch at which its rates no longer mean anything."""


class StreamState:
    """State of the stream for `/healthz` and `status`: a word and a sentence. Safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready, self._detail, self.since = False, "starting", time.time()

    def set(self, *, ready: bool, detail: str) -> None:
        """Replace the state; `since` stays where nothing changed."""
        with self._lock:
            if (ready, detail) != (self._ready, self._detail):
                self._ready, self._detail, self.since = ready, detail, time.time()
                logger.info("%s", detail)

    def healthy(self) -> tuple[bool, str]:
        """Return whether rows are being landed, and the sentence; monitoring.exporter asks for it."""
        with self._lock:
            return self._ready, self._detail


class LandingProgress:
    """Turns what the landing and Spark report into metrics. `laps` holds the seconds of the newest batch's steps.

    `late_seconds`: a reading is late that was this old, or older, when it was received, as in `ledger`.
    """

    def __init__(self, metrics: StreamMetrics, query: str, *, late_seconds: float = 120.0) -> None:
        self._metrics, self._query = metrics, query
        self._late_us = int(late_seconds * 1_000_000)
        self.reported = self._landed = -1
        self._landed_at = time.monotonic()
        self._lap_began = 0.0
        self._evicted: dict[str, int] = {}
        self.laps: dict[str, float] = {}
        self.batches = 0

    def lap(self, step: str, began: float | None = None) -> None:
        """A step of the batch ended now; it began at `began`, or where the last one ended."""
        now = time.perf_counter()
        self.laps[step] = now - (self._lap_began if began is None else began)
        self._lap_began = now

    def committed(self, table: str, rows: int, seconds: float) -> None:
        """A table's write and commit, from its begin to its end."""
        self._metrics.rows.labels(table).inc(rows)
        if table == READINGS.name:
            self._metrics.readings_landed += rows
        self._metrics.commit_duration.labels(table).observe(seconds)
        self._metrics.last_commit.labels(table).set_to_current_time()

    def duplicates(self, rows: int, *, conflicts: int, unchecked: int) -> None:
        """Count rows dropped because their identity is stored, records rejected as conflicts, and records rejected uncompared."""
        self._metrics.duplicates.inc(rows)
        self._metrics.conflicts.inc(conflicts)
        self._metrics.unchecked.inc(unchecked)

    def identities(self, figures: Mapping[str, tuple[int, float, int]]) -> None:
        """Set the metrics of identities per kind: number held, share of the limit, and number forgotten so far."""
        for kind, (held, share, evicted) in figures.items():
            self._metrics.identities.labels(kind).set(held)
            self._metrics.identities_fill.labels(kind).set(share)
            self._metrics.identities_evicted.labels(kind).inc(max(0, evicted - self._evicted.get(kind, 0)))
            self._evicted[kind] = evicted

    def batch(self, number: int, seconds: float) -> None:
        """The landing of one batch took this long."""
        self.batches += 1
        self._landed, self._landed_at = number, time.monotonic()
        self._metrics.last_batch.set_to_current_time()
        logger.debug("batch %d: %.3f s %s", number, seconds, self.laps)

    def latency(self, rows: "pa.Table", *, began_at: float, committed_at: float) -> None:
        """Count the latency of every row from stage to stage; redriven rows waited for a person, not for the pipeline.

        Args:
            rows: `event_time`, `received_at`, `kafka_time` and `gateway` of what was committed.
            began_at: of the batch, in epoch seconds: what lies before it is backlog, what lies after it is processing.
            committed_at: in epoch seconds.
        """
        measured, received, in_kafka = _instants(rows)
        began_us, committed_us = int(began_at * 1_000_000), int(committed_at * 1_000_000)
        spans = {
            "receive_to_kafka": (received, in_kafka),
            "kafka_to_batch": (in_kafka, began_us),
            "receive_to_commit": (received, committed_us),
            "kafka_to_commit": (in_kafka, committed_us),
        }
        for stage, (begin, end) in spans.items():
            histogram = self._metrics.stages[stage]
            observe_counts(histogram, *_spread(begin, end, bucket_bounds(histogram)))
        self._metrics.late.inc(_count_late(measured, received, self._late_us))
        processing = self._metrics.stages["batch_to_commit"]
        observe_same(processing, max(0.0, committed_at - began_at), len(received))

    @property
    def awaits_report(self) -> bool:
        """Return whether Spark has a report that was not read yet: it comes a moment after the batch has landed."""
        return self.reported < self._landed

    def spark(self, reports: list[Mapping[str, Any]]) -> None:
        """Spark's own reports of finished batches: phases, rates and lag. Those seen before are passed over."""
        for report in reports:
            number, rows = report["batchId"], report["numInputRows"]
            # Of a batch that is yet to come it reports too, while it waits for one.
            if number > self.reported and (rows > 0 or number <= self._landed):
                self.reported = number
                self._batch(report)
        if reports:
            self._lag(reports[-1]["sources"][0])

    def idle(self) -> None:
        """No report is awaited: a while after the newest batch nothing flows."""
        if time.monotonic() - self._landed_at > IDLE_SECONDS:
            self._metrics.input_rate.set(0)
            self._metrics.processed_rate.set(0)

    def _batch(self, report: Mapping[str, Any]) -> None:
        durations = report["durationMs"]
        self._metrics.batch_duration.observe(durations.get("triggerExecution", 0) / 1000)
        for phase in PHASES:
            self._metrics.phases.labels(self._query, phase).inc(durations.get(phase, 0) / 1000)
        # Spark leaves out a rate that is not a number, as that of the first batch.
        self._metrics.input_rate.set(report.get("inputRowsPerSecond", 0))
        self._metrics.processed_rate.set(report.get("processedRowsPerSecond", 0))

    def _lag(self, source: Mapping[str, Any]) -> None:
        try:
            landed = parse_source_offsets(_as_json(source["endOffset"]))
            newest = parse_source_offsets(_as_json(source["latestOffset"]))
        except (KeyError, ValueError):
            return
        for topic in newest:
            self._metrics.lag.labels(self._query, topic).set(max(0, record_count(landed, newest, topic)))


def unseen_reports(query: Any, after: int) -> list[Mapping[str, Any]]:
    """Spark's reports of batches past this one, oldest first.

    Read from the newest on, as JSON: each report, and each field of one, is a call into the JVM.
    """
    import json

    reports = query._jsq.recentProgress()
    found: list[Mapping[str, Any]] = []
    for at in range(len(reports) - 1, -1, -1):
        if reports[at].batchId() <= after:
            break
        found.insert(0, json.loads(reports[at].json()))
    return found


def _as_json(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def _instants(rows: "pa.Table") -> list["pa.ChunkedArray"]:
    """Event time, receive time and Kafka's time in microseconds, without the rows that were redriven."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows.select(["event_time", "received_at", "kafka_time"])
    fresh = pc.not_equal(rows.column("gateway"), REDRIVE_GATEWAY)
    if not pc.all(fresh).as_py():
        times = times.filter(fresh)
    measured, received, in_kafka = (
        column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()) for column in times.columns
    )
    return [measured, received, pc.add(in_kafka, _KAFKA_HALF_US)]


def _count_late(measured: "pa.ChunkedArray", received: "pa.ChunkedArray", late_us: int) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.greater_equal(pc.subtract(received, measured), late_us)).as_py() or 0


def _spread(begin: "pa.ChunkedArray", end: "pa.ChunkedArray | int", bounds: list[float]) -> tuple[list[int], float]:
    """Return the number of spans in each bucket, and their sum in seconds. A negative one, by differing clocks, is 0."""
    import pyarrow.compute as pc

    spans = pc.max_element_wise(pc.subtract(end, begin), 0)
    below = [pc.sum(pc.less_equal(spans, round(bound * 1_000_000))).as_py() or 0 for bound in bounds[:-1]]
    below.append(len(spans))
    counts = [upto - before for upto, before in zip(below, [0, *below[:-1]], strict=True)]
    return counts, (pc.sum(spans).as_py() or 0) / 1_000_000
