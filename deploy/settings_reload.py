"""The settings file of a process that runs: what is hot in it applies when the file changes, the rest at the next start."""

import logging
import os
from pathlib import Path
from typing import Final

from deploy.settings import Settings, load_settings
from gateway.reload import NewRoutes
from gateway.watch import FolderWatch, Stamp, stamp_of
from ingest.contract.errors import ConfigError

__all__ = ["SettingsFile"]

logger = logging.getLogger("tidegate.settings")

HOT: Final = frozenset({"routes", "mappings", "vendors"})
"""Sections that a running gateway takes."""


class SettingsFile:
    """One file.

    Attributes:
        settings: as the file was when it was read last and was good.
    """

    def __init__(self, file: Path, settings: Settings | None = None) -> None:
        """Read it, or take what was read of it.

        Raises:
            ConfigError: it cannot be read, or is wrong.
        """
        self._file = file
        self._watch = FolderWatch(self._look)
        self._read_at = self._look()
        self.settings = self._first = load_settings(file) if settings is None else settings
        self._watch.take(self._read_at)

    def new_routes(self) -> NewRoutes | None:
        """Routes and vendors where the file changed and stood still since the last call; None otherwise.

        Raises:
            ConfigError: the file is wrong now; what was read before stays. Once for each change.
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
            # Written while it was read: it has to stand still again.
            return None
        self._watch.take(stamps)
        before, self.settings = self.settings, new
        self._tell_cold()
        if all(getattr(before, name) == getattr(self.settings, name) for name in HOT):
            return None
        return NewRoutes(self.settings.routes, self.settings.vendors, str(self._file))

    def newest(self) -> Settings:
        """The settings as the file says now, the hot sections only; those before where it is wrong."""
        stamps = self._look()
        if stamps and stamps != self._read_at:
            self._read_at = stamps
            try:
                self.settings = self._warmed(load_settings(self._file))
            except ConfigError as error:
                logger.warning("the changed settings are not taken: %s", error)
        return self.settings

    def _warmed(self, new: Settings) -> Settings:
        hot = {name: getattr(new, name) for name in HOT}
        return self._first.model_copy(update={**hot, "gateway": self._first.gateway.with_vendors(new.vendors)})

    def _look(self) -> dict[str, Stamp]:
        """Nothing where the file is away for a moment."""
        try:
            return {self._file.name: stamp_of(os.stat(self._file))}
        except OSError:
            return {}

    def _tell_cold(self) -> None:
        names = [
            name for name in Settings.model_fields if name not in HOT and _differs(name, self._first, self.settings)
        ]
        if names:
            logger.warning(
                "%s changed in %s too: that applies at the next start",
                " and ".join(f"[{n}]" for n in names),
                self._file,
            )


def _differs(name: str, first: Settings, now: Settings) -> bool:
    return bool(getattr(first, name).model_dump() != getattr(now, name).model_dump())
