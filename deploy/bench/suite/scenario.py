"""Form of a scenario file: workload, targets, baselines of a paper and goals; and the cells that it gives."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = ["Baseline", "Cell", "Curve", "Factor", "Goal", "Kind", "Parameters", "Scenario", "ScenarioTarget"]

Value = str | int | float | bool
Axis = Value | list[Value]
_PROPERTIES: Final = r"^([a-z.]+=[^\s=]+( [a-z.]+=[^\s=]+)*)?$"
Kind = Literal[
    "load", "group", "failover", "pipeline", "streams", "partitioner", "rewind", "land", "layout", "day", "soak", "mqtt"
]  # fmt: skip
"""Kind of a run: a load of producers and consumers, a consumer group and an event, the death of a leading server, devices of a
whole pipeline, events through its SQL streams, records that a partitioner spreads by their client's address, a reader that
goes back, or publishers and a subscriber on a mosquitto; or one of the benchmarks that start their own parts: the landing
that catches up, layouts of a table, a day of commits, a soak.
"""


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Parameters(_Form):
    """Load of one run; `Workload` of the load generator explains each field."""

    kind: Kind = "load"
    ending: str = Field("", pattern=r"^[A-Za-z0-9._-]{0,100}$", description="End of the topic's name.")
    messages: int = Field(30_000, ge=1, le=2_000_000_000)
    message_bytes: int = Field(100, ge=8, le=900_000)
    batch_records: int = Field(1000, ge=1, le=1_000_000)
    rate: float = Field(0, ge=0)
    mode: Literal["split", "stream"] = "split"
    producers: int = Field(1, ge=1, le=64)
    consumers: int = Field(1, ge=1, le=64)
    partitions: int = Field(1, ge=1, le=1000)
    replication: int = Field(1, ge=1, le=9)
    acks: Literal["0", "1", "all"] = "1"
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "none"
    keys: Literal["none", "even", "skewed"] = "none"
    warmup_messages: int = Field(0, ge=0)
    consume: bool = True
    linger_ms: float = Field(0, ge=0)
    fetch_min_bytes: int = Field(1, ge=1, le=1_000_000)
    sessions: int = Field(1, ge=1, le=1000)
    stable_ratio: float = Field(0, ge=0, lt=1)
    properties: str = Field("", pattern=_PROPERTIES, description="Properties of the topic: `name=value name=value`.")

    retained_mb: int = Field(0, ge=0, le=10_000_000)
    cold: bool = False
    fetch_bytes: int = Field(4 * 1024 * 1024, ge=1, le=1_000_000_000)

    members: int = Field(2, ge=1, le=64, description="Members of a `group` at its start.")
    event: Literal["none", "leave", "join", "die", "leader_killed"] = "none"
    protocol: Literal["range", "cooperative", "consumer"] = "range"

    partitioner: Literal["network", "balanced", "round_robin", "murmur2", "consistent"] = "murmur2"
    networks: int = Field(
        500, ge=1, le=65_536, description="Number of the clients whose addresses are the keys of a `partitioner`."
    )
    rewind: Literal["seek_offset", "seek_time", "group_offset", "group_time"] = "seek_offset"

    kill: Literal["controller", "zookeeper"] = Field("controller", description="The leader that a `failover` kills.")

    devices: int = Field(
        100, ge=1, le=1_000_000, description="Devices of a `pipeline`; each has sent a message before the clock starts."
    )
    readings: int = Field(
        1, ge=1, le=64, description="Readings in one message of a `pipeline`: series are devices x readings."
    )
    settle_seconds: float = Field(
        15.0, ge=1, le=600, description="Seconds of load after a start of a `pipeline`, before its first cell."
    )
    profile: Literal["", "latency", "balanced", "thrifty"] = Field(
        "",
        description="When the stream of a `pipeline` begins a batch (stream.profile); empty: that of the embedded run.",
    )
    table_rows: int = Field(
        0, ge=0, le=1_000_000_000, multiple_of=1_000_000, description="Rows in a pipeline's table beforehand."
    )

    workers: int = Field(
        0,
        ge=0,
        le=16,
        description="Workers with one core each of a Spark cluster that a `land` starts; 0 for a local Spark.",
    )

    disturbance: Literal["none", "stream_killed", "disk_full"] = Field(
        "none", description="Event of `streams` in the middle of the run."
    )

    @model_validator(mode="after")
    def _check_split(self) -> Self:
        if self.mode == "stream" and (self.cold or self.retained_mb):
            msg = "cold and retained_mb need mode split; in mode stream consumers read immediately"
            raise ValueError(msg)
        return self

    window: int = Field(100, ge=1, le=65_535, description="Messages of an `mqtt` publisher that wait for a PUBACK.")

    @model_validator(mode="after")
    def _check_mqtt(self) -> Self:
        if self.kind == "mqtt" and self.message_bytes < 16:
            msg = f"message_bytes is {self.message_bytes}, wanted 16 or more with mqtt for the time and the number of a message"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_consumers(self) -> Self:
        if self.consumers > self.partitions:
            msg = f"consumers is {self.consumers}, wanted at most {self.partitions}, the number of partitions"
            raise ValueError(msg)
        if self.disturbance != "none" and not self.rate:
            msg = f"disturbance is {self.disturbance} and rate is 0, a load without a middle; wanted a rate"
            raise ValueError(msg)
        return self


class ScenarioTarget(_Form):
    """Servers that a scenario starts for itself: a cluster, the whole pipeline with its one broker, a mosquitto, or nothing."""

    runs: Literal["kafka", "pipeline", "streams", "own", "mosquitto"] = "kafka"
    """`own`: each run starts what it needs."""
    disk_mb: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Size of the small disk of `streams`, only for the cells whose disk fills up.",
    )
    realtime: bool = Field(
        False,
        description="Run both streams of `streams` in Spark's real-time mode, which writes topics but no table.",
    )

    brokers: int = Field(1, ge=1, le=9)
    metadata: Literal["kraft", "zookeeper"] = "kraft"
    security: Literal["plaintext", "ssl", "sasl_ssl", "tls", "tls_password"] = Field(
        "plaintext", description="Kafka: plaintext, ssl or sasl_ssl; mosquitto: plaintext, tls or tls_password."
    )

    broker_properties: str = Field(
        "", pattern=_PROPERTIES, description="Properties of each broker: `name=value name=value`."
    )

    @model_validator(mode="after")
    def _check_security(self) -> Self:
        known = ("plaintext", "tls", "tls_password") if self.runs == "mosquitto" else ("plaintext", "ssl", "sasl_ssl")
        if self.security not in known:
            msg = f"security is {self.security}, wanted {', '.join(known[:-1])} or {known[-1]} where {self.runs} runs"
            raise ValueError(msg)
        return self

    def can_run(self, workload: Parameters) -> bool:
        """Return whether the target has all that the workload needs."""
        return not self.obstacle(workload)

    def obstacle(self, workload: Parameters) -> str:
        """Return the obstacle that keeps a workload from running on the target, with the next step; empty if there is none."""
        copies, fills = workload.replication, workload.disturbance == "disk_full"
        kills_zookeeper = workload.kind == "failover" and workload.kill == "zookeeper"
        found = (
            (not self.serves(workload), _wrong_server(workload)),
            (copies > self.brokers, f"replication={copies} needs {copies} brokers. Add --set brokers={copies}."),
            (
                kills_zookeeper and self.metadata != "zookeeper",
                f"kill=zookeeper needs a ZooKeeper, and metadata={self.metadata} has none. Name another kill, or add --set "
                "metadata=zookeeper.",
            ),
            (fills and not self.disk_mb, "disturbance=disk_full needs a small disk. Add --set disk_mb=768."),
            (
                self.disk_mb > 0 and not fills,
                f"disk_mb={self.disk_mb} is for disturbance=disk_full only. Add --set disk_mb=0, or that disturbance.",
            ),
        )
        return next((text for is_so, text in found if is_so), "")

    def serves(self, workload: Parameters) -> bool:
        """Return whether the target speaks the workload's protocol."""
        return (workload.kind == "mqtt") == (self.runs == "mosquitto")


