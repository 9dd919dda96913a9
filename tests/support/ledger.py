"""What gateways sent and counted by their own book, and the tables that are derived of it.

The words of these tests are imported from here: `from tests.support.ledger import Derived`; Spark is
imported by who uses it.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deploy.balance import BalanceFigures, MessageBalance
from ingest.contract.dead_letter import DeadLetterRecord
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord
from ingest.contract.topics import DEAD_LETTERS
from ingest.read.offset_range import read_range
from ingest.topics.offsets import end_offsets
from lakehouse.lake_settings import LakeSettings
from streaming.stream_settings import StreamSettings

MINUTE = 60_000_000
TABLES = ("ledger", "latest", "devices")


def utc(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


@dataclass
class Gateway:
    """Numbers what it receives, counts it, and keeps its own book of what must come out."""

    record: Callable[..., ReadingRecord]
    dead_letter: Callable[..., DeadLetterRecord]
    epoch: int = 5
    name: str = "g"
    number: int = 0
    first: int = 1
    sent: list[Any] = field(default_factory=list)
    counts: dict[tuple[str | None, int], Count] = field(default_factory=dict)
    book: dict[tuple[str, datetime], dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )

    def store(
        self, device: str, at: int, *readings: Reading, seq: int | None = None, copy: bool = False, counted: bool = True,
        more: str = "", retained: bool = False, payload: int | None = None, **book: int,
    ) -> None:  # fmt: skip
        """One message of a device (and of another, `more`); a `copy` has the identity of a stored one.

        `retained`: the broker replays it; `payload` is its hash.
        """
        self.number += 1
        envelope: dict[str, Any] = {"payload_hash": payload}
        if retained:
            envelope |= {"retain": True, "message_id": f"rt:{device}{payload}"}
        for each in [device, more] if more else [device]:
            self.sent.append(
                self.record(
                    self.number, seq=seq, device=each, received_us=at, gateway=self.name, epoch=self.epoch,
                    readings=list(readings) or [Reading("t", value=float(self.number))], **envelope,
                )
            )  # fmt: skip
        if counted:
            self._count(device, at, accepted=1, retained=int(retained), **book)
        if counted and more:
            self._count(more, at, received=0, shared=1)
        self._note(device, at, received=1, **{"duplicate" if copy else "stored": 1}, **book)
        if more:
            self._note(more, at, received=1, stored=1, shared=1)

    def refuse(
        self, device: str | None, at: int, *, counted: bool = True, profile: str | None = None, retained: bool = False
    ) -> None:
        self.number += 1
        letter = self.dead_letter(self.number)
        letter.retain = retained
        letter.device, letter.received_us, letter.profile = device, at, profile
        letter.gateway, letter.epoch = self.name, self.epoch
        self.sent.append(letter)
        if counted:
            self._count(device, at, dead_lettered={"bad_json": 1}, retained=int(retained))
        self._note(device or "", at, received=1, dead_lettered=1)

    def ignore(self, device: str, at: int, *, retained: bool = False) -> None:
        self.number += 1
        self._count(device, at, ignored={"no_value": 1}, retained=int(retained))
        self._note(device, at, received=1, ignored=1)

    def outcome(self) -> bytes:
        """What it has counted since the last one."""
        counts, self.counts = list(self.counts.values()), {}
        first, self.first = self.first, self.number + 1
        return encode_outcome(OutcomeRecord(1, self.name, self.epoch, first, self.number, counts))

    def take(self) -> list[Any]:
        taken, self.sent = self.sent, []
        return taken

    def _count(self, device: str | None, at: int, *, received: int = 1, **more: Any) -> None:
        count = self.counts.setdefault((device, at // MINUTE), Count(at // MINUTE, 0, device))
        count.received += received
        for name, value in more.items():
            if isinstance(value, dict):
                known = dict(getattr(count, name))
                setattr(count, name, known | {key: known.get(key, 0) + n for key, n in value.items()})
            elif hasattr(count, name):
                setattr(count, name, getattr(count, name) + value)

    def _note(self, device: str, at: int, **more: int) -> None:
        row = self.book[device, utc(at // MINUTE * MINUTE)]
        for name, value in more.items():
            row[name] += value


class Derived:
    """The three tables of a lander, and passes over them by objects that may be thrown away at any time."""

    def __init__(self, lander: Any, root: str | None = None) -> None:
        self.lander, self.root = lander, root or lander.root
        from streaming.writer_context import WriterContext

        self.writer = WriterContext(
            lander.lake.spark, lander.kafka, StreamSettings(checkpoint=str(lander.checkpoint)),
            LakeSettings(root=self.root), lander.metrics, lander.topics,
        )  # fmt: skip
        # Values go stale by the clock: a slow run must not see that.
        self.now = datetime.now(UTC)
        self.restart()

    def restart(self) -> None:
        """As after a crash: all that was in memory is gone."""
        from streaming.derive.deriver import Deriver, arrival_derivations

        self.derivations = arrival_derivations(self.writer, now=lambda: self.now)
        self.deriver = Deriver(self.derivations)

    def count(self, *values: bytes) -> None:
        self.lander.send(*values, topic=self.lander.topics.outcomes)

    def settle(self) -> None:
        """Passes until there is nothing left to do."""
        for _ in range(5):
            if not self.deriver.run_pass():
                return
        raise AssertionError("there is always something left to do")

    def rows(self, table: str, *keys: str) -> dict[Any, dict[str, Any]]:
        found = pa.table(DeltaTable(f"{self.root}/{table}").to_pyarrow_table()).to_pylist()
        rows = {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in found}
        assert len(rows) == len(found), "a key stands there twice"
        return rows

    def ledger(self) -> dict[tuple[str, datetime], dict[str, Any]]:
        return self.rows("ledger", "device", "minute")

    def versions(self) -> dict[str, int]:
        return {name: DeltaTable(f"{self.root}/{name}").version() for name in TABLES}

    def state(self) -> dict[str, dict[Any, dict[str, Any]]]:
        keys = {"ledger": ("device", "minute"), "latest": ("device", "metric"), "devices": ("device",)}
        rows = {name: self.rows(name, *key) for name, key in keys.items()}
        return {
            name: {
                key: {k: v for k, v in row.items() if k not in ("updated_at", "stale_since")}
                for key, row in table.items()
            }
            for name, table in rows.items()
        }

    def audit(self) -> BalanceFigures:
        """The balance of deploy/balance.py over the same topics and tables."""
        topics = self.lander.topics
        letters = pa.table(DeltaTable(f"{self.root}/dead_letters").to_pyarrow_table())
        position = letters.schema.get_field_index("source_topic")
        renamed = letters.set_column(position, "source_topic", pa.array([DEAD_LETTERS] * letters.num_rows, pa.string()))
        with MessageBalance(0) as books:
            books.load_tables(DeltaTable(f"{self.root}/readings").to_pyarrow_table(), renamed)
            for topic, add in (
                (topics.outcomes, books.add_outcomes),
                (topics.readings, books.add_readings),
                (topics.dead_letters, books.add_dead_letters),
            ):
                ends = end_offsets(self.lander.kafka, topic)
                for batch in read_range(self.lander.kafka, topic, dict.fromkeys(ends, 0), ends):
                    add(batch)
            return books.balance({})


BALANCE = ("received", "stored", "dead_lettered", "ignored", "duplicate")
BOOKED = (*BALANCE, "unaccounted", "shared", "gap", "reordered", "restarts", "partial", "late")


def booked(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, int]]:
    return {key: {name: row[name] for name in BOOKED if row[name]} for key, row in rows.items()}


def expected(*gateways: Gateway) -> dict[Any, dict[str, int]]:
    total: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gateway in gateways:
        for key, row in gateway.book.items():
            for name, value in row.items():
                total[key][name] += value
    return {key: dict(row) for key, row in total.items()}


@pytest.fixture
def now() -> int:
    """The beginning of the newest whole minute that is over, in µs: the ledger goes by the clock."""
    return int(time.time() * 1_000_000) // MINUTE * MINUTE - MINUTE


@pytest.fixture
def gateway(record: Any, dead_letter: Any) -> Callable[..., Gateway]:
    def make(**fields: Any) -> Gateway:
        return Gateway(record, dead_letter, **fields)

    return make
