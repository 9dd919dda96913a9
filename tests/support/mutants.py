"""A small pipeline from devices' messages to derived tables, made to be broken on purpose, and four oracles over it.

The gateway's core, the landing and the derivations are the product's own; a mutant changes one of their steps. The oracles:

- `audit`: deploy/balance.py over Kafka and the tables;
- `ledger`: a settled row whose `unaccounted` differs from 0;
- `devices`: the book of what the devices sent and the gateway acknowledged, against the tables read by DuckDB;
- `recomputation`: rollups, latest and devices against DuckDB over `readings`.

Only `ledger` shares code with what it judges. `from tests.support.mutants import World`.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry

from deploy.balance import BalanceFigures, MessageBalance
from gateway.delivery.ack_chain import AckChain
from gateway.delivery.deliverer import Deliverer
from gateway.delivery.intake import MessageIntake
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.session_events import Received
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS, stream_group, stream_topic
from ingest.groups.offset_mirror import group_lag
from ingest.memory import MemoryLog, MemoryWriter
from ingest.read.offset_range import read_range
from ingest.topics.offsets import end_offsets
from lakehouse.lake_settings import LakeSettings
from lakehouse.requests import Request
from monitoring.metrics.gateway import GatewayMetrics
from streaming.stream_settings import StreamSettings
from tests.support.ledger import MINUTE, Derived

MUTANTS = pytest.StashKey[list[Any]]()
"""Each mutant that was tried and what each oracle found."""
AGE_MINUTES = 30
"""How long ago the gateway of these tests received its messages: old enough for the ledger to settle."""
LANDED = ("readings", "dead_letters", "duplicates")
DERIVED = ("ledger", "latest", "devices", "rollups_1m", "rollups_5m", "rollups_1h", "rolling_15m")


@dataclass(frozen=True)
class Sent:
    """One message of a device: what it is, and what must become of it."""

    device: str
    payload: bytes
    becomes: str
    """`stored`, `part` (stored, a part refused), `dead`, `ignored`, `copy` (of a message that is stored), or
    `conflict` (a copy with other content)."""
    values: tuple[tuple[str, float | str], ...] = ()
    dup: bool = False

    @property
    def topic(self) -> str:
        return f"tidegate/v1/{self.device}/readings"

    def of(self, world: str) -> "Sent":
        """The same message of this world's device."""
        return replace(self, device=f"{self.device}-{world}")


