"""TOML in and out: reads a person's file with faults named, writes the file that a part is started with."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from ingest.contract.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "mask_extra", "read_toml", "to_toml", "write_private"]

MASK: Final = "**********"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A gateway that runs reads its file between two messages."""
SECRET_NAME: Final = re.compile(r"secret|password|token|key|credential|jaas", re.IGNORECASE)
"""Names of options that are passed through: nobody told us which of them are secrets."""


def read_toml(file: Path) -> dict[str, Any]:
    """The tables of a TOML file; a byte order mark and CRLF line ends are fine.

    Raises:
        ConfigError: missing, a folder, unreadable, too large, not UTF-8, or not TOML (a key given twice included).
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) <= MAX_FILE_BYTES:
            return tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
        msg = f"{file}: has more than {MAX_FILE_BYTES} bytes. Give a settings file in TOML."
    except FileNotFoundError:
        msg = f"{file}: no such file. Give an existing TOML file, or leave the flag out to run on the defaults."
    except IsADirectoryError:
        msg = f"{file}: is a folder. Give the TOML file itself."
    except OSError as error:
        msg = f"{file}: cannot be read ({error.strerror}). Check its permissions."
    except UnicodeDecodeError as error:
        msg = f"{file}: byte {error.start} is not UTF-8. Save the file as UTF-8."
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits, and of deep tables
        msg = f"{file}: not valid TOML: {error}."
        if "overwrite" in str(error).lower():
            msg = f"{file}: a key or table is given twice: {error}. Keep one of the two."
    raise ConfigError(msg)


def mask_extra(options: Mapping[str, str]) -> dict[str, str]:
    """Options that are passed through to a library, without the values of those whose name sounds like a secret."""
    return {name: MASK if SECRET_NAME.search(name) else value for name, value in options.items()}


def to_toml(model: BaseModel, *, mask_secrets: bool = False) -> str:
    """The settings as TOML; without `mask_secrets` for a private file only. None is left out: it is the default."""
    return _Writer(mask_secrets).tables(model)


class _Writer:
    def __init__(self, mask_secrets: bool) -> None:
        self._mask = mask_secrets

    def tables(self, model: BaseModel) -> str:
        tables: list[str] = []
        for section in type(model).model_fields:
            value = getattr(model, section)
            if isinstance(value, tuple):
                tables += [f"[[{section}]]\n{self._pairs(item)}" for item in value]
            elif isinstance(value, Mapping):
                tables += [f"[{section}.{_text(name)}]\n{self._pairs(item)}" for name, item in value.items()]
            else:
                tables.append(f"[{section}]\n{self._pairs(value)}")
        return "\n".join(tables)

    def _pairs(self, section: BaseModel) -> str:
        return "".join(f"{name} = {self._value(self._shown(name, value))}\n" for name, value in _given(section))

    def _shown(self, name: str, value: object) -> object:
        return mask_extra(value) if self._mask and name == "extra" and isinstance(value, Mapping) else value

    def _value(self, value: object) -> str:  # noqa: PLR0911 - one line per kind of value
        if isinstance(value, SecretStr):
            return _text(str(value) if self._mask else value.get_secret_value())
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{_text(str(key))} = {self._value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, tuple | list | set | frozenset):
            return "[" + ", ".join(self._value(item) for item in value) + "]"
        if isinstance(value, BaseModel):
            # What was not set stays so: a mapping's cases inherit it.
            given = [(name, item) for name, item in _given(value) if name in value.model_fields_set]
            return "{" + ", ".join(f"{name} = {self._value(item)}" for name, item in given) + "}"
        return _text(str(value))


def _given(section: BaseModel) -> list[tuple[str, object]]:
    pairs = ((name, getattr(section, name)) for name in type(section).model_fields)
    return [(name, value) for name, value in pairs if value is not None]


def _text(text: str) -> str:
    # JSON's escapes are TOML's, except that JSON leaves DEL as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(text)
    part.replace(file)
