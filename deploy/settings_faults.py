"""Errors of a configuration as sentences: the place, what is wrong, and the probable correction."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ingest.contract.errors import ConfigError

_BRANCH = re.compile(
    r"str|bool|int|float|[A-Z]\w*(?:Settings|Source)|(?:tuple|dict|list|lax-or-strict|function-\w+)\[.*\]"
)
"""Parts that pydantic adds to a location for each type that a field allows."""

__all__ = ["ValueOrigins", "config_error", "describe_faults"]


class ValueOrigins:
    """Origins of the values. The line in the file is found in its text."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._noted: dict[str, str] = {}

    def note(self, path: str, origin: str) -> None:
        """Note that `path` was set by a source that wins over the file."""
        self._noted[path] = origin

    def of(self, loc: Sequence[int | str]) -> str:
        """Return the origin of a value, for people."""
        path = ".".join(str(part) for part in loc)
        for noted, origin in self._noted.items():
            if path == noted or path.startswith(f"{noted}.") or noted.startswith(f"{path}."):
                return origin
        if self._file is None:
            return "settings"
        line = _line_of(self._file, loc) if loc else None
        return f"{self._file}:{line}" if line else str(self._file)


def _line_of(file: Path, loc: Sequence[int | str]) -> int | None:
    """Return the line of a table or key in plainly written TOML; None if the file is written in another way."""
    names = [part for part in loc if isinstance(part, str)]
    wanted_table = next((part for part in loc[1:2] if isinstance(part, int)), None)
    table, rest = -1, names
    for number, line in enumerate(file.read_text("utf-8-sig").splitlines(), start=1):
        header = re.match(r"\s*(\[{1,2})([^\[\]]+)\]", line)
        if header:
            parts = _key_parts(header[2])
            table += header[1] == "[[" and parts == names[:1]
            inside = parts == names[: len(parts)] and wanted_table in (None, table)
            rest = names[len(parts) :] if inside else []
            if inside and not rest:
                return number
        elif rest and "=" in line:
            parts = _key_parts(line.partition("=")[0])
            if parts and parts == rest[: len(parts)]:
                return number
    return None


def _key_parts(text: str) -> list[str]:
    """Return the names of a dotted key."""
    return [part.strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+", text)]


def describe_faults(error: ValidationError, model: type[BaseModel], origins: ValueOrigins) -> list[str]:
    """Return one sentence per error. It never repeats a value, which may be a secret."""
    faults = _without_branches(error.errors(include_url=False, include_input=False))
    return [_sentence(fault, model, origins) for fault in faults]


def _without_branches(faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return one error per place: pydantic reports a field that allows a table or text once for each of them."""
    places = [tuple(part for part in fault["loc"] if not _is_branch(part)) for fault in faults]
    kept: dict[tuple[int | str, ...], ErrorDetails] = {}
    for fault, place in zip(faults, places, strict=True):
        inner = any(other[: len(place)] == place and len(other) > len(place) for other in places)
        if place not in kept and not (inner and fault["loc"] != place):
            kept[place] = {**fault, "loc": place}
    return list(kept.values())


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and _BRANCH.fullmatch(part) is not None


def _sentence(fault: ErrorDetails, model: type[BaseModel], origins: ValueOrigins) -> str:
    loc = fault["loc"]
    path = ".".join(str(part) for part in loc)
    if fault["type"] == "extra_forbidden":
        return f"{origins.of(loc)}: unknown key {path}.{_suggestion(loc, model)}"
    if loc[-1:] == ("[key]",):
        return f"{origins.of(loc[:-1])}: unknown key {path.removesuffix('.[key]')}.{_among(str(loc[-2]), fault)}"
    if fault["type"] == "missing":
        return f"{origins.of(loc[:-1] or loc)}: {path} is missing."
    # Do not repeat the value: it may be a secret.
    what = _WANTED.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        what = f"wanted {fault['ctx']['expected']}"
    # A rule about the whole file has no path.
    return f"{origins.of(loc)}: {path}{': ' if path else ''}{what[:1].lower()}{what[1:]}."


_WANTED: Final = {
    "tuple_type": "wanted a list",
    "list_type": "wanted a list",
    "dict_type": "wanted a table",
    "string_type": "wanted text in quotes",
    "bool_type": "wanted true or false",
    "bool_parsing": "wanted true or false",
    "int_type": "wanted a whole number",
    "int_parsing": "wanted a whole number",
    "float_type": "wanted a number",
    "float_parsing": "wanted a number",
}
"""Type of a pydantic error to what was wanted, in the words of TOML."""


def _among(key: str, fault: ErrorDetails) -> str:
    """Return the known keys of a table with a closed set of keys, and the nearest one."""
    expected = str(fault.get("ctx", {}).get("expected", ""))
    known = re.findall(r"'([^']+)'", expected)
    close = difflib.get_close_matches(key, known, n=1)
    return (f" Did you mean {close[0]}?" if close else "") + (f" Known here: {', '.join(known)}." if known else "")


def _suggestion(loc: Sequence[int | str], model: type[BaseModel]) -> str:
    parent = _model_at(loc[:-1], model)
    known = list(parent.model_fields) if parent else []
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    if close:
        return f" Did you mean {'.'.join([*map(str, loc[:-1]), close[0]])}?"
    elsewhere = [name for name, inner in _sections(model) if str(loc[-1]) in inner.model_fields]
    if elsewhere:
        return f" The key {loc[-1]} belongs to [{elsewhere[0]}]."
    return f" Known here: {', '.join(known)}." if known else ""


def _model_at(loc: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    named = False
    for part in loc:
        if isinstance(part, int):
            continue
        if named:
            # The name in a table of tables, such as [mappings.NAME].
            named = False
            continue
        field = current.model_fields.get(part) if current else None
        current = _model_of(field.annotation) if field else None
        named = field is not None and get_origin(field.annotation) is dict
    return current


def _sections(model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    found = ((name, _model_of(field.annotation)) for name, field in model.model_fields.items())
    return [(name, inner) for name, inner in found if inner]


def _model_of(annotation: object) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def config_error(faults: Sequence[str]) -> ConfigError:
    """Return all errors as one."""
    if len(faults) == 1:
        return ConfigError(faults[0])
    return ConfigError(f"{len(faults)} settings are wrong:\n" + "\n".join(f"  {fault}" for fault in faults))
