"""Reports stored messages to devices: watches the landing's progress in Kafka, on a thread next to the gateway."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from deploy.settings import Settings
from gateway.devtools.publisher import Publisher
from gateway.replies.receipts import stored_receipts
from ingest.contract.errors import TidegateError
from ingest.contract.topics import LAND_GROUP, READINGS
from ingest.groups.offset_mirror import group_lag
from ingest.read.offset_range import read_range
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["StoredReceiptNotifier", "notify_stored"]

logger = logging.getLogger("tidegate.gateway.stored")

LOOK_SECONDS: Final = 2.0
_WINDOW: Final = 100


class StoredReceiptNotifier:
    """Starts at the landing's offsets at its first look; earlier records are not reported. A standby does not look."""

    def __init__(
        self,
        settings: Settings,
        metrics: GatewayMetrics,
        stop: threading.Event,
        *,
        is_active: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings, self._metrics, self._stop, self._is_active = settings, metrics, stop, is_active
        self._told: Mapping[int, int] | None = None
        self._publisher: Publisher | None = None

    def run(self) -> None:
        """Look every two seconds until stopped; a fault is logged and the same stretch tried again."""
        while not self._stop.wait(LOOK_SECONDS):
            try:
                if self._is_active():
                    self.look()
                else:
                    # The process that works reports these.
                    self._told = None
            except TidegateError as error:
                logger.warning("stored receipts are delayed: %s", error)
            except Exception:
                logger.exception("stored receipts are delayed")
        if self._publisher is not None:
            self._publisher.close()

    def look(self) -> None:
        """Tell what was stored since the last look."""
        kafka = self._settings.kafka
        landed = {p: done for p, (done, _) in group_lag(kafka, LAND_GROUP, (READINGS,)).get(READINGS, {}).items()}
        if self._told is None:
            self._told = landed
        # A partition that is new to the group begins at 0; one whose topic was recreated goes back, and is followed.
        starts = {p: min(self._told.get(p, 0), end) for p, end in landed.items()}
        publisher = self._open() if any(starts[p] < end for p, end in landed.items()) else None
        if publisher is not None:
            left = int(self._settings.receipts.per_second * LOOK_SECONDS)
            for batch in read_range(kafka, READINGS, starts, landed):
                replies = stored_receipts(sorted(batch, key=lambda r: r.offset), self._settings.gateway.gateway_id)
                for reply in replies[:left]:
                    publisher.publish(reply.topic, reply.payload, qos=0)
                sent = min(left, len(replies))
                left -= sent
                self._metrics.stored_receipts_sent.inc(sent)
                self._metrics.receipts_held_back.labels("total").inc(len(replies) - sent)
        self._told = landed

    def _open(self) -> Publisher:
        if self._publisher is None:
            mqtt = self._settings.mqtt
            publisher = Publisher(mqtt, client_id=f"{mqtt.client_id}-stored", window=_WINDOW, stop=self._stop)
            publisher.connect()
            self._publisher = publisher
        return self._publisher


@contextmanager
def notify_stored(
    settings: Settings, metrics: GatewayMetrics, stop: threading.Event, *, is_active: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Tell while the block runs, where `receipts.positive` asks for it and while the gateway `is_active`."""
    if not (settings.receipts.enabled and settings.receipts.positive):
        yield
        return
    thread = threading.Thread(
        target=StoredReceiptNotifier(settings, metrics, stop, is_active=is_active).run,
        name="stored receipts",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5.0)
