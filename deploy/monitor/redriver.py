"""Redrive of selected dead letters, started by a person on the page; one redrive at a time."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from deploy.monitor.dead_letters import ID, unknown_letters
from deploy.settings import Settings
from monitoring.page.page_api import PageError

__all__ = ["Redriver"]

MESSAGES_PER_SECOND: Final = 200.0


class Redriver:
    """Runner of redrives that works like `tidegate dlq redrive`. `stop` ends a running redrive between two steps."""

    def __init__(self, newest: Callable[[], Settings], stop: threading.Event) -> None:
        """`newest` returns the settings with the current routes."""
        self._newest, self._stop = newest, stop
        self._busy = threading.Lock()

    def redrive(self, ids: Sequence[str], dry_run: bool) -> dict[str, Any]:
        """Redrive these dead letters; return the report and the `unknown` ids, which were mistyped or deleted by retention.

        Raises:
            PageError: another redrive is running, or an id is invalid.
            TidegateError: the redrive is not possible now.
        """
        from deploy.dlq.redrive_run import run_redrive

        if wrong := [each for each in ids if not ID.fullmatch(each)]:
            raise PageError(400, f"{wrong[0][:100]!r} is not an id of a dead letter.")
        if not self._busy.acquire(blocking=False):
            raise PageError(503, "Another redrive is running. Try again when it has ended.")
        try:
            settings = self._newest()
            unknown = unknown_letters(settings.lake.root, ids)
            listed = ", ".join(f"'{each}'" for each in ids)
            report = run_redrive(
                settings,
                where=f"id IN ({listed})",
                limit=None,
                again=False,
                rate=MESSAGES_PER_SECOND,
                dry_run=dry_run,
                stop=self._stop,
            )
        finally:
            self._busy.release()
        return {**report.to_dict(), "unknown": unknown}
