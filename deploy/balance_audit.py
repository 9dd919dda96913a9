"""`tidegate audit`: the balance of received against stored messages, read directly from Kafka and Delta.

delta-rs reads the tables, not the Spark that wrote them. Kafka's records are read one by one, so the audit does not rely on the
offsets that a consumer has committed.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from deploy.balance import MINUTE_US, BalanceFigures, MessageBalance, Rows
from deploy.corrections import read_corrections
from deploy.settings import Settings
from ingest.contract.topics import DEAD_LETTERS, LAND_GROUP, OUTCOMES, READINGS
from ingest.groups.offset_mirror import group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogRecord
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets, offsets_at
from lakehouse.commit_metadata import metadata_of
from lakehouse.dataset import dataset_of
from streaming.history.receipt import erased_devices

__all__ = ["AuditBounds", "AuditReport", "audit"]

Offsets = dict[str, dict[int, int]]

_CLOCK_MARGIN_US: Final = 10 * MINUTE_US
"""Largest lag of Kafka's clock behind the gateway's with which no record of the window is missed."""
_HISTORY: Final = 20
_LOOKS: Final = 3
_SOURCES: Final = (READINGS, DEAD_LETTERS)
_MIDNIGHT: Final = timedelta(hours=1)
"""Retention may begin with the next day while an audit runs."""
_MOST_IN_FLIGHT: Final = 65_535
"""MQTT 3.1.1 gives a client no word on how many messages its broker sends before they are acknowledged."""


@dataclass(frozen=True, slots=True)
class AuditBounds:
    """Limits from the settings: how far a gateway, a broker and the tables reach.

    Attributes:
        window_messages: received by a gateway and not yet counted, at most.
        horizon: how long after its original a copy may come.
        gateways: those that are known; others are by what they counted.
        keep_days: days that the tables keep, each; 0 keeps all.
    """

    window_messages: int = 1000
    horizon: timedelta = timedelta(days=8)
    gateways: tuple[str, ...] = ()
    keep_days: tuple[int, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits of a pipeline."""
        window = settings.gateway.window_messages if settings.mqtt.protocol == "5" else _MOST_IN_FLIGHT
        horizon = timedelta(seconds=settings.mqtt.session_expiry_seconds, days=1)
        return cls(
            window,
            horizon,
            (settings.gateway.gateway_id,),
            (settings.lake.readings_days, settings.lake.dead_letters_days),
        )

    def retained_since_us(self, now: datetime) -> int:
        """Return the time from which the tables keep their rows, in µs; 0 if they keep all."""
        days = [days for days in self.keep_days if days]
        if not days:
            return 0
        first = (now + _MIDNIGHT).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=min(days))
        return int(first.timestamp()) * 1_000_000


