"""Receipts on `tidegate/receipts/<device>`: of rejections by the gateway, and of records that Spark has stored.

Rejections, limited per device and in total:

    {"reason": "wrong_type", "path": "$.values.temp", "got": "…", "wanted": "…", "profile": null, "message_id": "bs:1:7",
     "topic": "tidegate/v1/attic/readings", "received_at": "2026-11-28T06:01:15.131Z", "partial": false, "count": 1}

`count` is how many parts of the message were rejected; the receipt names the first. `held_back`, if present, is how many
receipts of this device before this one were not sent. A device that counts again under the same boot gets
`{"warning": "sequence_restarted", "got": "…", "wanted": "…", "received_at": "…"}`.

A message with an MQTT 5 response topic gets the receipt there too, with its correlation data. A device must not make us
publish where others take commands: a response topic must be under `tidegate/receipts/`, or match
`receipts.response_topics` and not be ingested by a route.

Stored records (`stored_receipts`):

    {"stored": 3, "first": "bs:1:7", "last": "bs:1:9", "message_ids": ["bs:1:7", "bs:1:8", "bs:1:9"],
     "partition": 0, "offset": 4711, "received_at": "2026-11-28T06:01:15.131Z"}

`stored` counts messages of the device up to this offset since the receipt before; first and last (with `message_ids`
between them, at most 20) are identities, null if the device gives none. Stored means: in the table, or dropped because
the same identity is. A lost receipt is not sent again: a device that must be certain asks the table.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from gateway.decoders.shape import Reply
from gateway.delivery.sequence import SequenceRestart
from gateway.gateway_settings import GatewaySettings, ReceiptSettings, RouteSettings
from gateway.replies.rejection import ReceiptBuilder, Rejection
from gateway.routes import OWN, RouteTable, compile_routes
from gateway.safe_text import show_text
from gateway.topic_filters import compile_filter, topic_device
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.log import LogRecord
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["DeviceReceipts", "make_receipts", "receipt_topic", "stored_receipts"]

RECEIPTS: Final = "tidegate/receipts/"
MAX_DEVICES: Final = 5_000
"""Most remembered devices, about a kilobyte each; the one without a rejection for longest is forgotten first."""
MAX_TOPIC_BYTES: Final = 512
MAX_CORRELATION_BYTES: Final = 1024
MAX_IDS: Final = 20
"""Most message ids in a receipt of stored records."""


def receipt_topic(device: str) -> str:
    """Return the topic of a device's receipts; `+ # / %` of its id are percent-encoded."""
    return RECEIPTS + topic_device(device)


def make_receipts(
    settings: ReceiptSettings, routes: tuple[RouteSettings, ...], limits: GatewaySettings, metrics: GatewayMetrics
) -> ReceiptBuilder:
    """Make the writer of receipts that the settings ask for; one that writes none if receipts are switched off."""
    if not settings.enabled:
        return ReceiptBuilder()
    table = compile_routes(routes, limits) if settings.response_topics else None
    return DeviceReceipts(settings, metrics, table)


class _Waiting(NamedTuple):
    """A receipt to send: rejected parts of one message, when it was received, and the topics."""

    parts: list[Rejection]
    received_us: int
    addresses: list[str]


class _Bucket:
    """Number of receipts that one device may get now, and the receipts that wait."""

    __slots__ = ("_at", "_tokens", "held_back", "waiting")

    def __init__(self, burst: float, now: float) -> None:
        self._tokens, self._at = burst, now
        self.held_back = 0
        self.waiting: _Waiting | None = None

    def fill(self, now: float, per_second: float, burst: float) -> bool:
        """Return whether a token is available at this time."""
        self._tokens = min(burst, self._tokens + max(0.0, now - self._at) * per_second)
        self._at = now
        return self._tokens >= 1.0

    def take(self) -> None:
        """Use one token."""
        self._tokens -= 1.0