def _wrong_server(workload: Parameters) -> str:
    if workload.kind == "mqtt":
        return "kind=mqtt needs a mosquitto. Add --set runs=mosquitto."
    return f"kind={workload.kind} does not run on a mosquitto. Leave --set runs=mosquitto out, or add --set kind=mqtt."


class Baseline(_Form):
    """Figures of others, cell by cell: columns named like parameters say for which cell, the others are figures."""

    title: str
    source: str
    columns: list[str]
    rows: list[list[Value]]

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                msg = f"row {number} has {len(row)} values, wanted {len(self.columns)}, one per column"
                raise ValueError(msg)
        return self

    def figures_of(self, parameters: Mapping[str, object]) -> dict[str, float]:
        """Return the baseline's figures of a cell; empty if it has no such cell."""
        found: dict[str, float] = {}
        for row in self.rows:
            pairs = dict(zip(self.columns, row, strict=True))
            if all(parameters[name] == value for name, value in pairs.items() if name in parameters):
                found |= {name: float(value) for name, value in pairs.items() if name not in parameters}
        return found


class Factor(_Form):
    """A bound as a multiple: of a baseline's figure, or of the same figure in another cell of this run."""

    times: float = Field(gt=0)
    baseline: str | None = None
    cell: dict[str, Value] | None = Field(None, description="Parameters in which the other cell differs.")

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.baseline is None) == (self.cell is None):
            msg = "name either a baseline or a cell; the bound is a multiple of it"
            raise ValueError(msg)
        return self


