"""Kinds of cells: the function that runs a cell of each kind, and the kinds that Kafka's own performance tools can also run."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psutil

from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.scenario import Kind, Parameters
from ingest.contract.errors import FatalError, UnavailableError
from ingest.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from deploy.bench.kafka_load.workload import Workload

__all__ = ["run_cell", "run_peer"]

_Run = TypeVar("_Run")


def run_cell(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    """One run of a cell by its kind; see `RunCell`."""
    return _RUNNERS[workload.kind](workload, topic, bed)


def run_peer(
    workload: Parameters, topic: str, kafka: KafkaSettings, tool: Callable[..., list[str]]
) -> Mapping[str, float]:
    """Run the same load with Kafka's own performance tools; empty if they have no such run."""
    from deploy.bench.kafka_load.peer import run_peer as run_tools

    known = workload.kind == "load" and not workload.retained_mb and not workload.cold
    return run_tools(_load(workload, topic), kafka, tool) if known else {}


def _run_load(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.segments import SegmentFiles
    from deploy.bench.kafka_load.workload_run import run_workload

    records = [] if bed.folder is None else sorted(bed.folder.glob("node-*/records"))
    files = SegmentFiles(records, topic, bed.brokers) if records else None
    return run_workload(_load(workload, topic), bed.kafka, files=files)


def _run_group(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.group_run import GroupRun, run_group

    run = _of(GroupRun, workload, topic=topic, rate=workload.rate or GroupRun.rate)
    with ExitStack() as outage:
        without = bed.without_leader
        kill = None if without is None else lambda name: outage.enter_context(without(name))
        return run_group(run, bed.kafka, kill_leader=kill)


def _run_failover(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.failover import run_failover
    from deploy.bench.kafka_load.feed import SteadyLoad

    if workload.kill not in bed.without:
        message = f"the {workload.kill} of this cluster cannot be killed from here; a failover starts its own cluster"
        raise UnavailableError(message)
    load = _of(SteadyLoad, workload, topic=topic, rate=workload.rate or SteadyLoad.rate)
    return run_failover(load, bed.kafka, bed.without[workload.kill])


def _run_pipeline(workload: Parameters, _topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.suite.pipeline_bed import pipeline_cell

    return pipeline_cell(workload, bed)


def _run_streams(workload: Parameters, _topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.suite.sql_streams import streams_cell

    return streams_cell(workload, bed)


def _run_partitioner(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.partitioner import run_partitioner

    return run_partitioner(
        _load(workload, topic), bed.kafka, partitioner=workload.partitioner, networks=workload.networks
    )


def _run_rewind(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.rewinding import run_rewind

    return run_rewind(_load(workload, topic), bed.kafka, workload.rewind)


def _run_own(workload: Parameters, _topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.suite.own_parts import own_cell

    return own_cell(workload, bed.brokers)


def _run_mqtt(workload: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
    from deploy.bench.mqtt_load.mqtt_run import MqttLoad, run_mqtt

    if bed.mqtt is None:
        message = 'publishers and a subscriber need a mosquitto. Give the target `runs = "mosquitto"`'
        raise FatalError(message)
    load = _of(MqttLoad, workload, topic=topic, publishers=workload.producers)
    before = list[dict[int, float]]()
    found = run_mqtt(load, bed.mqtt, on_started=lambda: before.append(_cpu_seconds(bed.brokers)))
    return {**found, **_broker_cpu(before[-1], bed, max(1, found["published"]), found["publish_per_second"])}


_RUNNERS: Final[Mapping[Kind, Callable[[Parameters, str, CellBed], Mapping[str, Any]]]] = {
    "load": _run_load,
    "group": _run_group,
    "failover": _run_failover,
    "pipeline": _run_pipeline,
    "streams": _run_streams,
    "partitioner": _run_partitioner,
    "rewind": _run_rewind,
    "land": _run_own,
    "layout": _run_own,
    "day": _run_own,
    "soak": _run_own,
    "mqtt": _run_mqtt,
}


def _cpu_seconds(brokers: Mapping[str, int]) -> dict[int, float]:
    """Processor time so far of each broker, by process id; of one that has just ended none."""
    found = dict[int, float]()
    for pid in dict(brokers).values():
        with suppress(psutil.Error):
            found[pid] = sum(psutil.Process(pid).cpu_times()[:2])
    return found


def _broker_cpu(before: Mapping[int, float], bed: CellBed, messages: int, rate: float) -> dict[str, float]:
    """Return the broker's processor time per message, and its busy cores; absent if it ended meanwhile."""
    after = _cpu_seconds(bed.brokers)
    if not before or before.keys() != after.keys():
        return {}
    used = sum(after.values()) - sum(before.values())
    return {
        "broker_cpu_us_per_message": round(used / messages * 1_000_000, 3),
        "publish_broker_cores": round(used * rate / messages, 3),
    }


def _load(workload: Parameters, topic: str) -> "Workload":
    from deploy.bench.kafka_load.workload import Workload

    pairs = (pair.split("=", 1) for pair in workload.properties.split())
    return _of(Workload, workload, topic=topic, properties=tuple((name, value) for name, value in pairs))


def _of(form: type[_Run], workload: Parameters, **more: Any) -> _Run:
    """Return the arguments of a runner: the parameters that it has by the same names."""
    known = {one.name for one in fields(form)}  # type: ignore[arg-type]
    given = workload.model_dump()
    return form(**{name: value for name, value in given.items() if name in known} | more)
