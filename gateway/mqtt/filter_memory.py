"""Topic filters of the broker's session, kept across restarts in a small file if one is set."""

import json
import logging
import os
from pathlib import Path

__all__ = ["FilterMemory"]

logger = logging.getLogger("tidegate.gateway")


class FilterMemory:
    """Filters of one session (client id at a broker). MQTT has no way to ask the broker for them."""

    def __init__(self, path: str | None, session: str) -> None:
        self._path = None if path is None else Path(path)
        self._session = session
        self._filters: tuple[str, ...] | None = self._load()

    def filters(self) -> tuple[str, ...] | None:
        """Filters last granted, None if unknown."""
        return self._filters

    def recall(self, filters: tuple[str, ...]) -> None:
        """Take what another source knows of this session, unless the file knows more."""
        if self._filters is None:
            self._filters = filters

    def remember(self, filters: tuple[str, ...]) -> None:
        """Keep the filters. A file that cannot be written costs only a SUBSCRIBE at the next start."""
        if filters == self._filters:
            return
        self._filters = filters
        if self._path is None:
            return
        beside = self._path.with_name(self._path.name + ".new")
        try:
            beside.write_text(json.dumps({"session": self._session, "filters": filters}), encoding="utf-8")
            os.replace(beside, self._path)
        except OSError as error:
            logger.warning("Cannot write %s: %s. The next start subscribes again.", self._path, error)

    def _load(self) -> tuple[str, ...] | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            return tuple(str(text) for text in kept["filters"]) if kept["session"] == self._session else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("Cannot read %s: %s. Subscribing again.", self._path, error)
            return None