class Goal(_Form):
    """A bound of one figure, for the cells that `when` names."""

    figure: str
    at_least: float | Factor | None = None
    at_most: float | Factor | None = None
    when: dict[str, Value] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            msg = "give either at_least or at_most"
            raise ValueError(msg)
        return self

    @property
    def bound(self) -> float | Factor:
        """The one that is given."""
        bound = self.at_least if self.at_least is not None else self.at_most
        if bound is None:
            raise AssertionError
        return bound


class Curve(_Form):
    """Figures over one parameter, for cells that differ in it alone."""

    axis: str
    figures: list[str] = Field(min_length=1)
    follows: list[str] = Field(
        default_factory=list,
        description="Parameters that may change along with the axis, such as the count of messages.",
    )


class ShortRun(_Form):
    """Values that `--short` uses instead."""

    workload: dict[str, Value] = Field(default_factory=dict)
    matrix: list[dict[str, Axis]] | None = None
    targets: list[ScenarioTarget] | None = None
    repeats: int | None = Field(None, ge=1)
    peer_runs: int = Field(0, ge=0, le=20)
    seconds_per_run: float | None = Field(None, gt=0)


class Cell(_Form):
    """One workload on one target; `target` is None for an existing cluster."""

    workload: Parameters
    target: ScenarioTarget | None

    @property
    def parameters(self) -> dict[str, Value]:
        """All parameters by name, flat."""
        return {**self.workload.model_dump(), **(self.target.model_dump() if self.target else {})}


