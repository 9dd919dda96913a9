"""One profile file: bytes to a `Profile`, or sentences that say where, what was wanted, and what was probably meant."""

import difflib
import tomllib
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.profiles.model import Failure, MetricRules, Profile
from gateway.profiles.units import DIMENSIONS

__all__ = ["MAX_FILE_BYTES", "BadProfile", "parse_profile"]

MAX_FILE_BYTES: Final = 1024 * 1024


class BadProfile(ValueError):
    """A file that is no profile; the text is one sentence per fault, without the file's name."""


def parse_profile(content: bytes) -> Profile:
    """The profile of a file; a byte order mark and CRLF line ends are fine.

    Raises:
        BadProfile: not UTF-8, not TOML, an unknown key, a value that is none; every fault at once.
    """
    if len(content) > MAX_FILE_BYTES:
        message = f"the file has {len(content)} bytes; wanted at most {MAX_FILE_BYTES}"
        raise BadProfile(message)
    try:
        values = tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not UTF-8; save the file as UTF-8"
        raise BadProfile(message) from error
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        message = f"not valid TOML: {error}"
        raise BadProfile(message) from error
    try:
        return Profile.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        raise BadProfile("; ".join(_sentence(fault, values) for fault in faults)) from error


def _sentence(fault: ErrorDetails, values: dict[str, Any]) -> str:
    where = [str(part) for part in fault["loc"] if part != "[key]"]
    path = ".".join(where)
    if fault["type"] == "extra_forbidden":
        return f"unknown key {path}{_near(where[-1], _known(fault['loc']))}"
    if fault["type"] == "missing":
        return f"{path} is missing"
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        allowed = get_args(Failure) if "[key]" in fault["loc"] else ()
        text = f"{text[:1].lower()}{text[1:]}{_near(str(fault['input']), allowed)}"
    elif "not a listed unit" in text:
        written = text.split("'")[1]
        text += _near(written, [unit for units in DIMENSIONS.values() for unit in units])
    elif fault["type"] != "value_error":
        text = f"{text[:1].lower()}{text[1:]}, not {str(fault['input'])[:60]!r}"
    return f"{path}: {text}" if path else text


def _known(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = MetricRules if len(loc) > 2 and loc[0] == "metrics" else Profile
    return list(model.model_fields)


def _near(text: str, known: Any) -> str:
    found = [one for one in known if one.lower() == text.lower()]
    found = found or difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    if found:
        return f"; did you mean {found[0]}?"
    return f" (known: {', '.join(known)})" if len(known) <= 24 and known else ""
