"""Size of each part of a pipeline for a fleet: gateways, Kafka, landing, tables, requests and money. Pure.

The costs are measured, the limits are those of the code, and everything else is arithmetic that a line names. Devices send
evenly: a fleet that reports on the full hour needs its peak rate.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from deploy.bench.sizing.ceilings import ceilings_of
from deploy.bench.sizing.costs import Costs
from deploy.bench.sizing.fleet import Fleet, Size, SizeLine
from deploy.bench.sizing.stored_tables import (
    DAY_SECONDS,
    DERIVED_TABLES,
    joins_per_day,
    rewritten_rows,
    stored_tables,
)
from deploy.local.budget import memory_budget_mb
from deploy.settings import Settings
from gateway.delivery.sequence import MAX_COUNTERS
from ingest.topics.copies import USUAL_COPIES, wanted_copies
from streaming.dedup_index import RANGES_LIMIT

__all__ = ["size_fleet"]

BUSY: Final = 0.7
"""Share of a core, or of a machine's cores, that a part may use: the rest is for peaks and for catching up."""
BROKER_REPLICAS: Final = 4000
"""Copies of partitions on one broker that Kafka's project advises at most."""
WRITES_PER_BATCH: Final = 4
"""Files of one batch: data, commit, and Spark's entries `offsets/N` and `commits/N`."""
WRITES_PER_COMMIT: Final = 2
HOURS_PER_MONTH: Final = 730
DAYS_PER_MONTH: Final = HOURS_PER_MONTH / 24
GB: Final = 1e9
MB: Final = 1024**2


def size_fleet(fleet: Fleet, costs: Costs, settings: Settings) -> Size:
    """Return the size of the pipeline.

    Guarantees: processes, cores, memory, bytes, rows, requests and money do not fall if there are more devices.
    """
    tables = stored_tables(fleet, costs, settings)
    lines = [
        *_load(fleet),
        *_broker(fleet, costs),
        *_gateways(fleet, costs, settings),
        *_kafka(fleet, costs, settings),
        *_landing(fleet, costs, settings),
        *_requests(fleet, costs, settings),
    ]
    lines += _money(fleet, lines, sum(table.bytes for table in tables) / GB)
    size = Size(fleet, lines, tables, (), _assumptions(fleet), costs.machine)
    return replace(size, ceilings=ceilings_of(size, costs, settings))


def _load(fleet: Fleet) -> Iterator[SizeLine]:
    yield SizeLine("load", "messages", fleet.rate, "messages/s", "devices / seconds between messages")
    yield SizeLine("load", "rows", fleet.rows_per_second, "rows/s", "messages x readings")
    yield SizeLine("load", "series", fleet.series, "series", "devices x readings")


def _broker(fleet: Fleet, costs: Costs) -> Iterator[SizeLine]:
    spent = costs.cores("broker").at(fleet.rate)
    dearer = costs.figures["tls_factor_mqtt"].value if fleet.tls else 1.0
    yield SizeLine("mqtt broker", "connections", fleet.devices, "connections", "one of each device; not measured")
    yield SizeLine(
        "mqtt broker", "cores", spent.value * dearer, "cores",
        f"cpu_us_per_message_broker {spent.basis}{_tls(fleet, dearer)}; mosquitto, which uses one core",
    )  # fmt: skip


def _tls(fleet: Fleet, dearer: float) -> str:
    return f", x {dearer:.3g} for TLS (scenario secure)" if fleet.tls else ""


def _gateways(fleet: Fleet, costs: Costs, settings: Settings) -> Iterator[SizeLine]:
    by_devices, by_readings = costs.factor("gateway", "devices"), costs.factor("gateway", "readings")
    dearer = by_devices.at(min(fleet.devices, MAX_COUNTERS)).value * by_readings.at(fleet.readings).value
    curve = costs.cores("gateway")
    most = curve.reach(BUSY / dearer)
    by_load = math.ceil(fleet.rate / most)
    by_memory = math.ceil(fleet.devices / MAX_COUNTERS) if fleet.numbered else 1
    count = max(1, by_load, by_memory)
    why = (
        f"{MAX_COUNTERS:,} counters of one gateway (gateway/delivery/sequence.py, MAX_COUNTERS)"
        if by_memory >= by_load
        else f"{most:,.0f} messages/s use {BUSY:.0%} of the one thread of a gateway"
    )
    yield SizeLine("gateway", "processes", count, "", why)
    each = curve.at(fleet.rate / count)
    yield SizeLine(
        "gateway", "cores", count * each.value * dearer, "cores",
        f"cpu_us_per_message_gateway {each.basis}, x {dearer:.3g} for devices and readings",
    )  # fmt: skip
    memory = costs.memory_mb("gateway").at(min(fleet.devices, MAX_COUNTERS))
    window = settings.gateway.window_bytes / MB
    yield SizeLine(
        "gateway", "memory of each", memory.value + window, "MB",
        f"peak_rss_mb_gateway {memory.basis}, and a full window (gateway.window_bytes)",
    )  # fmt: skip


