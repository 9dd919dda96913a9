"""Output of `tidegate topics`: topics as JSON and as lines, and a change of one."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from deploy.commands.options import text_table
from deploy.local.text_format import format_count
from ingest.topics.overview import TopicOverview
from ingest.topics.retention import AGE, SIZE, UNLIMITED, ConfigChange
from monitoring.alerts.model import shown

__all__ = ["change_lines", "describe_lines", "topic_dict", "topic_lines"]

HOUR_SECONDS: Final = 3600
HOUR_MS: Final = 3_600_000
_COLUMNS: Final = ("topic", "partitions", "records", "on disk", "keeps", "per partition", "cleanup")


def topic_dict(topic: TopicOverview, size_bytes: int | None, *, is_own: bool) -> dict[str, Any]:
    """Return a topic for programs. Unknown values are None; -1 is Kafka's value for no limit."""
    kept = topic.settings.retention if topic.settings else None
    return {
        "topic": topic.name,
        "own": is_own,
        "partitions": len(topic.partitions),
        "records": topic.records,
        "bytes": size_bytes,
        "retention_hours": _limit(kept.seconds, HOUR_SECONDS) if kept else None,
        "retention_bytes": _limit(kept.size_bytes, 1) if kept else None,
        "cleanup": kept.policy if kept else None,
        "problems": topic.problems(),
        "by_partition": [
            {
                "partition": one.partition,
                "leader": one.leader if one.leader >= 0 else None,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "oldest": one.oldest,
                "end": one.end,
            }
            for one in topic.partitions
        ],
    }


def topic_lines(topics: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return topics for people: a table, and below it one line per problem."""
    lines = text_table(_COLUMNS, map(_row, topics))
    problems = [f"{topic['topic']}: {problem}" for topic in topics for problem in topic["problems"]]
    return [*lines, *(["", *problems] if problems else [])]


def describe_lines(topic: Mapping[str, Any]) -> list[str]:
    """Return one topic for people: its line, its partitions, its own settings, its problems."""
    rows = [
        (
            str(one["partition"]), "-" if one["leader"] is None else str(one["leader"]), _ids(one["replicas"]),
            _ids(one["in_sync"]), _known(one["oldest"]), _known(one["end"]), _when(one["oldest_ms"]), _when(one["newest_ms"]),
        )
        for one in topic["by_partition"]
    ]  # fmt: skip
    names = ("partition", "leader", "replicas", "in sync", "oldest", "end", "first record", "last record")
    if topic["settings"] is None:
        own = ["not known: this user may not read them; grant it DESCRIBE_CONFIGS on the topic"]
    else:
        own = [f"{name} = {value}" for name, value in topic["settings"].items()] or [
            "none: all are the broker's defaults"
        ]
    lines = [*text_table(_COLUMNS, [_row(topic)]), "", *text_table(names, rows), "", "settings of its own:"]
    return [*lines, *(f"  {line}" for line in own), *(["", *topic["problems"]] if topic["problems"] else [])]


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def _when(at_ms: int | None) -> str:
    return "-" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def change_lines(topic: str, changes: Sequence[ConfigChange], *, dry_run: bool) -> list[str]:
    """Return the settings of a topic before and after a change, or after it would be made."""
    if not changes:
        return [f"{topic} already has these settings; nothing was changed."]
    rows = [[each.setting, _told(each.setting, each.before), _told(each.setting, each.after)] for each in changes]
    lines = text_table((topic, "before", "would be" if dry_run else "now"), rows)
    if dry_run:
        return [*lines, "Nothing was changed: this is a dry run. Kafka would accept the change."]
    less = any(each.is_less for each in changes)
    return [
        *lines,
        *(["Kafka deletes the records beyond the limit within minutes, the oldest segments first."] if less else []),
    ]


def _row(topic: Mapping[str, Any]) -> list[str]:
    size, kept = topic["bytes"], topic["retention_bytes"]
    return [
        topic["topic"],
        str(topic["partitions"]),
        "?" if topic["records"] is None else format_count(topic["records"]),
        "?" if size is None else _size(size),
        _keeps(topic["retention_hours"], f"{topic['retention_hours']} h"),
        _keeps(kept, "" if kept is None else _size(kept)),
        topic["cleanup"] or "?",
    ]


def _keeps(limit: float | None, words: str) -> str:
    if limit is None:
        return "?"
    return "no limit" if limit == UNLIMITED else words


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB" if size_bytes < 1024**2 else shown(size_bytes, "bytes")


def _limit(value: float, unit: float) -> float:
    """Return value / unit, as an integer if it is one."""
    if not isfinite(value):
        return UNLIMITED
    return int(value // unit) if value % unit == 0 else round(value / unit, 3)


def _told(setting: str, value: str) -> str:
    """Return a value as Kafka has it, with its meaning in parentheses."""
    if not value:
        return "(not set)"
    if setting in (AGE, SIZE) and int(value) < 0:
        return f"{value} (no limit)"
    if setting == AGE:
        return f"{value} ({_limit(int(value), HOUR_MS)} h)"
    return f"{value} ({_size(int(value))})" if setting in (SIZE, "segment.bytes") else value
