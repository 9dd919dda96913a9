"""Settings file of a running process: routes, mappings and vendors apply when the file changes, the rest at the next start."""

import logging
import os
from pathlib import Path
from typing import Final

from deploy.settings import Settings, load_settings
from gateway.file_watch import FileStamp, FolderWatch, file_stamp
from gateway.route_reload import RouteUpdate
from ingest.contract.errors import ConfigError

__all__ = ["SettingsFile"]

logger = logging.getLogger("tidegate.settings")

HOT: Final = frozenset({"routes", "mappings", "vendors"})
"""Sections that a running gateway applies without a restart."""


class SettingsFile:
    """One settings file.

    Attributes:
        settings: the last good settings of the file.
    """

    def __init__(self, file: Path, settings: Settings | None = None) -> None:
        """Read the file, or use `settings` that were read from it.

        Raises:
            ConfigError: the file cannot be read, or is wrong.
        """
        self._file = file
        self._watch = FolderWatch(self._look)
        self._read_at = self._look()
        self.settings = self._first = load_settings(file) if settings is None else settings
        self._watch.take(self._read_at)

    def new_routes(self) -> RouteUpdate | None:
        """Return routes and vendors if the file has changed and is stable since the last call, else None.

        Raises:
            ConfigError: the file is wrong now; the previous settings stay. Raised once for each change.
        """
        stamps = self._watch.changed()
        if not stamps:
            return None
        try:
            new = load_settings(self._file)
        except ConfigError:
            if self._look() != stamps:
                return None
            self._watch.take(stamps)
            raise
        if self._look() != stamps:
            # The file changed while it was read: wait until it is stable again.
            return None
        self._watch.take(stamps)
        before, self.settings = self.settings, new
        self._report_cold()
        if all(getattr(before, name) == getattr(self.settings, name) for name in HOT):
            return None
        return RouteUpdate(self.settings.routes, self.settings.vendors, str(self._file))

    def newest(self) -> Settings:
        """Return the settings with the file's current hot sections; the previous settings if the file is wrong."""
        stamps = self._look()
        if stamps and stamps != self._read_at:
            self._read_at = stamps
            try:
                self.settings = self._warmed(load_settings(self._file))
            except ConfigError as error:
                logger.warning("Rejected the changed settings. The previous settings stay in use: %s", error)
        return self.settings

    def _warmed(self, new: Settings) -> Settings:
        hot = {name: getattr(new, name) for name in HOT}
        return self._first.model_copy(update={**hot, "gateway": self._first.gateway.with_vendors(new.vendors)})

    def _look(self) -> dict[str, FileStamp]:
        """Return the file's stamp; empty while the file does not exist."""
        try:
            return {self._file.name: file_stamp(os.stat(self._file))}
        except OSError:
            return {}

    def _report_cold(self) -> None:
        names = [
            name for name in Settings.model_fields if name not in HOT and _differs(name, self._first, self.settings)
        ]
        if names:
            logger.warning(
                "%s changed in %s too. This change applies at the next start.",
                " and ".join(f"[{n}]" for n in names),
                self._file,
            )


def _differs(name: str, first: Settings, now: Settings) -> bool:
    return bool(getattr(first, name).model_dump() != getattr(now, name).model_dump())
