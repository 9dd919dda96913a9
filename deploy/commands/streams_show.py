"""Output of `tidegate streams` as lines: plans, rewinds, golden data and the list."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from deploy.commands.options import text_table

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["golden_lines", "plan_land", "plan_lines", "rewind_lines", "swap_lines", "table_lines"]

_VERDICTS: Final = {
    "new": "new",
    "unchanged": "already applied, without changes",
    "survives": "its checkpoint survives",
    "rewind": "its checkpoint does not survive: run `streams rewind` into a shadow, then swap",
    "refused": "this change is not possible",
}


def plan_land(settings: "Settings") -> dict[str, Any]:
    """Return the plan of the landing itself: which of its settings the checkpoint depends on."""
    keeps = "kept per topic and partition in the checkpoint and in every commit"
    return {
        "name": "land",
        "applied": True,
        "columns": [],
        "sources": [
            {"name": "readings", "topic": "telemetry.readings"},
            {"name": "dead_letters", "topic": "telemetry.dead-letters"},
        ],
        "tables": [],
        "state": [],
        "partitions": settings.kafka.partitions,
        "sinks": ["table readings", "table dead_letters"],
        "changes": [
            {"what": "stream.master, driver_memory, profile, trigger_seconds, max_records_per_batch, extra", "verdict": "keeps",
             "why": "the checkpoint does not contain them"},
            {"what": "stream.checkpoint", "verdict": "keeps",
             "why": "a new checkpoint continues at the offsets in the tables; nothing is stored twice"},
            {"what": "kafka.partitions", "verdict": "keeps", "why": "new partitions are read from their oldest record"},
            {"what": "lake.root", "verdict": "refused", "why": f"offsets are {keeps}: other tables need a new checkpoint too"},
            {"what": "kafka.bootstrap_servers to another cluster", "verdict": "refused",
             "why": f"offsets are {keeps}: another cluster needs new tables"},
        ],
        "checkpoint": "survives",
    }  # fmt: skip


def plan_lines(found: dict[str, Any]) -> list[str]:
    """Return a plan for people: verdict, sources, sinks, state, columns and changes."""
    if "error" in found:
        return [f"{found['name']}: {found['error']}"]
    sources = ", ".join(f"{source['name']} ({source['topic']})" for source in found["sources"])
    lines = [
        f"{found['name']}: {_VERDICTS[found['checkpoint']]}",
        f"  reads       {sources}" + (f"; tables {', '.join(found['tables'])}" if found["tables"] else ""),
        f"  writes      {', '.join(found['sinks'])}",
        f"  remembers   {'; '.join(found['state']) or 'nothing'}",
        f"  partitions  {found['partitions']}",
    ]
    lines += [f"  column      {column['name']} {column['type']}" for column in found["columns"]]
    return lines + [f"  {change['verdict']:<10}  {change['what']}: {change['why']}" for change in found["changes"]]


def rewind_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the sources of the shadow's rows, and its differences from the live table."""
    for topic, parts in answer["from_kafka"].items():
        for part, (first, end) in parts.items():
            yield f"from Kafka  {topic} partition {part}: offsets {first} to {end}"
    for topic, parts in answer["from_delta"].items():
        for part, which in parts.items():
            yield f"from Delta  readings, {topic} partition {part}: {which}"
    diff = answer["diff"]
    yield f"same {diff['same']}, only live {diff['only_live']}, only shadow {diff['only_shadow']}"
    for sign, key in (("-", "only_live_examples"), ("+", "only_shadow_examples")):
        for row in diff[key]:
            yield f"{sign} {row}"


def swap_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the time from which on the rows are new, and the records that stay missing."""
    yield f"{answer['name']} is swapped: its rows since {answer.get('since', 'then')} are new"
    for topic, parts in answer.get("missing", {}).items():
        for part, (first, end) in parts.items():
            yield f"missing     {topic} partition {part}: Kafka no longer has offsets {first} to {end - 1}"


def golden_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield one stream's result, and each row that differs."""
    yield f"{found['name']}: {'ok' if found['same'] else 'differs'}, {found['rows']} rows"
    for sign, key in (("-", "missing"), ("+", "unexpected")):
        for row in found[key]:
            yield f"{sign} {row}"


def table_lines(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Iterator[str]:
    """Yield a table of rows under their column names."""
    yield from text_table(columns, ([_cell(row[column]) for column in columns] for row in rows))


def _cell(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