@dataclass(frozen=True)
class AuditReport:
    """Findings of the audit. `notes` are sentences on its limits; `behind` is Spark's distance in records.

    `oldest` is where each partition begins after all was read: what lies before it can be proven no more.
    """

    figures: BalanceFigures
    since: datetime
    until: datetime
    offsets: dict[str, dict[int, tuple[int, int]]]
    behind: int
    oldest: Offsets = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """True when nothing is unaccounted, doubled or out of order."""
        return not (self.figures.unaccounted or self.figures.duplicate_rows or self.figures.order_violations)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data; the fields of the balance come first."""
        figures = asdict(self.figures)
        examples = figures.pop("examples")
        return figures | {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "behind": self.behind,
            "offsets": {topic: {str(p): list(r) for p, r in parts.items()} for topic, parts in self.offsets.items()},
            "oldest": {topic: {str(p): offset for p, offset in parts.items()} for topic, parts in self.oldest.items()},
            "notes": self.notes,
            "details": examples,
        }


def audit(
    kafka: KafkaSettings,
    lake_root: str,
    since: timedelta | None = None,
    *,
    bounds: AuditBounds | None = None,
    wait_seconds: float = 30.0,
    pause_seconds: float = 0.5,
) -> AuditReport:
    """Strike the balance of every message that the gateway acknowledged before this call.

    Args:
        kafka: the cluster.
        lake_root: folder or URI that holds the tables.
        since: how far back, rounded down to a minute of receive time; None = as far as Kafka and the tables reach.
        bounds: of the pipeline's settings; None = of the defaults, and tables that keep all.
        wait_seconds: how long to wait for Spark to land what is in Kafka now; the rest is unaccounted.
        pause_seconds: between two looks at the tables.

    Raises:
        RetryableError: Kafka does not answer.
        FatalError: the topics do not exist.
    """
    until, bounds = datetime.now(UTC), bounds or AuditBounds()
    # Outcomes first: all records of the messages that they cover then lie below the ends read after them.
    ends = {topic: end_offsets(kafka, topic) for topic in (OUTCOMES, *_SOURCES)}
    reach_us = _reach(kafka, ends, until)
    cutoff_us = reach_us if since is None else int((until - since).timestamp() * 1e6) // MINUTE_US * MINUTE_US
    kept_us = bounds.retained_since_us(until)
    is_cut = kept_us > cutoff_us
    cutoff_us = max(cutoff_us, kept_us)
    landed = _wait_for_landing(kafka, lake_root, ends, time.monotonic() + wait_seconds, pause_seconds)
    strike = partial(
        _strike, kafka, lake_root, bounds, is_deep=since is None, ends=ends, landed=landed, pause_seconds=pause_seconds
    )
    figures, starts = strike(cutoff_us)
    if reach_us > cutoff_us and figures.only_counts_differ:
        # Not before: what retention deleted may well be older than the window.
        cutoff_us = reach_us
        figures, starts = strike(cutoff_us)
    since_at, notes = datetime.fromtimestamp(cutoff_us / 1e6, UTC), []
    if cutoff_us == reach_us > 0:
        notes.append(f"Kafka's retention has deleted older records, so the audit starts at {since_at.isoformat()}.")
    elif is_cut:
        notes.append(
            f"By the settings in [lake], the tables keep no older rows, so the audit starts at {since_at.isoformat()}."
        )
    behind = _behind(ends, landed)
    if behind:
        notes.append(
            f"Spark is {behind} records behind after {wait_seconds:g} s: {figures.pending} messages have not landed yet "
            "and count as unaccounted. Check that `tidegate stream` runs, and run the audit again later."
        )
    ranges = {t: {p: (starts[t].get(p, 0), end) for p, end in parts.items()} for t, parts in ends.items()}
    oldest = {topic: begin_offsets(kafka, topic) for topic in ends}
    return AuditReport(figures, since_at, until, ranges, behind, oldest, notes)


def _strike(
    kafka: KafkaSettings,
    lake_root: str,
    bounds: AuditBounds,
    cutoff_us: int,
    *,
    is_deep: bool,
    ends: Offsets,
    landed: Offsets,
    pause_seconds: float,
) -> tuple[BalanceFigures, Offsets]:
    """The balance from a cutoff on, and the offsets at which it began to read."""
    starts = {topic: _starts(kafka, topic, cutoff_us) for topic in ends}
    with MessageBalance(
        cutoff_us,
        window_messages=bounds.window_messages,
        horizon_us=int(bounds.horizon.total_seconds() * 1e6),
        gateways=bounds.gateways,
        from_the_start=not any(starts[OUTCOMES].values()),
        is_deep=is_deep,
    ) as books:
        books.load_tables(*_tables(lake_root))
        books.add_erased(erased_devices(lake_root))
        books.add_corrections(read_corrections(lake_root))
        adders = {OUTCOMES: books.add_outcomes, READINGS: books.add_readings, DEAD_LETTERS: books.add_dead_letters}
        for topic, add in adders.items():
            for batch in read_range(kafka, topic, starts[topic], ends[topic]):
                add(batch)
        _follow_gateways(kafka, books, starts[OUTCOMES], ends[OUTCOMES], pause_seconds)
        figures = books.balance(landed)
        # Readings are committed before the dead letters of the same batch: the latter may have come in the meantime.
        for _ in range(_LOOKS):
            if not figures.unaccounted or figures.only_counts_differ:
                break
            time.sleep(pause_seconds)
            books.load_tables(*_tables(lake_root))
            books.add_corrections(read_corrections(lake_root))
            figures = books.balance(landed)
    return figures, starts


def _follow_gateways(
    kafka: KafkaSettings, books: MessageBalance, start: Mapping[int, int], end: Mapping[int, int], pause_seconds: float
) -> None:
    """Read what was counted while the records were read: it says how far each gateway is, and that a new one is one.

    Of a gateway that has counted nothing in the window older outcomes are looked for: it may have been silent.
    """
    for look in range(_LOOKS):
        if look:
            time.sleep(pause_seconds)
        newest = end_offsets(kafka, OUTCOMES)
        for batch in read_range(kafka, OUTCOMES, end, newest):
            books.add_late_outcomes(batch)
        end = newest
        if not books.unknown_gateways:
            return
    for batch in _backwards(kafka, start):
        books.add_late_outcomes(batch)
        if not books.unknown_gateways:
            return


def _backwards(kafka: KafkaSettings, until: Mapping[int, int]) -> Iterator[list[LogRecord]]:
    """The outcomes before these offsets, the newest stretch first; each stretch is twice as long as the one before."""
    begin, until = begin_offsets(kafka, OUTCOMES), dict(until)
    for step in count(10):
        if all(offset <= begin.get(partition, 0) for partition, offset in until.items()):
            return
        start = {partition: max(begin.get(partition, 0), offset - 2**step) for partition, offset in until.items()}
        yield from read_range(kafka, OUTCOMES, start, until)
        until = start


def _starts(kafka: KafkaSettings, topic: str, cutoff_us: int) -> dict[int, int]:
    begin = begin_offsets(kafka, topic)
    if cutoff_us <= _CLOCK_MARGIN_US:
        return begin
    found = offsets_at(kafka, topic, (cutoff_us - _CLOCK_MARGIN_US) // 1000)
    return {partition: max(offset, found.get(partition, offset)) for partition, offset in begin.items()}


def _reach(kafka: KafkaSettings, ends: Offsets, now: datetime) -> int:
    """The time in µs, a whole minute, from which on Kafka certainly has everything; 0 where nothing is deleted."""
    reach_us = 0
    for topic, parts in ends.items():
        cut = {partition: offset for partition, offset in begin_offsets(kafka, topic).items() if offset > 0}
        # If retention left nothing at all, it was by age.
        first_us = dict.fromkeys(cut, int((now - timedelta(hours=kafka.retention_hours)).timestamp() * 1e6))
        for batch in read_range(kafka, topic, cut, {p: min(offset + 1, parts[p]) for p, offset in cut.items()}):
            first_us |= {record.partition: record.timestamp_ms * 1000 for record in batch}
        reach_us = max([reach_us, *first_us.values()])
    return -(-reach_us // MINUTE_US) * MINUTE_US


def _wait_for_landing(
    kafka: KafkaSettings, lake_root: str, ends: Offsets, deadline: float, pause_seconds: float
) -> Offsets:
    while True:
        landed = _landed(kafka, lake_root)
        if not _behind(ends, landed) or time.monotonic() >= deadline:
            return landed
        time.sleep(pause_seconds)


def _behind(ends: Offsets, landed: Mapping[str, Mapping[int, int]]) -> int:
    return sum(max(0, end - landed.get(t, {}).get(p, 0)) for t in _SOURCES for p, end in ends[t].items())


def _landed(kafka: KafkaSettings, lake_root: str) -> Offsets:
    """Return Spark's progress by its newest commits and its consumer group: to wait for, not as a proof."""
    landed: Offsets = {}
    for topic, parts in group_lag(kafka, LAND_GROUP).items():
        landed.setdefault(topic, {}).update({partition: committed for partition, (committed, _) in parts.items()})
    for name in ("readings", "dead_letters"):
        for topic, ends in _committed(f"{lake_root}/{name}").items():
            known = landed.setdefault(topic, {})
            known |= {int(p): max(int(end), known.get(int(p), 0)) for p, end in ends.items()}
    return landed


