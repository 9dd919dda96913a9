"""Limits of the pipeline, and the number of devices at which a fleet reaches each. Pure.

Every limit of the code is imported from the module that has it, so that a page never shows an older one. The nearest
limit is the first that breaks.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from deploy.bench.sizing.costs import Costs
from deploy.bench.sizing.fleet import Ceiling, Fleet, Size
from deploy.bench.sizing.stored_tables import rewritten_rows
from deploy.local.budget import memory_budget_mb
from deploy.settings import Settings
from gateway.delivery.sequence import MAX_COUNTERS
from ingest.contract.topics import OUTCOMES, topic_specs
from lakehouse.derived_tables import DEVICES, LATEST
from lakehouse.maintenance import TARGET_BYTES, TIERS
from lakehouse.tables import READINGS
from streaming.dedup_index import RANGES_LIMIT
from streaming.point_store import POINTS_LIMIT

__all__ = ["ceilings_of"]

DAY_SECONDS: Final = 86_400


def ceilings_of(size: Size, costs: Costs, settings: Settings) -> Sequence[Ceiling]:
    """Return the limits, the one that breaks first at the top."""
    fleet = size.fleet
    found = [
        *_broker(fleet, costs),
        *_gateway(fleet, size),
        *_identities(fleet, settings),
        *_landing(fleet, size, costs, settings),
        *_derived(fleet, costs, settings),
        *_kafka(fleet, size, settings),
        *_maintenance(fleet, size, settings),
    ]
    return sorted(found, key=lambda one: one.devices)


def _ceiling(
    fleet: Fleet, name: str, needed: float, limit: float, unit: str, *, kind: str, where: str, effect: str
) -> Ceiling:
    """Return a limit of something that grows in proportion to the devices."""
    return Ceiling(name, needed, limit, unit, kind, where, effect, fleet.devices * limit / needed)


def _broker(fleet: Fleet, costs: Costs) -> Iterator[Ceiling]:
    most = costs.figures["mosquitto_messages_per_second"]
    yield _ceiling(
        fleet, "messages through one mosquitto", fleet.rate, most.value, "messages/s",
        kind="measured", where=most.source,
        effect="The broker's queue grows. Use a broker that is a cluster, or several brokers, each with its own gateways",
    )  # fmt: skip


def _gateway(fleet: Fleet, size: Size) -> Iterator[Ceiling]:
    if fleet.numbered:
        count = size.value("gateway", "processes")
        yield _ceiling(
            fleet, "counters of one gateway", fleet.devices, MAX_COUNTERS, "devices",
            kind="code", where="gateway/delivery/sequence.py, MAX_COUNTERS",
            effect="The gateway forgets the device that was silent for longest, and does not see its next gap. Each gateway more "
            f"has counters of its own; {count:,.0f} are counted above",
        )  # fmt: skip


def _identities(fleet: Fleet, settings: Settings) -> Iterator[Ceiling]:
    if fleet.numbered:
        yield _ceiling(
            fleet, "identities with a counter", fleet.series, RANGES_LIMIT, "series",
            kind="code", where="streaming/dedup_index.py, RANGES_LIMIT",
            effect="The landing forgets the series that was met longest ago, and stores a copy of its messages a second time. "
            "Several roots of tables, each with its own gateways and landing, share the fleet",
        )  # fmt: skip
        return
    days = settings.stream.horizon_days
    yield _ceiling(
        fleet, "identities without a counter", fleet.rows_per_second * DAY_SECONDS * days, POINTS_LIMIT, "points",
        kind="code", where=f"streaming/point_store.py, POINTS_LIMIT; stream.horizon_days is {days:g}",
        effect="The landing forgets the oldest day, and stores a copy of its messages a second time. Let devices send boot and "
        "seq, or shorten the horizon with the broker's session expiry",
    )  # fmt: skip


def _landing(fleet: Fleet, size: Size, costs: Costs, settings: Settings) -> Iterator[Ceiling]:
    most = costs.figures["landed_rows_per_second"]
    yield _ceiling(
        fleet, "rows of the one landing", fleet.rows_per_second, most.value, "rows/s",
        kind="measured", where=most.source,
        effect="The lag in Kafka grows. One process writes a root of tables: share the fleet over several roots",
    )  # fmt: skip
    budget = float(memory_budget_mb(settings)["stream"])
    yield Ceiling(
        "memory of the landing", size.value("landing", "memory"), budget, "MB",
        kind="setting", where=f"stream.driver_memory is {settings.stream.driver_memory}; deploy/local/budget.py",
        effect="The system ends the process at its limit. Raise stream.driver_memory",
        devices=costs.memory_mb("stream").reach(budget),
    )  # fmt: skip


def _derived(fleet: Fleet, costs: Costs, settings: Settings) -> Iterator[Ceiling]:
    each, seconds = costs.figures["rewritten_row_cpu_us"], settings.stream.derive_seconds
    again = rewritten_rows(fleet)
    whole = {LATEST.name, DEVICES.name}
    parts = {
        "open slices of the rollups": sum(rows for name, rows in again.items() if name not in whole),
        "latest and devices, written whole": sum(rows for name, rows in again.items() if name in whole),
    }
    for name, rows in parts.items():
        yield _ceiling(
            fleet, name, rows * each.value / 1e6, seconds, "seconds of one core in a pass",
            kind="computed", where=f"{rows:,.0f} rows x {each.value:g} us ({each.source}); stream.derive_seconds is {seconds:g}",
            effect="Derived tables are later than a few seconds, and a pass takes cores from the landing. Readings are not "
            "affected. Raise stream.derive_seconds",
        )  # fmt: skip


def _kafka(fleet: Fleet, size: Size, settings: Settings) -> Iterator[Ceiling]:
    kafka = settings.kafka
    seconds = kafka.retention_hours * 3600
    yield _ceiling(
        fleet, "records in Kafka for kafka.retention_hours", fleet.rate * size.value("kafka", "record") * seconds,
        float(kafka.retention_bytes * kafka.partitions), "bytes",
        kind="setting", where=f"kafka.retention_bytes x kafka.partitions ({kafka.partitions})",
        effect="Kafka deletes records early: a longer stop of the landing loses them. Raise kafka.retention_bytes",
    )  # fmt: skip
    specs = topic_specs(
        partitions=kafka.partitions, max_record_bytes=kafka.max_record_bytes, retention_bytes=kafka.retention_bytes,
        retention_ms=seconds * 1000,
    )  # fmt: skip
    outcomes = next(spec for spec in specs if spec.name == OUTCOMES)
    kept = float(outcomes.config["retention.bytes"]) * outcomes.partitions
    yield _ceiling(
        fleet, "outcomes in their one partition", fleet.rate * size.value("kafka", "outcome of a message") * seconds, kept,
        "bytes", kind="setting", where="ingest/contract/topics.py (half of kafka.retention_bytes)",
        effect="Kafka deletes outcomes early: the audit reaches less far back, and a longer stop of the landing leaves minutes "
        "that the ledger counts from stored rows. Raise kafka.retention_bytes",
    )  # fmt: skip


def _maintenance(fleet: Fleet, size: Size, settings: Settings) -> Iterator[Ceiling]:
    seconds = settings.stream.maintain_seconds
    readings = next(table for table in size.tables if table.name == READINGS.name)
    yield _ceiling(
        fleet, "joins of small files of readings", readings.bytes_per_day * (len(TIERS) + 1),
        TARGET_BYTES * DAY_SECONDS / seconds, "bytes a day",
        kind="setting",
        where=f"lakehouse/maintenance.py: each row up to {len(TIERS) + 1} times; a pass (stream.maintain_seconds is {seconds:g}) "
        "joins TARGET_BYTES at least",
        effect="If a pass has time for one join only, small files become more, and queries slower. Shorten "
        "stream.maintain_seconds",
    )  # fmt: skip
