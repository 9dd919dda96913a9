"""Decision whether a changed definition can continue from the applied one's checkpoint: pure rules, one verdict per change.

Between two runs Spark keeps Kafka offsets per source, and rows by key per stateful operator. So sources, stateful operators
with their keys, windows and aggregates, and the number of state partitions must stay. Filters, projections, sinks and the
trigger may change.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["CheckpointShape", "DefinitionChange", "compare", "refused", "survives"]

Verdict = Literal["keeps", "rewind", "refused"]


@dataclass(frozen=True, slots=True)
class CheckpointShape:
    """Parts of a definition that decide the verdict.

    `body` is the statement with its white space joined, `sources` are names of streams, `tables` of static ones, `state` the
    stateful operators in words, `columns` the output's names and Spark types.
    """

    body: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    state: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    sinks: tuple[str, ...]
    key: str | None
    watermark: tuple[str, str] | None
    late: str
    trigger_seconds: float | None
    partitions: int

    @property
    def stateful(self) -> bool:
        """True if the stream keeps rows from batch to batch."""
        return bool(self.state)

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CheckpointShape":
        """Read a shape from JSON."""
        lists = {key: tuple(data[key]) for key in ("sources", "tables", "state", "sinks")}
        watermark = tuple(data["watermark"]) if data["watermark"] else None
        columns = tuple((name, kind) for name, kind in data["columns"])
        return cls(**{**data, **lists, "watermark": watermark, "columns": columns})


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One difference: `keeps` the checkpoint, needs a `rewind`, or is `refused` by the table that is there."""

    what: str
    verdict: Verdict
    why: str


def survives(changes: list[DefinitionChange]) -> bool:
    """Return whether all changes keep the checkpoint."""
    return all(change.verdict == "keeps" for change in changes)


def refused(changes: list[DefinitionChange]) -> bool:
    """Return whether the existing table cannot take one of the changes, not even with a rewind."""
    return any(change.verdict == "refused" for change in changes)


def compare(old: CheckpointShape, new: CheckpointShape) -> list[DefinitionChange]:
    """Every difference with its verdict; nothing where both are the same."""
    changes: list[DefinitionChange] = []

    def note(what: str, verdict: Verdict, why: str) -> None:
        changes.append(DefinitionChange(what, verdict, why))

    if old.sources != new.sources:
        note(f"sources {_named(old.sources)} -> {_named(new.sources)}", "rewind", "offsets are kept per source")
    if old.tables != new.tables:
        note(f"static tables {_named(old.tables)} -> {_named(new.tables)}", "keeps", "each batch reads them again")
    _compare_state(old, new, note)
    _compare_columns(old, new, note)
    if old.sinks != new.sinks:
        note(f"sink {_named(old.sinks)} -> {_named(new.sinks)}", "keeps", "a new sink gets rows from now on")
    if old.key != new.key:
        note(f"key {old.key} -> {new.key}", "keeps", "order is kept per key; new records have the new key")
    if old.late != new.late:
        note(f"late {old.late} -> {new.late}", "keeps", "it applies from now on")
    if old.trigger_seconds != new.trigger_seconds:
        note(f"trigger {_trigger(old)} -> {_trigger(new)}", "keeps", "the trigger is not part of a checkpoint")
    if old.body != new.body and not changes:
        note("the statement", "keeps", "a filter or an expression: it applies from now on, written rows stay")
    elif old.body != new.body and all(change.verdict == "keeps" for change in changes):
        note("the statement", "keeps", "filters and expressions apply from now on, written rows stay")
    return changes


def _compare_state(old: CheckpointShape, new: CheckpointShape, note: Any) -> None:
    if old.state != new.state:
        was, now = "; ".join(old.state) or "none", "; ".join(new.state) or "none"
        note(f"state {was} -> {now}", "rewind", "state is kept by operator, key, window and aggregate")
    elif old.stateful and old.partitions != new.partitions:
        note(f"partitions {old.partitions} -> {new.partitions}", "rewind", "state is kept per partition")
    elif old.partitions != new.partitions:
        note(f"partitions {old.partitions} -> {new.partitions}", "keeps", "no state is kept per partition")
    if old.watermark == new.watermark:
        return
    moved = (old.watermark or ("",))[0] != (new.watermark or ("",))[0]
    what = f"watermark {' '.join(old.watermark or ('none',))} -> {' '.join(new.watermark or ('none',))}"
    if old.stateful and moved:
        note(what, "rewind", "another column would close the rows in the state")
    else:
        note(what, "keeps", "it applies from now on")


def _compare_columns(old: CheckpointShape, new: CheckpointShape, note: Any) -> None:
    was, now = dict(old.columns), dict(new.columns)
    for name, kind in now.items():
        if name not in was:
            note(f"column {name} {kind} is new", "keeps", "stored rows have null")
        elif was[name] != kind:
            verdict: Verdict = "refused" if "table" in old.sinks and "table" in new.sinks else "keeps"
            why = (
                "a table's column keeps its type: CAST it back, give the new column another name, or drop the stream with "
                "its table and apply it again"
            )
            note(f"column {name} {was[name]} -> {kind}", verdict, why if verdict == "refused" else "records are JSON")
    for name in was:
        if name not in now:
            note(f"column {name} is removed", "keeps", "the table keeps it; new rows have null there")


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _trigger(shape: CheckpointShape) -> str:
    return "realtime" if shape.trigger_seconds is None else f"{shape.trigger_seconds:g} s"
