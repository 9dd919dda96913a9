"""A stream's file: a header in SQL comments, then one SELECT. Read strictly; each fault is a sentence with its line.

    -- Events of one country.
    -- sink: topic, table
    -- key: device
    -- backfill: earliest
    SELECT device, text FROM readings WHERE tags['country'] = 'in'

A comment line of the form `-- word: …` is a setting; other comment lines are for people.
"""

import difflib
import hashlib
import re
from dataclasses import dataclass
from typing import Final, Literal

from ingest.contract.errors import ConfigError

__all__ = ["StreamDefinition", "WatermarkClause", "parse_definition"]

Late = Literal["drop", "correct"]
Backfill = Literal["earliest", "latest", "delta"]

NAME: Final = re.compile("[a-z][a-z0-9_]{0,62}")
_TAKEN: Final = ("readings", "dead_letters", "duplicates", "land", "status", "sys", "counter_deltas")
_VIEWS: Final = "readings_wide_"
"""Views of this prefix, one per profile, and `counter_deltas` are those of `tidegate sql`."""
_KEYS: Final = ("sink", "key", "watermark", "late", "backfill", "trigger", "partitions")
_SETTING: Final = re.compile(r"\s*--\s*([A-Za-z_]+)\s*:\s*(.*?)\s*")
_SPAN: Final = re.compile(r"(\d{1,6})\s+(millisecond|second|minute|hour|day)s?")
_SECONDS: Final = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


