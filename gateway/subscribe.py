"""The session's topic filters: asked for where the broker does not hold them, and what it granted."""

import logging

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from gateway.connection import subscriptions
from gateway.session_memory import SessionMemory
from gateway.settings import MqttSettings
from gateway.topics import is_shared, subscription_filter

__all__ = ["Subscriptions"]

logger = logging.getLogger("tidegate.gateway")


class Subscriptions:
    """What is subscribed in one session, over its connections.

    Attributes:
        at_most_once: filters that the broker granted at QoS 0 only.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._settings = settings
        self._filters = tuple(dict.fromkeys(subscription_filter(text) for text in settings.subscriptions))
        if shared := [text for text in self._filters if is_shared(text)]:
            logger.warning(
                "mqtt.subscriptions: %s is shared with other gateways, so a device's messages may come through several, "
                "and their order is then lost, unless the broker keeps a device with one of them: better give each "
                "gateway filters of its own",
                ", ".join(shared),
            )
        self._memory = SessionMemory(settings.session_file, f"{settings.client_id}@{settings.host}:{settings.port}")
        self.at_most_once: list[str] = []

    @property
    def remembered(self) -> bool:
        """Whether a session with subscriptions was left at the broker, as far as is known here."""
        return self._memory.filters() is not None

    @property
    def held(self) -> tuple[str, ...] | None:
        """The filters last granted, None where nothing is known."""
        return self._memory.filters()

    def recall(self, filters: tuple[str, ...]) -> None:
        """Take what an earlier process was granted in this session; before the first connection."""
        self._memory.recall(filters)

    def ask(self, client: paho.Client, *, present: bool) -> bool:
        """Subscribe, unless the broker's session, if it is `present`, holds just these filters: True then."""
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