def sent(device: str, becomes: str, seq: int | None, at: int, *, dup: bool = False, **values: float | str) -> Sent:
    """A native message at `at` µs; its values are all good."""
    known = {} if seq is None else {"boot": 7, "seq": seq}
    payload = {"ts": at // 1000, **known, "values": values}
    return Sent(device, json.dumps(payload).encode(), becomes, tuple(values.items()), dup)


def phases(now: int) -> tuple[list[Sent], list[Sent]]:
    """What devices send before and after the gateway's connection breaks; `now` is a whole minute, in µs."""
    second = 1_000_000
    before = [sent("a", "stored", n, now + n * second, temperature=20.0 + n, door="open") for n in range(1, 5)]
    before += [sent("b", "stored", None, now + n * second, level=1.5 * n) for n in range(1, 4)]
    part = {"ts": now // 1000, "boot": 7, "seq": 1, "values": {"flow": 3.0, "bad": {"val": 1}}}
    before += [
        Sent("c", json.dumps(part).encode(), "part", (("flow", 3.0),)),
        Sent("c", b'{"ts": ', "dead"),
        Sent("d", b'{"values": {}}', "ignored"),
        sent("e", "stored", 1, now, power=100.0),
        sent("e", "stored", 2, now + second, power=110.0),
    ]
    after = [
        sent("a", "copy", 4, now + 4 * second, dup=True, temperature=24.0, door="open"),
        *(sent("a", "stored", n, now + n * second, temperature=20.0 + n, door="shut") for n in range(5, 8)),
        sent("b", "stored", None, now + 9 * second, level=9.0),
        sent("c", "conflict", 1, now, flow=4.0),  # the identity of a stored message, other content
        sent("c", "stored", 2, now + second, flow=5.0),
        sent("e", "stored", 3, now - 180 * MINUTE, power=50.0),  # three hours late
        sent("e", "stored", 4, now - 5 * second, power=95.0),
    ]
    return before, after


class FaultyWriter(MemoryWriter):
    """The log's writer; `fault` may replace what one record becomes: none, itself, or several."""

    def __init__(self, log: MemoryLog, fault: "Fault | None") -> None:
        super().__init__(log)
        self._fault = fault

    def produce(self, topic: str, key: bytes, value: bytes, done: Any) -> None:
        wanted = [(topic, key, value)] if self._fault is None else self._fault(topic, key, value)
        if not wanted:
            # Reported as delivered, and nowhere: the report must not run inside `produce`.
            self._log_nothing(done)
        for place, (name, new_key, new_value) in enumerate(wanted):
            super().produce(name, new_key, new_value, done if place == len(wanted) - 1 else _ignore)

    def _log_nothing(self, done: Any) -> None:
        super().produce("nowhere", b"", b"", done)


Fault = Callable[[str, bytes, bytes], list[tuple[str, bytes, bytes]]]
"""(topic, key, value) of a record that the gateway produces -> the records that reach Kafka."""


def _ignore(error: Any) -> None:
    """A report that nobody waits for."""


@dataclass
class World:
    """A gateway with devices of its own, whose names end in the world's; `fault` sits between it and Kafka.

    Many of them share one landing: what the oracles find is told apart by the names.
    """

    name: str
    now: int
    fault: Fault | None = None
    log: MemoryLog = field(default_factory=lambda: MemoryLog(partitions=1))
    acknowledged: list[Sent] = field(default_factory=list)
    _sent: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = GatewaySettings(gateway_id=self.gateway)
        table, policy = compile_routes((), limits), ReadingPolicy()
        gate = MessageProcessor(table, limits, policy=policy)
        self.intake = MessageIntake(gate, FastPathEncoder(table, limits, policy), is_full=lambda block: False)
        accounts = MetricAccumulator(GatewayMetrics(CollectorRegistry(), reasons=Reason, ignored_reasons=IgnoredReason))
        self.pump = Deliverer(AckChain(self.gateway), gate, accounts, self._acknowledge, self.gateway)
        self.writer = FaultyWriter(self.log, self.fault)
        self.phases = [[message.of(self.name) for message in messages] for messages in phases(self.now)]
        self._by_mid: dict[int, Sent] = {}

    @property
    def gateway(self) -> str:
        return f"gw-{self.name}"

    def _acknowledge(self, epoch: int, mids: Sequence[bytes]) -> int:
        self.acknowledged += [self._by_mid[int.from_bytes(mid, "big")] for mid in mids]
        return len(mids)

    def receive(self, phase: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The connection that brings this phase's messages, three at a time, a minute after the one before."""
        epoch, at, messages = 5 + phase, self.now + phase * MINUTE, self.phases[phase]
        self.pump.begin(epoch)
        clock = SimpleNamespace(time_ns=lambda: at * 1000, monotonic=time.monotonic)
        with monkeypatch.context() as patched:
            patched.setattr("gateway.delivery.intake.time", clock)
            for start in range(0, len(messages), 3):
                self._take(messages[start : start + 3], epoch)
        assert not self.pump.busy
        assert self.pump.abort_because is None

    def _take(self, messages: list[Sent], epoch: int) -> None:
        received = []
        for message in messages:
            mid = len(self._by_mid) + 1
            self._by_mid[mid] = message
            received.append(Received(message.topic.encode(), message.payload, mid, 1, message.dup))
        for block in self.intake.take(received, epoch, 100_000):
            self.pump.add(block)
        for _ in range(10):
            self.pump.run_once(self.writer, 0.0)

    def send(self, lander: Any) -> None:
        """What is new in the gateway's log goes to Kafka, in order."""
        names = {
            READINGS: lander.topics.readings,
            DEAD_LETTERS: lander.topics.dead_letters,
            OUTCOMES: lander.topics.outcomes,
        }
        for topic, name in names.items():
            records = self.log.records(topic)
            for record in records[self._sent.get(topic, 0) :]:
                lander.producer.produce(name, key=record.key, value=record.value, partition=0)
            self._sent[topic] = len(records)
        assert lander.producer.flush(120) == 0


def land(
    lander: Any, worlds: Sequence[World], monkeypatch: pytest.MonkeyPatch, between: Callable[[int], object] = int
) -> None:
    """Both phases of all worlds, each landed; `between` is called after each landing."""
    for phase in range(2):
        for world in worlds:
            world.receive(phase, monkeypatch)
            world.send(lander)
        lander.land()
        between(phase)


def query(root: str, sql: str, *tables: str) -> list[dict[str, Any]]:
    """DuckDB over Delta tables as delta-rs lists them: no code of ours."""
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        for name in tables:
            db.register(name, pa.table(DeltaTable(f"{root}/{name}").to_pyarrow_table()))
        return list(db.sql(sql).to_arrow_table().to_pylist())


def devices_find(world: World, root: str) -> list[str]:
    """What the devices' book says is wrong with the two landed tables; empty where nothing is."""
    wanted: Counter[tuple[Any, ...]] = Counter()
    dead: Counter[str] = Counter()
    for message in world.acknowledged:
        if message.becomes in {"stored", "part"}:
            claimed = json.loads(message.payload)
            keys = [
                (message.device, claimed.get("seq"), metric, value, claimed["ts"]) for metric, value in message.values
            ]
            wanted.update(keys)
        if message.becomes in {"dead", "part", "conflict"}:
            dead[message.device] += 1
    rows = query(root, f"""select device, seq, metric, value, text, epoch_ms(event_time) as at from readings
        where device like '%-{world.name}'""", "readings")  # fmt: skip
    found = Counter(
        (row["device"], row["seq"], row["metric"], row["text"] if row["value"] is None else row["value"], row["at"])
        for row in rows
    )
    letters = query(root, f"select device from dead_letters where device like '%-{world.name}'", "dead_letters")
    faults = _unlike("readings", wanted, found) + _unlike(
        "dead letters", dead, Counter(row["device"] for row in letters)
    )
    copies = Counter(message.device for message in world.acknowledged if message.becomes in {"copy", "conflict"})
    noted = query(root, f"select device from duplicates where device like '%-{world.name}'", "duplicates")
    faults += _unlike("duplicates", copies, Counter(row["device"] for row in noted))
    missing = sum(map(len, world.phases)) - len(world.acknowledged)
    return faults + ([f"{missing} messages were never acknowledged"] if missing else [])


def ledger_book_finds(world: World, derived: Derived) -> list[str]:
    """What the devices' book says is wrong with the ledger's totals."""
    names = {
        "stored": "stored",
        "part": "stored",
        "dead": "dead_lettered",
        "conflict": "dead_lettered",
        "ignored": "ignored",
        "copy": "duplicate",
    }
    wanted: Counter[tuple[str, str]] = Counter()
    for message in world.acknowledged:
        wanted.update([(message.device, "received"), (message.device, names[message.becomes])])
    found: Counter[tuple[str, str]] = Counter()
    for row in _ledger(world, derived):
        found.update({(row["device"], name): row[name] for name in ("received", *set(names.values())) if row[name]})
    return _unlike("ledger", wanted, found)


def _unlike(what: str, wanted: Counter[Any], found: Counter[Any]) -> list[str]:
    return [f"{what}: {key} is {found[key]} times there, not {wanted[key]}"
            for key in sorted({*wanted, *found}, key=str) if wanted[key] != found[key]]  # fmt: skip


_WINDOWS = """
    select device, metric, time_bucket(interval '{width}', event_time) as window_start, count(value) as count,
        min(value) as min, max(value) as max, sum(value) as sum, arg_max(value, event_time) as last
    from readings where value is not null group by all"""
_KEPT = "select device, metric, window_start, count, min, max, sum, last from {table} where count > 0"


def recomputation_finds(root: str, tables: Sequence[str]) -> list[str]:
    """What DuckDB, asked of `readings`, says is wrong with derived tables."""
    faults = []
    widths = {"rollups_1m": "1 minute", "rollups_5m": "5 minutes", "rollups_1h": "1 hour"}
    for table, width in widths.items():
        if table in tables:
            wanted = _WINDOWS.format(width=width)
            faults += _differences(root, table, wanted, _KEPT.format(table=table))
    if "latest" in tables:
        wanted = (
            "select device, metric, arg_max(value, event_time) as value, arg_max(text, event_time) as text, "
            "max(event_time) as event_time from readings group by all"
        )
        faults += _differences(root, "latest", wanted, "select device, metric, value, text, event_time from latest")
    if "devices" in tables:
        wanted = (
            "select device, min(received_at) as first_seen, max(received_at) as last_seen from readings group by all"
        )
        known = "select device, first_seen, last_seen from devices where device in (select device from readings)"
        faults += _differences(root, "devices", wanted, known)
    return faults


def _differences(root: str, table: str, wanted: str, known: str) -> list[str]:
    sql = f"(from ({wanted}) except all from ({known})) union all (from ({known}) except all from ({wanted}))"
    return [f"{table}: {row}" for row in query(root, sql, "readings", table)]


def _ledger(world: World, derived: Derived) -> list[dict[str, Any]]:
    return [row for row in derived.ledger().values() if row["device"].endswith(f"-{world.name}")]


def ledger_finds(world: World, derived: Derived) -> list[str]:
    """Rows of the ledger that say that something is missing or too much; all of them must be settled."""
    rows = _ledger(world, derived)
    unsettled = [f"ledger: {row['device']} is not settled" for row in rows if not row["settled"]]
    return unsettled + [
        f"ledger: {row['device']} has {row['unaccounted']} unaccounted" for row in rows if row["unaccounted"]
    ]


def _figures(world: World, derived: Derived) -> BalanceFigures:
    lander, root, suffix = derived.lander, derived.root, f"-{world.name}"
    of_world = f"select * from rows where device like '%{suffix}'"
    with duckdb.connect() as db, MessageBalance(0) as books:
        db.execute("set timezone = 'UTC'")
        tables = []
        for name in ("readings", "dead_letters"):
            db.register("rows", pa.table(DeltaTable(f"{root}/{name}").to_pyarrow_table()))
            tables.append(db.sql(of_world).to_arrow_table())
        at = tables[1].schema.get_field_index("source_topic")
        known = {lander.topics.readings: READINGS, lander.topics.dead_letters: DEAD_LETTERS}
        names = [known[name] for name in tables[1]["source_topic"].to_pylist()]
        tables[1] = tables[1].set_column(at, "source_topic", pa.array(names, pa.string()))
        books.load_tables(*tables)
        for topic, add, field_name, wanted in (
            (lander.topics.outcomes, books.add_outcomes, "gateway", world.gateway),
            (lander.topics.readings, books.add_readings, "device", suffix),
            (lander.topics.dead_letters, books.add_dead_letters, "device", suffix),
        ):
            ends = end_offsets(lander.kafka, topic)
            for batch in read_range(lander.kafka, topic, dict.fromkeys(ends, 0), ends):
                add([record for record in batch if json.loads(record.value)[field_name].endswith(wanted)])
        return books.balance({})


def audit_finds(world: World, derived: Derived) -> list[str]:
    """What the audit calls wrong, of this world's records, counts and rows."""
    figures = _figures(world, derived)
    names = ("unaccounted", "duplicate_rows", "order_violations")
    return [f"audit: {name} {getattr(figures, name)}" for name in names if getattr(figures, name)]


STREAM = """-- {name}.sql: levels and powers
-- sink: topic, table
-- key: device
-- backfill: earliest
SELECT device, metric, value, event_time, received_at FROM readings WHERE metric IN ('level', 'power')
"""


class StreamScene:
    """SQL streams over a lander's topics, as the writing process runs them."""

    def __init__(self, lander: Any, wait_until: Callable[..., Any]) -> None:
        from lakehouse.create import ensure_tables
        from lakehouse.derived_tables import ALL_TABLES
        from streaming.sql.stream_supervisor import StreamSupervisor
        from streaming.writer_context import WriterContext

        ensure_tables(lander.root, ALL_TABLES.values(), log_retention_hours=24)
        settings = StreamSettings(checkpoint=str(lander.checkpoint / "land"))
        lake = LakeSettings(root=lander.root)
        self.lander, self._wait_until = lander, wait_until
        self._writer = WriterContext(lander.lake.spark, lander.kafka, settings, lake, lander.metrics, lander.topics)
        self.streams = StreamSupervisor(self._writer)

    def apply(self, name: str) -> None:
        from streaming.background_tasks import handle_request

        handle_request(self._writer, Request("streams.apply", {"name": name, "text": STREAM.format(name=name)}))

    def until_read(self, *names: str) -> None:
        """Until the group of each stream is at the end of the readings' topic."""
        topic = self.lander.topics.readings
        ends = end_offsets(self.lander.kafka, topic)

        def read() -> bool:
            self.streams.run()
            lags = [group_lag(self.lander.kafka, stream_group(name), [topic]).get(topic, {}) for name in names]
            return all(lag.get(part, (0, 0))[0] >= end for lag in lags for part, end in ends.items())

        self._wait_until(read, seconds=180, what=f"{names} to be read")

    def finds(self, world: World, name: str) -> list[str]:
        """What the devices' book says is wrong with the stream's table and topic."""
        wanted = Counter(
            (message.device, metric, value)
            for message in world.acknowledged
            for metric, value in message.values
            if metric in {"level", "power"}
        )
        table = query(self.lander.root, f"select device, metric, value from {name}", name)
        ends = end_offsets(self.lander.kafka, stream_topic(name))
        batches = read_range(self.lander.kafka, stream_topic(name), dict.fromkeys(ends, 0), ends)
        sent = [json.loads(record.value or b"") for batch in batches for record in batch]
        found = [Counter((row["device"], row["metric"], row["value"]) for row in rows) for rows in (table, sent)]
        return _unlike("table", wanted, found[0]) + _unlike("topic", wanted, found[1])


def copy_tables(root: str, target: str, names: Sequence[str]) -> None:
    """Whole tables, as they are now, to another root."""
    for name in names:
        if Path(f"{root}/{name}").exists():
            shutil.copytree(f"{root}/{name}", f"{target}/{name}", dirs_exist_ok=True)


@pytest.fixture(scope="session")
def mutant_minute() -> int:
    """When the gateway received everything: the beginning of a minute half an hour ago, in µs."""
    return (int(time.time() * 1_000_000) // MINUTE - AGE_MINUTES) * MINUTE


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of mutants, where some were tried."""
    if not (tried := config.stash.get(MUTANTS, [])):
        return
    terminalreporter.section("deliberate faults and the oracles that find them")
    oracles = ("audit", "ledger", "devices", "recomputation")
    terminalreporter.write_line(f"{'hop':<12}{'fault':<52}" + "".join(f"{name:<15}" for name in oracles))
    for mutant, found in tried:
        marks = "".join(
            f"{('found' if found[name] else '-') if name in found else 'not asked':<15}" for name in oracles
        )
        terminalreporter.write_line(f"{mutant.hop:<12}{mutant.name:<52}{marks}")
