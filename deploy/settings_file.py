"""Settings files: read a person's TOML file, and write the file that a part starts with."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from gateway.mqtt.session_text import shown_client_id
from ingest.contract.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "mask_extra", "read_toml", "to_toml", "write_private"]

MASK: Final = "**********"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A running gateway reads its file between two messages, so the file must be small."""
SECRET_NAME: Final = re.compile(r"secret|password|token|key|credential|jaas", re.IGNORECASE)
"""Names of pass-through options that are probably secrets."""


def read_toml(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; a byte order mark and CRLF line ends are allowed.

    Raises:
        ConfigError: the file is missing, a folder, unreadable, too large, not UTF-8, or not TOML (a repeated key included).
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) <= MAX_FILE_BYTES:
            return tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
        msg = f"{file}: the file has more than {MAX_FILE_BYTES} bytes. Name a settings file in TOML."
    except FileNotFoundError:
        msg = f"{file}: no such file. Name an existing TOML file, or leave the option out to use the defaults."
    except IsADirectoryError:
        msg = f"{file}: this is a folder. Name the TOML file itself."
    except OSError as error:
        msg = f"{file}: the file cannot be read ({error.strerror}). Check its permissions."
    except UnicodeDecodeError as error:
        msg = f"{file}: byte {error.start} is not UTF-8. Save the file as UTF-8."
    except (ValueError, RecursionError) as error:  # also for a number with thousands of digits, and for deep tables
        msg = f"{file}: not valid TOML: {error}."
        if "overwrite" in str(error).lower():
            msg = f"{file}: a key or table is given twice: {error}. Keep one of them."
    raise ConfigError(msg)


def mask_extra(options: Mapping[str, str]) -> dict[str, str]:
    """Return pass-through options with a mask for each value whose name sounds like a secret."""
    return {name: MASK if SECRET_NAME.search(name) else value for name, value in options.items()}


def to_toml(model: BaseModel, *, mask_secrets: bool = False) -> str:
    """Return the settings as TOML; without `mask_secrets` only for a private file. None is the default, and left out."""
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
        if self._mask and name == "client_id":
            return shown_client_id(str(value))
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
            # Leave out what was not set: a mapping's cases inherit it.
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
    """Write a file that only its owner may read; it is written completely or not at all."""
    part = file.with_name(f".{file.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(text)
    part.replace(file)
