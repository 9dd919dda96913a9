"""Insertion of a drafted route into a person's settings file; all other bytes of the file stay the same."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.settings import load_settings
from gateway.gateway_settings import RouteSettings
from gateway.topic_filters import compile_filter
from ingest.contract.errors import ConfigError

__all__ = ["add_routes"]

_ROUTE_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*routes[ \t]*\]\]", re.MULTILINE)


def add_routes(file: Path, drafts: Sequence[tuple[str, RouteSettings, str]]) -> None:
    """Write drafts into a settings file, which is made where it is missing; whole or not at all.

    A draft comes before the first route of the file that takes the same topic, else at the end.

    Args:
        file: the settings, TOML.
        drafts: TOML, the same as settings, and a topic that it must take.

    Raises:
        ConfigError: the file is wrong before or after, or has such a route already; it stays as it was.
    """
    text = _read(file)
    for toml, route, topic in drafts:
        present = load_settings(file).routes if file.exists() else ()
        if route in present:
            message = f"{file} already has this route ({route.filter}); nothing was written."
            raise ConfigError(message)
        text = _insert(text, toml, _place(text, topic, route))
    _replace(file, text, [route for _toml, route, _topic in drafts])


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read ({error}). Give a TOML file in UTF-8; nothing was written."
        raise ConfigError(message) from error


def _place(text: str, topic: str, route: RouteSettings) -> int:
    """Return the place of the draft: before the first table of a route that would take the topic."""
    import tomllib

    headers = [found.start() for found in _ROUTE_HEADER.finditer(text)]
    routes = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n")).get("routes", []) if headers else []
    if len(headers) != len(routes):
        return len(text)
    for start, given in zip(headers, routes, strict=True):
        if compile_filter(given["filter"]).match(topic) is not None and given["filter"] != route.filter:
            return start
    return len(text)


def _insert(text: str, toml: str, at: int) -> str:
    before, after = text[:at], text[at:]
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    return f"{before}{gap if not after else ''}{toml}{chr(10) if after else ''}{after}"


def _replace(file: Path, text: str, wanted: list[RouteSettings]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        routes = load_settings(part).routes
        if any(route not in routes for route in wanted):
            message = f"{file}: the file would not hold the draft unchanged; add the route by hand."
            raise ConfigError(message)
        part.chmod(file.stat().st_mode & 0o7777 if file.exists() else 0o600)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