class DeviceReceipts(ReceiptBuilder):
    """Writer of receipts with bounded memory; a flood of rejections causes a bounded number of receipts."""

    def __init__(
        self,
        settings: ReceiptSettings,
        metrics: GatewayMetrics,
        routes: RouteTable | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the limits; `routes` shows which response topics would come back as readings. Without it only our own are used."""
        self._settings, self._metrics, self._routes, self._clock = settings, metrics, routes, clock
        self._per_second = settings.per_device_per_minute / 60
        self._allowed = [compile_filter(text) for text in settings.response_topics]
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._total = _Bucket(2 * settings.per_second, clock())
        self._holding: set[str] = set()

    def follow_routes(self, routes: RouteTable) -> None:
        """See ReceiptBuilder."""
        self._routes = None if self._routes is None else routes

    def of(self, refusals: list[Rejection], received_us: int) -> list[Reply]:
        """See ReceiptBuilder."""
        now, replies = self._clock(), list[Reply]()
        for parts in _by_message(refusals):
            addresses = self._addresses(parts[0])
            if addresses:
                replies += self._tell(_Waiting(parts, received_us, addresses), now)
        return replies

    def restarted(self, restarts: list[SequenceRestart], received_us: int) -> list[Reply]:
        """See ReceiptBuilder."""
        now, replies = self._clock(), list[Reply]()
        for one in restarts:
            bucket, total = self._bucket(one.device, now), self._total
            mine = bucket.fill(now, self._per_second, self._settings.per_device_burst)
            if mine and total.fill(now, self._settings.per_second, 2 * self._settings.per_second):
                bucket.take()
                total.take()
                self._metrics.receipts_sent.inc()
                replies.append(Reply(receipt_topic(one.device), _warning(one, received_us)))
            else:
                self._metrics.receipts_held_back.labels("total" if mine else "device").inc()
        return replies

    def tick(self) -> list[Reply]:
        """See ReceiptBuilder: one summary for each device that has fallen silent since some were held back."""
        now, replies = self._clock(), list[Reply]()
        for key in list(self._holding):
            bucket = self._buckets[key]
            if bucket.waiting is not None:
                bucket.held_back -= 1  # the one that is sent now
                replies += self._tell(bucket.waiting, now, again=True)
        return replies

    def _addresses(self, refusal: Rejection) -> list[str]:
        found = [] if refusal.device is None else [receipt_topic(refusal.device)]
        asked = refusal.response_topic
        if asked is not None and asked not in found:
            if self._may_publish(asked):
                found.append(asked)
            else:
                self._metrics.receipts_held_back.labels("address").inc()
        return found

    def _may_publish(self, topic: str) -> bool:
        """Return whether a device may have its receipts there; MQTT allows no wildcards in a response topic (3.3.2.3.5)."""
        if not topic.isprintable() or any(char in topic for char in "+#") or topic.startswith("$"):
            return False
        if len(topic.encode("utf-8", "replace")) > MAX_TOPIC_BYTES:
            return False
        if topic.startswith(RECEIPTS):
            return len(topic) > len(RECEIPTS)
        if not any(allowed.match(topic) is not None for allowed in self._allowed):
            return False
        return self._routes is not None and self._routes.match(topic) in (None, OWN)

    def _tell(self, told: "_Waiting", now: float, *, again: bool = False) -> list[Reply]:
        """Return the receipt, or nothing if it is held back; `again`: it is not a new rejection."""
        # Response topics have no separate rate: else new topic names would use up the total rate. Rejections without a
        # device share one rate.
        key = told.parts[0].device or ""
        bucket, total = self._bucket(key, now), self._total
        mine = bucket.fill(now, self._per_second, self._settings.per_device_burst)
        if mine and total.fill(now, self._settings.per_second, 2 * self._settings.per_second):
            bucket.take()
            total.take()
            self._holding.discard(key)
            payload = _payload(told.parts, told.received_us, bucket.held_back)
            bucket.held_back, bucket.waiting = 0, None
            self._metrics.receipts_sent.inc()
            return [Reply(address, payload, _correlation(told.parts[0], address)) for address in told.addresses]
        bucket.held_back += 1
        if not again:
            bucket.waiting = told._replace(parts=[_small(told.parts[0])])
            self._holding.add(key)
            self._metrics.receipts_held_back.labels("total" if mine else "device").inc()
        return []

    def _bucket(self, key: str, now: float) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._settings.per_device_burst, now)
            if len(self._buckets) > MAX_DEVICES:
                forgotten, _ = self._buckets.popitem(last=False)
                self._holding.discard(forgotten)
        self._buckets.move_to_end(key)
        return bucket


def _correlation(refusal: Rejection, address: str) -> bytes | None:
    """Return the message's correlation data if it asked for the receipt there."""
    data = refusal.correlation if address == refusal.response_topic else None
    return data if data is not None and len(data) <= MAX_CORRELATION_BYTES else None


def _small(refusal: Rejection) -> Rejection:
    """Truncate device-controlled fields, so that queued rejections stay small."""
    fault = refusal.reject
    shown = replace(fault, path=_shown(fault.path), got=_shown(fault.got), wanted=_shown(fault.wanted))
    kept = refusal.correlation if len(refusal.correlation or b"") <= MAX_CORRELATION_BYTES else None
    asked = refusal.response_topic if len(refusal.response_topic or "") <= MAX_TOPIC_BYTES else None
    known_by, topic = _shown(refusal.message_id), show_text(refusal.topic)
    return refusal._replace(reject=shown, correlation=kept, response_topic=asked, message_id=known_by, topic=topic)


def _by_message(refusals: list[Rejection]) -> Iterator[list[Rejection]]:
    """Yield the rejected parts of one message together (they are adjacent), and each whole message alone."""
    for is_partial, group in groupby(refusals, key=lambda one: (one.device, one.topic, one.message_id, one.partial)):
        if is_partial[3]:
            yield list(group)
        else:
            yield from ([one] for one in group)


def _payload(parts: list[Rejection], received_us: int, held_back: int) -> bytes:
    first = parts[0]
    fault = first.reject
    told: dict[str, object] = {
        "reason": fault.reason.value,
        "path": _shown(fault.path),
        "got": _shown(fault.got),
        "wanted": _shown(fault.wanted),
        "profile": fault.profile,
        "message_id": _shown(first.message_id),
        "topic": _shown(first.topic),
        "received_at": _moment(received_us),
        "partial": first.partial,
        "count": len(parts),
    }
    if held_back > 0:
        told["held_back"] = held_back
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _warning(restart: SequenceRestart, received_us: int) -> bytes:
    told = {
        "warning": "sequence_restarted",
        "got": f"boot {restart.boot} counts again from {restart.seq}, after it had reached {restart.high}",
        "wanted": "a new `boot` at each start, or a `message-id`: readings with numbers that were used count as duplicates",
        "received_at": _moment(received_us),
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def _moment(received_us: int) -> str:
    return datetime.fromtimestamp(received_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(text: str | None) -> str | None:
    return None if text is None else show_text(text)


def stored_receipts(records: Iterable[LogRecord], gateway: str) -> list[Reply]:
    """Return one receipt per device and partition for the records of `gateway`; other gateways send their own."""
    found: dict[tuple[str, int], list[tuple[int, ReadingRecord]]] = {}
    for record in records:
        try:
            message = decode_record(record.value or b"")
        except msgspec.DecodeError:
            continue  # no Tidegate gateway wrote it: it became a dead letter
        if message.gateway == gateway:
            found.setdefault((message.device, record.partition), []).append((record.offset, message))
    return [_receipt(device, partition, messages) for (device, partition), messages in found.items()]


def _receipt(device: str, partition: int, messages: list[tuple[int, ReadingRecord]]) -> Reply:
    offset, last = messages[-1]
    ids = [_known_by(message) for _, message in messages]
    told = {
        "stored": len(messages),
        "first": ids[0],
        "last": ids[-1],
        "message_ids": [known for known in ids[:MAX_IDS] if known is not None],
        "partition": partition,
        "offset": offset,
        "received_at": _moment(last.received_us),
    }
    return Reply(receipt_topic(device), json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


def _known_by(message: ReadingRecord) -> str | None:
    """Return the message's identity, or that of its last item if each has its own."""
    own = message.message_id or next((r.message_id for r in reversed(message.readings) if r.message_id), None)
    return None if own is None else show_text(own)
