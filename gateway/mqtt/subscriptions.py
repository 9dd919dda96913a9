"""Topic filters of the gateway's session: subscribed if the broker's session does not have them, and remembered.

The granted filters are kept across restarts in a small file, if the settings name one.
"""

import json
import logging
import os
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import subscriptions
from gateway.mqtt.session_text import session_name
from gateway.topic_filters import is_shared, subscription_filter

__all__ = ["Subscriptions"]

logger = logging.getLogger("tidegate.gateway")


class FilterMemory:
    """Filters of one session (client id at a broker). MQTT has no way to ask the broker for them."""

    def __init__(self, path: str | None, session: str) -> None:
        self._path = None if path is None else Path(path)
        self._session = session
        self._filters: tuple[str, ...] | None = self._load()

    def filters(self) -> tuple[str, ...] | None:
        """Return the filters that were granted last; None if unknown."""
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


class Subscriptions:
    """Subscriptions of one session, across its connections.

    Attributes:
        at_most_once: filters that the broker granted at QoS 0 only.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._settings = settings
        self._filters = tuple(dict.fromkeys(subscription_filter(text) for text in settings.subscriptions))
        if shared := [text for text in self._filters if is_shared(text)]:
            logger.warning(
                "mqtt.subscriptions: %s is shared with other gateways. A device's messages may arrive through several of "
                "them and lose their order, unless the broker assigns each device to one gateway. Give each gateway its own "
                "filters instead.",
                ", ".join(shared),
            )
        self._memory = FilterMemory(settings.session_file, session_name(settings))
        self.at_most_once: list[str] = []

    @property
    def remembered(self) -> bool:
        """Return whether a session with subscriptions was left at the broker, as far as is known here."""
        return self._memory.filters() is not None

    @property
    def held(self) -> tuple[str, ...] | None:
        """Filters last granted, None if unknown."""
        return self._memory.filters()

    def recall(self, filters: tuple[str, ...]) -> None:
        """Take the filters granted to an earlier process in this session; call before the first connection."""
        self._memory.recall(filters)

    def ask(self, client: paho.Client, *, present: bool) -> bool:
        """Subscribe, unless the broker's session, if it is `present`, holds exactly these filters: then return True."""
        held = self._memory.filters() if present else ()
        if present and held == self._filters:
            return True
        gone = [text for text in held or () if text not in self._filters]
        if gone:
            client.unsubscribe(gone)
        client.subscribe(subscriptions(self._settings, self._filters))  # type: ignore[arg-type]
        return False

    def answered(self, reasons: list[ReasonCode]) -> list[str]:
        """Take the broker's answer; returns the filters that it refuses."""
        granted = list(zip(self._filters, reasons, strict=False))
        refused = [text for text, reason in granted if reason.is_failure]
        if refused:
            return refused
        self.at_most_once = [text for text, reason in granted if reason.value == 0]
        if not self.at_most_once:
            self._memory.remember(self._filters)
        return []