def _committed(path: str) -> dict[str, dict[str, int]]:
    """Offsets in the newest commit of a table that names any; maintenance commits do not."""
    try:
        history = DeltaTable(path).history(_HISTORY)
    except TableNotFoundError:
        return {}
    for commit in history:
        if offsets := metadata_of(commit).data.get("offsets"):
            return dict(offsets)
    return {}


def _tables(lake_root: str) -> tuple[Rows, Rows]:
    return _rows(f"{lake_root}/readings", _READINGS), _rows(f"{lake_root}/dead_letters", _DEAD_LETTERS)


def _rows(path: str, schema: pa.Schema) -> Rows:
    try:
        return dataset_of(DeltaTable(path))
    except TableNotFoundError:
        return schema.empty_table()


_ORIGIN: Final = [
    ("partition", pa.int32()), ("offset", pa.int64()), ("gateway_epoch", pa.int64()), ("message_number", pa.int64()),
    ("received_at", pa.timestamp("us", "UTC")), ("date", pa.date32()),
]  # fmt: skip
_READINGS: Final = pa.schema(
    [
        *_ORIGIN, ("device", pa.string()), ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string()),
        ("value", pa.float64()), ("text", pa.string()), ("unit", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")), ("device_time", pa.timestamp("us", "UTC")),
        ("flags", pa.list_(pa.string())),
    ]
)  # fmt: skip
_DEAD_LETTERS: Final = pa.schema(
    [*_ORIGIN, ("source_topic", pa.string()), ("stage", pa.string()), ("reason", pa.string())]
)
"""The columns that the audit reads, for tables that nothing has been landed in yet."""