@dataclass(frozen=True, slots=True)
class WatermarkClause:
    """Largest delay of rows in a stateful stream; `column` is a column of its sources."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """Content of a stream file. `body` is the SELECT; `trigger_seconds` is None for Spark's real-time mode."""

    name: str
    text: str
    body: str
    sinks: tuple[str, ...]
    key: str | None
    watermark: WatermarkClause | None
    late: Late
    backfill: Backfill
    trigger_seconds: float | None
    partitions: int | None

    @property
    def sha256(self) -> str:
        """Hash of the file's text, which identifies the definition."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def parse_definition(name: str, text: str, *, file: str | None = None) -> StreamDefinition:
    """The definition in a file.

    Args:
        name: the file's stem.
        text: its content.
        file: how to name it to people.

    Raises:
        ConfigError: names the file, the line, its content and what is wanted.
    """
    where = file or f"{name}.sql"
    _check_name(name, where)
    settings, body = _split(text, where)
    sinks = _sinks(settings, where)
    definition = StreamDefinition(
        name=name,
        text=text,
        body=body,
        sinks=sinks,
        key=_column(settings, "key", where),
        watermark=_watermark(settings, where),
        late=_choice(settings, "late", ("drop", "correct"), "drop", where),  # type: ignore[arg-type]
        backfill=_choice(settings, "backfill", ("earliest", "latest", "delta"), "latest", where),  # type: ignore[arg-type]
        trigger_seconds=_trigger(settings, where),
        partitions=_partitions(settings, where),
    )
    if "topic" in sinks and definition.key is None:
        line = settings["sink"][0]
        raise _fault(where, line, "a topic needs a key", "a line `-- key: device` (a column of the SELECT)")
    if definition.backfill == "delta" and "table" not in sinks:
        line = settings["backfill"][0]
        raise _fault(
            where, line, "backfill=delta needs a table, which records its end", "`table` among the sinks, or earliest"
        )
    if definition.trigger_seconds is None and sinks != ("topic",):
        line = settings["trigger"][0]
        raise _fault(where, line, "`realtime` writes to topics only", "`-- sink: topic`, or `-- trigger: 1 second`")
    return definition


def _check_name(name: str, where: str) -> None:
    taken = name in _TAKEN or name.startswith(_VIEWS) or name.endswith("__shadow")
    if not NAME.fullmatch(name) or taken:
        wanted = "lower-case letters, digits and _, a letter first, and not a reserved name"
        msg = f"{where}: {name!r} can't be the name of a stream; wanted {wanted} ({', '.join(_TAKEN)}, {_VIEWS}…, …__shadow)."
        raise ConfigError(msg)


def _split(text: str, where: str) -> tuple[dict[str, tuple[int, str]], str]:
    """Settings (key -> line, value) and the statement without its last semicolon."""
    settings: dict[str, tuple[int, str]] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("--"):
            body = "\n".join(lines[number - 1 :]).strip().rstrip(";").strip()
            _check_late_settings(lines, number, where)
            return settings, body
        found = _SETTING.fullmatch(line)
        if found is None:
            continue
        key, value = found[1], found[2]
        if key not in _KEYS:
            close = difflib.get_close_matches(key.lower(), _KEYS, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise _fault(where, number, f"unknown setting {key!r}{hint}", f"one of {', '.join(_KEYS)}")
        if key in settings:
            raise _fault(where, number, f"{key} is already in line {settings[key][0]}", "each setting once")
        if not value:
            raise _fault(where, number, f"{key} has no value", f"a line `-- {key}: …`")
        settings[key] = number, value
    raise _fault(where, max(len(lines), 1), "there is no statement", "one SELECT after the header")


def _check_late_settings(lines: list[str], body_at: int, where: str) -> None:
    for number, line in enumerate(lines[body_at:], body_at + 1):
        found = _SETTING.fullmatch(line)
        if found is not None and found[1] in _KEYS:
            raise _fault(where, number, f"the setting {found[1]} comes after the SELECT", "settings before it")


def _sinks(settings: dict[str, tuple[int, str]], where: str) -> tuple[str, ...]:
    if "sink" not in settings:
        raise _fault(
            where, 1, "the header has no sink", "a line `-- sink: topic`, `-- sink: table` or `-- sink: topic, table`"
        )
    line, value = settings["sink"]
    named = [word.strip() for word in value.split(",")]
    if len(set(named)) != len(named) or set(named) - {"topic", "table"}:
        raise _fault(where, line, f"sink is {value!r}", "topic, table, or `topic, table`")
    return tuple(sorted(named, reverse=True))


def _column(settings: dict[str, tuple[int, str]], key: str, where: str) -> str | None:
    if key not in settings:
        return None
    line, value = settings[key]
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", value):
        raise _fault(where, line, f"{key} is {value!r}", "one column of the SELECT")
    return value


def _watermark(settings: dict[str, tuple[int, str]], where: str) -> WatermarkClause | None:
    if "watermark" not in settings:
        return None
    line, value = settings["watermark"]
    column, _, delay = value.partition(" ")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column) or not _SPAN.fullmatch(delay.strip()):
        raise _fault(
            where,
            line,
            f"watermark is {value!r}",
            "a column and how late rows may come, such as `event_time 2 minutes`",
        )
    return WatermarkClause(column, delay.strip())


def _choice(settings: dict[str, tuple[int, str]], key: str, allowed: tuple[str, ...], default: str, where: str) -> str:
    if key not in settings:
        return default
    line, value = settings[key]
    if value not in allowed:
        raise _fault(where, line, f"{key} is {value!r}", f"one of {', '.join(allowed)}")
    return value


def _trigger(settings: dict[str, tuple[int, str]], where: str) -> float | None:
    if "trigger" not in settings:
        return 1.0
    line, value = settings["trigger"]
    if value == "realtime":
        return None
    span = _SPAN.fullmatch(value)
    if span is None or int(span[1]) == 0:
        raise _fault(where, line, f"trigger is {value!r}", "how often, such as `1 second`, or realtime")
    return int(span[1]) * _SECONDS[span[2]]


def _partitions(settings: dict[str, tuple[int, str]], where: str) -> int | None:
    if "partitions" not in settings:
        return None
    line, value = settings["partitions"]
    if not re.fullmatch("[1-9][0-9]{0,2}", value):
        raise _fault(where, line, f"partitions is {value!r}", "a whole number from 1 to 999")
    return int(value)


def _fault(where: str, line: int, what: str, wanted: str) -> ConfigError:
    return ConfigError(f"{where}, line {line}: {what}; wanted {wanted}.")