class Scenario(_Form):
    """One file of `scenarios/`; its name is the file's."""

    title: str
    source: str = Field("", description="Origin of the workload and the baselines.")
    note: str = Field("", description="Facts that a reader needs to compare the figures.")
    workload: dict[str, Value] = Field(default_factory=dict, description="Parameters of all cells.")
    matrix: list[dict[str, Axis]] = Field(
        default=[{}],
        min_length=1,
        description="Blocks; one that names `security`, `brokers` or the like is for such targets.",
    )
    targets: list[ScenarioTarget] = Field(default_factory=lambda: [ScenarioTarget()], min_length=1)
    measures: list[str] = Field(default_factory=list, description="Measures; each is a separate cell in the result.")
    shows: list[str] = Field(
        default_factory=list, description="Figures in the report's table, besides those of goals and baselines."
    )
    baselines: dict[str, Baseline] = Field(default_factory=dict)
    goals: list[Goal] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list, description="Growth over a parameter: its slope, and its bend.")
    long: bool = Field(False, description="Takes about an hour: `bench run` runs it only by its name, not with --all.")
    repeats: int = Field(5, ge=1, le=100)
    peer_runs: int = Field(1, ge=0, le=20, description="Runs of Kafka's own performance tools for each cell.")
    warmup_runs: int = Field(1, ge=0, le=10, description="Runs of the first workload of a target, not counted.")
    seconds_per_run: float = Field(2.0, gt=0, description="Approximate duration of one run; only for the time left.")
    short: ShortRun = Field(default_factory=ShortRun)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for goal in self.goals:
            bound = goal.bound
            if isinstance(bound, Factor) and bound.baseline is not None and bound.baseline not in self.baselines:
                msg = f"a goal of {goal.figure} names the baseline {bound.baseline!r}; known here: {sorted(self.baselines)}"
                raise ValueError(msg)
            named = [goal.when, bound.cell or {}] if isinstance(bound, Factor) else [goal.when]
            _check_parameters({name for names in named for name in names}, f"a goal of {goal.figure}")
            if self.measures and goal.figure not in self.measures:
                msg = f"a goal is about {goal.figure}, which is not one of the measures {self.measures}"
                raise ValueError(msg)
        for curve in self.curves:
            _check_parameters({curve.axis, *curve.follows}, f"the curve over {curve.axis}")
        return self

    @property
    def workloads(self) -> list[Parameters]:
        """Return the workloads of all targets, each once, in the order of the file."""
        return self._workloads_of(self.matrix)

    def cells(self) -> list[Cell]:
        """Target by target; a workload that a target cannot run, such as for too few brokers, is left out there."""
        return [
            Cell(workload=one, target=target)
            for target in self.targets
            for one in self._workloads_of([block for block in self.matrix if _is_for(block, target)])
            if target.can_run(one)
        ]

    def obstacles(self) -> list[str]:
        """Why targets leave out workloads, each reason once; the protocol is one only where no target speaks it."""
        found = [
            (target.serves(one), reason)
            for target in self.targets
            for one in self._workloads_of([block for block in self.matrix if _is_for(block, target)])
            if (reason := target.obstacle(one))
        ]
        near = [reason for serves, reason in found if serves] or [reason for _, reason in found]
        return list(dict.fromkeys(near))

    def _workloads_of(self, matrix: Sequence[Mapping[str, Axis]]) -> list[Parameters]:
        found: list[Parameters] = []
        for block in matrix:
            axes = {
                name: value
                for name, value in {**self.workload, **block}.items()
                if name not in ScenarioTarget.model_fields
            }
            found += [one for one in _expand(axes) if one not in found]
        return found

    def shortened(self) -> "Scenario":
        """Return the scenario for `--short`."""
        short = self.short
        matrix = short.matrix if short.matrix is not None else self.matrix
        return self.model_copy(
            update={
                "workload": {**self.workload, **short.workload},
                "matrix": [{**block, **short.workload} for block in matrix],
                "peer_runs": short.peer_runs,
                "targets": short.targets if short.targets is not None else self.targets,
                "seconds_per_run": short.seconds_per_run or self.seconds_per_run,
                "repeats": short.repeats if short.repeats is not None else min(self.repeats, 3),
            }
        )

    def with_parameters(self, values: Mapping[str, Value]) -> "Scenario":
        """Return the scenario with these parameters in all cells; cells that become equal are one.

        Targets that have no such value are left out, such as a mosquitto where Kafka's security is wanted.

        Raises:
            ValidationError: a value that a parameter does not take.
        """
        mine = {name: value for name, value in values.items() if name not in ScenarioTarget.model_fields}
        of_target = {name: value for name, value in values.items() if name in ScenarioTarget.model_fields}
        targets = list(_targets_with(self.targets, of_target))
        return self.model_copy(
            update={
                # A block that was for some targets is for those that were asked for now.
                "matrix": [
                    {name: value for name, value in {**block, **mine}.items() if name not in of_target}
                    for block in self.matrix
                ],
                "targets": list(dict.fromkeys(targets)),
            }
        )


def _targets_with(targets: Sequence[ScenarioTarget], values: Mapping[str, Value]) -> Iterator[ScenarioTarget]:
    """Return the targets that can have these values; raise the last fault if none can."""
    fault: ValidationError | None = None
    found = False
    for target in targets:
        try:
            yield ScenarioTarget.model_validate({**target.model_dump(), **values})
            found = True
        except ValidationError as error:
            fault = error
    if fault is not None and not found:
        raise fault


def _check_parameters(names: set[str], where: str) -> None:
    known = {*Parameters.model_fields, *ScenarioTarget.model_fields}
    if unknown := names - known:
        msg = f"{where} names {sorted(unknown)}, which are not parameters; known: {sorted(known)}"
        raise ValueError(msg)


def _is_for(block: Mapping[str, Axis], target: ScenarioTarget) -> bool:
    """A block that names properties of targets, such as `security`, is for those that have one of these values."""
    return all(
        getattr(target, name) in (value if isinstance(value, list) else [value])
        for name, value in block.items()
        if name in ScenarioTarget.model_fields
    )


def _expand(axes: Mapping[str, Axis]) -> Iterator[Parameters]:
    values: Sequence[list[Any]] = [value if isinstance(value, list) else [value] for value in axes.values()]
    for chosen in itertools.product(*values):
        yield Parameters.model_validate(dict(zip(axes, chosen, strict=True)))
