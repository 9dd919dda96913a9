"""Settings files: read a person's TOML file, and write the file that a part starts with."""

import contextlib
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from gateway.mqtt.session_text import shown_client_id
from ingest.contract.errors import ConfigError

__all__ = [
    "MAX_FILE_BYTES",
    "check_absent",
    "mask_extra",
    "read_toml",
    "to_commented_toml",
    "to_toml",
    "write_new",
    "write_private",
]

MASK: Final = "**********"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A running gateway reads its file between two messages, so the file must be small."""
SECRET_NAME: Final = re.compile(r"secret|password|token|key|credential|jaas", re.IGNORECASE)
"""Names of pass-through options that are probably secrets."""
WIDEST: Final = 110


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


def to_toml(model: BaseModel, *, mask_secrets: bool = False, only_given: bool = False) -> str:
    """Return the settings as TOML; without `mask_secrets` only for a private file. None is the default, and left out.

    With `only_given`, all defaults are left out, so that the file also fits a later version with other defaults.
    """
    return _Writer(mask_secrets, only_given).tables(model)


def to_commented_toml(
    values: Mapping[str, Any],
    model: type[BaseModel],
    *,
    secrets: Mapping[str, str] | None = None,
    head: Sequence[str] = (),
) -> str:
    """Return values as a settings file for a person: each key follows its description, and no secret is in it.

    Args:
        values: plain values by section and field, as in the file; a list is an array of tables.
        model: the settings, which have the descriptions.
        secrets: `section.field` of each secret that is needed, to the environment variable that holds it.
        head: comments at the top.
    """
    lines = [line for text in head for line in _comment(text)]
    for section, field in model.model_fields.items():
        given = values.get(section)
        needed = {
            path.partition(".")[2]: name for path, name in (secrets or {}).items() if path.startswith(f"{section}.")
        }
        if given or needed:
            lines += ["", *_comment(field.description or "")]
            lines += (
                _tables(section, given) if isinstance(given, list) else _section(section, given or {}, field, needed)
            )
    return "\n".join(lines).strip("\n") + "\n"


def _tables(section: str, items: Sequence[Mapping[str, Any]]) -> list[str]:
    return "\n".join(
        f"[[{section}]]\n{_Writer(mask_secrets=False, only_given=True).plain(item)}" for item in items
    ).splitlines()


def _section(section: str, given: Mapping[str, Any], field: FieldInfo, needed: Mapping[str, str]) -> list[str]:
    lines = [f"[{section}]"]
    inner = field.annotation
    fields = inner.model_fields if isinstance(inner, type) and issubclass(inner, BaseModel) else {}
    for name in [*fields, *(name for name in given if name not in fields)]:
        if name in given or name in needed:
            lines += _comment((fields[name].description if name in fields else None) or "")
            secret = f"# {name}: in the environment variable {needed.get(name)}"
            lines.append(
                _Writer(mask_secrets=False, only_given=True).plain({name: given[name]}).rstrip("\n")
                if name in given
                else secret
            )
    return lines


def _comment(text: str) -> list[str]:
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    return [f"# {line}" for line in textwrap.wrap(shown, WIDEST, break_long_words=False, break_on_hyphens=False)]


class _Writer:
    def __init__(self, mask_secrets: bool, only_given: bool) -> None:
        self._mask, self._only_given = mask_secrets, only_given

    def tables(self, model: BaseModel) -> str:
        tables: list[str] = []
        for section in type(model).model_fields:
            value = getattr(model, section)
            if isinstance(value, tuple):
                tables += [f"[[{section}]]\n{self._pairs(item)}" for item in value]
            elif isinstance(value, Mapping):
                tables += [f"[{section}.{_text(name)}]\n{self._pairs(item)}" for name, item in value.items()]
            elif (pairs := self._pairs(value)) or not self._only_given:
                tables.append(f"[{section}]\n{pairs}")
        return "\n".join(tables)

    def plain(self, values: Mapping[str, Any]) -> str:
        """Return the lines of plain values; None is left out."""
        return "".join(f"{name} = {self._value(value)}\n" for name, value in values.items() if value is not None)

    def _pairs(self, section: BaseModel) -> str:
        wanted = section.model_fields_set if self._only_given else type(section).model_fields
        pairs = ((name, value) for name, value in _given(section) if name in wanted)
        return "".join(f"{name} = {self._value(self._shown(name, value))}\n" for name, value in pairs)

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


def check_absent(file: Path) -> None:
    """Raise ConfigError if the file exists."""
    if file.exists():
        msg = f"{file} exists and stays as it is. Name another file, or replace it with --force."
        raise ConfigError(msg)


def write_new(file: Path, text: str, *, overwrite: bool = False) -> None:
    """Write a file completely or not at all; a file that exists stays, unless `overwrite` says otherwise.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if not overwrite:
            # Takes the name if it is free, also if another process wants it at this moment.
            file.open("x").close()
        part.replace(file)
    except FileExistsError:
        check_absent(file)
        raise
    except OSError as error:
        msg = f"{file} cannot be written ({error.strerror}). Name a file in a folder that exists and is writable."
        raise ConfigError(msg) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