def _kafka(fleet: Fleet, costs: Costs, settings: Settings) -> Iterator[SizeLine]:
    kafka = settings.kafka
    copies = wanted_copies(kafka, USUAL_COPIES).replication
    per_partition = costs.most_per_partition()
    partitions = max(kafka.partitions, math.ceil(fleet.rate / per_partition))
    yield SizeLine(
        "kafka", "partitions", partitions, "",
        f"at least kafka.partitions; {per_partition:,.0f} messages/s is the most measured on one",
    )  # fmt: skip
    curve = costs.cores("kafka")
    spent, idle = curve.at(fleet.rate), curve.at(0.0).value
    dearer = costs.figures["tls_factor_kafka"].value if fleet.tls else 1.0
    for_three = costs.figures["cost_of_three_copies"].value
    for_copies = 1 + (for_three - 1) * (copies - 1) / 2
    load = (spent.value - idle) * costs.factor("kafka", "readings").at(fleet.readings).value * dearer
    cores = idle * copies + load * for_copies
    yield SizeLine(
        "kafka", "cores", cores, "cores",
        f"cpu_us_per_message_kafka {spent.basis}{_tls(fleet, dearer)}; above {idle:.2g} cores of each idle copy "
        f"x {for_copies:.3g} for {copies} copies (scenario dsbs)",
    )  # fmt: skip
    brokers = max(
        copies, math.ceil(cores / (fleet.machine_cores * BUSY)), math.ceil(partitions * copies / BROKER_REPLICAS)
    )
    yield SizeLine(
        "kafka", "brokers", brokers, "",
        f"{copies} copies, {BUSY:.0%} of {fleet.machine_cores} cores each, at most {BROKER_REPLICAS:,} copies of partitions",
    )  # fmt: skip
    record, outcome = _record_bytes(fleet, costs), costs.figures["outcome_bytes"]
    yield SizeLine("kafka", "record", record, "bytes", costs.figures["record_bytes"].source + _more_bytes(fleet))
    yield SizeLine("kafka", "outcome of a message", outcome.value, "bytes", outcome.source)
    seconds = kafka.retention_hours * 3600
    yield SizeLine(
        "kafka", "disk of all copies", fleet.rate * (record + outcome.value) * seconds * copies / GB, "GB",
        f"(record + outcome) x messages x kafka.retention_hours ({kafka.retention_hours}) x {copies} copies",
    )  # fmt: skip
    yield SizeLine(
        "kafka", "retention_bytes to set", fleet.rate * record * seconds / partitions, "bytes",
        f"of one partition in kafka.retention_hours; the setting is {kafka.retention_bytes:,}",
    )  # fmt: skip


def _record_bytes(fleet: Fleet, costs: Costs) -> float:
    """Bytes that Kafka keeps of a message in one copy; what a payload has more than the measured one counts uncompressed."""
    measured = costs.figures["payload_bytes"].value
    usual = measured + (fleet.readings - 1) * costs.figures["payload_bytes_per_reading"].value
    payload = usual if fleet.payload_bytes is None else fleet.payload_bytes
    return costs.figures["record_bytes"].value + max(0.0, payload - measured)


def _more_bytes(fleet: Fleet) -> str:
    more = fleet.readings > 1 or fleet.payload_bytes is not None
    return "; bytes of a larger payload count uncompressed (an upper bound)" if more else ""


def _landing(fleet: Fleet, costs: Costs, settings: Settings) -> Iterator[SizeLine]:
    spent, dearer = costs.cores("stream").at(fleet.rows_per_second), costs.factor("stream", "devices").at(fleet.devices)
    most = costs.figures["landed_rows_per_second"].value
    count = max(
        math.ceil(fleet.series / RANGES_LIMIT) if fleet.numbered else 1, math.ceil(fleet.rows_per_second / most)
    )
    yield SizeLine(
        "landing", "processes", count, "",
        "one writer of a tables root; above 1, whole pipelines side by side, each with its Kafka and tables",
    )  # fmt: skip
    yield SizeLine(
        "landing", "cores", spent.value * dearer.value, "cores",
        f"cpu_us_per_message_stream {spent.basis}, x {dearer.value:.3g} for devices; derived tables as in the measured runs",
    )  # fmt: skip
    memory = costs.memory_mb("stream").at(fleet.devices)
    yield SizeLine("landing", "memory", memory.value, "MB", f"peak_rss_mb_stream {memory.basis}")
    again = sum(rewritten_rows(fleet).values())
    yield SizeLine(
        "landing", "rows that a derive pass writes again", again, "rows",
        "open slices of the rollups at their end, latest and devices",
    )  # fmt: skip
    each = costs.figures["rewritten_row_cpu_us"]
    yield SizeLine(
        "landing", "cores of derive passes in time", again * each.value / 1e6 / settings.stream.derive_seconds, "cores",
        f"{each.value:g} us a row ({each.source}), in stream.derive_seconds; not in the money",
    )  # fmt: skip
    budget = memory_budget_mb(settings)
    watchers = budget["monitor"] + budget["canary"]
    yield SizeLine("landing", "monitor and canary", watchers, "MB", "deploy/local/budget.py, measured in a soak")


