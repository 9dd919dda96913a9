"""Answers of the page from the tables and Kafka, and the redrive that a person starts there.

An error becomes one sentence and an HTTP status. One redrive runs at a time.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from deploy.monitor.dead_letters import ID, unknown_letters
from deploy.monitor.left_out_reader import LeftOutReader
from deploy.monitor.silent_devices import HealthyFlowSpans
from deploy.settings import Settings
from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.render import json_value
from monitoring.page.page_api import PageApi, PageError, TopicRequest

__all__ = ["make_page_api"]

MESSAGES_PER_SECOND: Final = 200.0


class Redriver:
    """Runner of redrives that works like `tidegate dlq redrive`. `stop` ends a running redrive between two steps."""

    def __init__(self, newest: Callable[[], Settings], stop: threading.Event) -> None:
        """Prepare redrives; `newest` returns the settings with the current routes."""
        self._newest, self._stop = newest, stop
        self._busy = threading.Lock()

    def redrive(self, ids: Sequence[str], dry_run: bool) -> dict[str, Any]:
        """Redrive these dead letters; return the report and the `unknown` ids, which were mistyped or deleted by retention.

        Raises:
            PageError: another redrive is running, or an id is invalid.
            TidegateError: the redrive is not possible now.
        """
        from deploy.dlq.redrive import run_redrive

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


def make_page_api(
    settings: Settings, stop: threading.Event, flow: HealthyFlowSpans, *, newest: Callable[[], Settings] | None = None
) -> PageApi:
    """Return the page's answers; heavy libraries are imported at the first request.

    Args:
        settings: the settings of the whole pipeline.
        stop: ends a redrive between two steps.
        flow: the spans in which data reached the tables.
        newest: returns the settings with the current routes; without it, `settings` are used.
    """
    newest = newest or (lambda: settings)
    root, redriver, left_out = settings.lake.root, Redriver(newest, stop), LeftOutReader(newest)

    def device(name: str) -> dict[str, Any]:
        from deploy.monitor.device_page import show_device

        return _told(lambda: show_device(root, name, flow, left_out))

    def devices(search: str, limit: int) -> dict[str, Any]:
        from deploy.monitor.device_page import find_devices

        return _told(lambda: find_devices(root, search, limit))

    def dead_letters(reason: str | None, name: str | None, limit: int, before: str | None = None) -> dict[str, Any]:
        from deploy.monitor.dead_letters import ID, list_dead_letters

        if before is not None and not ID.fullmatch(before):
            raise PageError(400, f"{before[:100]!r} is not an id of a dead letter.")
        return _told(lambda: list_dead_letters(root, reason, name, limit, before))

    def dead_letter(letter: str) -> dict[str, Any]:
        from deploy.monitor.dead_letters import ID, show_dead_letter

        if not ID.fullmatch(letter):
            raise PageError(400, f"{letter[:100]!r} is not an id of a dead letter.")
        return _told(lambda: show_dead_letter(root, letter, newest()), unavailable=404)

    def redrive(ids: Sequence[str], dry_run: bool) -> dict[str, Any]:
        return _told(lambda: redriver.redrive(ids, dry_run))

    def topics() -> dict[str, Any]:
        from deploy.monitor.topic_pages import list_topics

        return _told(lambda: list_topics(settings.kafka))

    def topic(wanted: TopicRequest) -> dict[str, Any]:
        from deploy.monitor.topic_pages import show_topic

        return _told(lambda: show_topic(settings.kafka, wanted), unavailable=404)

    return PageApi(
        device=device,
        devices=devices,
        dead_letters=dead_letters,
        dead_letter=dead_letter,
        redrive=redrive,
        topics=topics,
        topic=topic,
    )


def _told(ask: Callable[[], dict[str, Any]], *, unavailable: int = 503) -> dict[str, Any]:
    """Return the answer as JSON-ready data; NaN and infinity become null.

    Raises:
        PageError: the answer failed.
    """
    try:
        found: dict[str, Any] = json_value(ask())
    except UnavailableError as error:
        raise PageError(unavailable, str(error)) from error
    except TidegateError as error:
        raise PageError(503, str(error)) from error
    return found
