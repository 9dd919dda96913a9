"""Kinds of runs: by what each cell is run once, and which of them Kafka's own performance tools can run too."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from deploy.bench.suite.bed import Bed
from deploy.bench.suite.scenario import Kind, Parameters
from ingest.settings import KafkaSettings

if TYPE_CHECKING:
    from deploy.bench.kafka_load.workload import Workload

__all__ = ["run_cell", "run_peer"]

GROUP_RATE: Final = 400.0
"""Records a second for a group whose cell names no rate."""


def run_cell(workload: Parameters, topic: str, bed: Bed) -> Mapping[str, Any]:
    """One run of a cell by its kind; see `RunCell`."""
    return _RUNNERS[workload.kind](workload, topic, bed)


def run_peer(
    workload: Parameters, topic: str, kafka: KafkaSettings, tool: Callable[..., list[str]]
) -> Mapping[str, float]:
    """The same by Kafka's own performance tools; nothing where they have no such run."""
    from deploy.bench.kafka_load.peer import run_peer as run_tools

    return run_tools(_load(workload, topic), kafka, tool) if workload.kind == "load" else {}


def _run_load(workload: Parameters, topic: str, bed: Bed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.run import run_workload

    return run_workload(_load(workload, topic), bed.kafka)


def _run_group(workload: Parameters, topic: str, bed: Bed) -> Mapping[str, Any]:
    from deploy.bench.kafka_load.groups import GroupRun, run_group

    run = GroupRun(
        topic=topic, members=workload.members, event=workload.event, protocol=workload.protocol,
        partitions=workload.partitions, replication=workload.replication, rate=workload.rate or GROUP_RATE,
    )  # fmt: skip
    with ExitStack() as outage:
        without = bed.without_leader
        kill = None if without is None else lambda name: outage.enter_context(without(name))
        return run_group(run, bed.kafka, kill_leader=kill)


def _run_pipeline(workload: Parameters, _topic: str, bed: Bed) -> Mapping[str, Any]:
    from deploy.bench.suite.pipeline import pipeline_cell

    return pipeline_cell(workload, bed)


def _run_streams(workload: Parameters, _topic: str, bed: Bed) -> Mapping[str, Any]:
    from deploy.bench.suite.sql_streams import streams_cell

    return streams_cell(workload, bed)


_RUNNERS: Final[Mapping[Kind, Callable[[Parameters, str, Bed], Mapping[str, Any]]]] = {
    "load": _run_load,
    "group": _run_group,
    "pipeline": _run_pipeline,
    "streams": _run_streams,
}


def _load(workload: Parameters, topic: str) -> "Workload":
    """What the load generator takes: the parameters that it has by the same names."""
    from dataclasses import fields

    from deploy.bench.kafka_load.workload import Workload

    given = workload.model_dump(exclude={"properties"})
    values = {one.name: given[one.name] for one in fields(Workload) if one.name in given}
    pairs = (pair.split("=", 1) for pair in workload.properties.split())
    return Workload(topic=topic, properties=tuple((name, value) for name, value in pairs), **values)