def _requests(fleet: Fleet, costs: Costs, settings: Settings) -> Iterator[SizeLine]:
    stream = settings.stream
    measured = costs.commits().at(fleet.rate)
    # Fewer messages than commits cannot be: a batch has at least one.
    commits = min(measured.value, fleet.rate)
    basis = f"commits {measured.basis}"
    if stream.trigger_seconds and 1 / stream.trigger_seconds < commits:
        commits, basis = 1 / stream.trigger_seconds, f"stream.trigger_seconds is {stream.trigger_seconds:g}"
    cut = stream.batch_cut
    if cut.records and cut.seconds and (gathered := max(1 / cut.seconds, fleet.rate / cut.records)) < commits:
        commits, basis = gathered, f"a batch waits for {cut.records:,} records or {cut.seconds:g} s (stream.profile)"
    full = fleet.rate / stream.max_records_per_batch
    if full > commits:
        commits, basis = full, f"stream.max_records_per_batch is {stream.max_records_per_batch:,}"
    landed = commits * DAY_SECONDS
    passes = min(DAY_SECONDS / stream.derive_seconds, landed)
    joins = joins_per_day(landed)
    yield SizeLine("requests", "commits of readings a day", landed, "commits", basis)
    yield SizeLine("requests", "files of readings a day before they are joined", landed, "files", "one of each commit")
    yield SizeLine(
        "requests", "derive passes a day", passes, "passes", "a day / stream.derive_seconds, if a pass took no time"
    )
    puts = landed * WRITES_PER_BATCH + (passes * len(DERIVED_TABLES) + joins) * WRITES_PER_COMMIT
    yield SizeLine(
        "requests", "writing requests a day", puts, "PUTs",
        f"{WRITES_PER_BATCH} of a batch; {WRITES_PER_COMMIT} of each of {len(DERIVED_TABLES)} commits of a pass and of "
        f"{joins:,.0f} joins; reads, lists and checkpoints of the logs are not counted; not measured on an object store",
    )  # fmt: skip


def _money(fleet: Fleet, lines: Sequence[SizeLine], table_gb: float) -> Iterator[SizeLine]:
    found = {(line.group, line.name): line.value for line in lines}
    cores = sum(found[group, "cores"] for group in ("gateway", "kafka", "landing"))
    stored = table_gb + found["kafka", "disk of all copies"]
    puts = found["requests", "writing requests a day"] * DAYS_PER_MONTH
    amounts = (
        ("cores", cores * HOURS_PER_MONTH, "core-hours a month", fleet.prices.core_hour, 1.0),
        ("storage", stored, "GB-months a month, full tables and Kafka", fleet.prices.gb_month, 1.0),
        ("writing requests", puts, "PUTs a month", fleet.prices.thousand_puts, 1000.0),
    )
    total = 0.0
    for name, amount, unit, price, per in amounts:
        yield SizeLine("money", name, amount, unit, f"{HOURS_PER_MONTH} hours a month" if name == "cores" else "")
        if price is not None:
            total += amount / per * price
            yield SizeLine(
                "money", f"{name}, cost", amount / per * price, "a month", f"at the given price of {price:g}"
            )
    if any(price is not None for *_, price, _ in amounts):
        yield SizeLine("money", "sum of the given prices", total, "a month", "without the MQTT broker and the network")


def _assumptions(fleet: Fleet) -> list[str]:
    sent = "boot and seq" if fleet.numbered else "an identity without a counter"
    return [
        f"Devices send evenly, each {fleet.readings} reading(s) of one metric each every {fleet.every_seconds:g} s, with {sent}.",
        f"A part uses at most {BUSY:.0%} of its cores; Kafka's machines have {fleet.machine_cores} cores.",
        "All measured messages are native JSON. Mappings and decoders of other formats cost the gateway more.",
        "Rejected messages, duplicates, SQL streams, queries, backups and the MQTT broker are not counted.",
        "Costs are those of one machine on which all parts ran together; other processors differ.",
    ]
