"""Fields that mappings leave out, for the page of a device: those of the routes that match its topics.

Gateways count by route (gateway/left_out.py), and the topics of a device's messages give its routes. If the payload decides
between routes, all candidates count.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from deploy.settings import Settings

if TYPE_CHECKING:
    from gateway.routes import RouteTable

__all__ = ["LeftOutReader"]

KEPT_SECONDS: Final = 60.0
"""Seconds that an answer is kept; gateways write about once a minute."""
PATIENCE_SECONDS: Final = 1.0
"""Seconds that the first request waits for Kafka; the page asks again within seconds."""

logger = logging.getLogger("tidegate.monitor.left_out")


class LeftOutReader:
    """Cache of the gateways' records, read when a device is shown, at most once a minute, on its own thread."""

    def __init__(self, newest: Callable[[], Settings], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`newest` returns the settings with the current routes."""
        self._newest, self._clock = newest, clock
        self._table: RouteTable | None = None
        self._lock, self._answered = threading.Lock(), threading.Event()
        self._rows: list[dict[str, Any]] | None = None
        self._due_at, self._is_reading = -1.0, False

    def of(self, topics: Iterable[str]) -> list[dict[str, Any]] | None:
        """Return rows `{gateway, route, field, count, since, next}`, most frequent first; None before an answer from Kafka."""
        self._refresh()
        rows = self._rows
        if not rows:
            return rows
        labels = {label for topic in topics for label in self._labels(topic)}
        found = [row for row in rows if row["route"] in labels]
        return sorted(found, key=lambda row: (-row["count"], row["route"], row["field"], row["gateway"]))

    def _refresh(self) -> None:
        with self._lock:
            if not self._is_reading and self._clock() >= self._due_at:
                self._is_reading = True
                self._answered.clear()
                threading.Thread(target=self._read, name="fields left out", daemon=True).start()
        if self._rows is None:
            self._answered.wait(PATIENCE_SECONDS)

    def _read(self) -> None:
        from gateway.keep_field import add_keep_steps
        from gateway.left_out import is_left_out, read_left_out
        from gateway.routes import compile_routes
        from ingest.gateway_state import read_state

        try:
            settings = self._newest()
            found = read_left_out(read_state(settings.kafka, wanted=is_left_out))
            table = compile_routes(settings.routes, settings.gateway)
            rows = add_keep_steps(found, table, settings.gateway.vendors)
            self._table, self._rows = table, [{**row, "since": row["since_ms"] / 1000} for row in rows]
        except Exception as error:  # The page shows the device without these fields.
            self._rows = None
            logger.warning("fields left out by mappings cannot be read from Kafka: %s", error)
        finally:
            self._due_at, self._is_reading = self._clock() + KEPT_SECONDS, False
            self._answered.set()

    def _labels(self, topic: str) -> set[str]:
        match = None if self._table is None else self._table.match(topic)
        if match is None or isinstance(match, str):
            return set()
        return {one.route for one in (match, *match.candidates)}
