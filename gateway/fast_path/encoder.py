"""Fast path of a usual native message: from its bytes to the bytes of its Kafka record, without objects in between.

Any unusual message takes the slow path (`Gate`), which alone says what is wrong. A property test compares both paths.
"""

import json
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Final

from gateway.clock_behind import earliest_usual_us
from gateway.decoders.shape import RouteMatch
from gateway.delivery.block import COUNT_BYTES, Block
from gateway.fast_path.bounded_cache import BoundedCache
from gateway.fast_path.native_json import MAX_DEPTH, NativeJsonEncoder, Readings
from gateway.gateway_settings import GatewaySettings
from gateway.mqtt.session_events import Incoming, Received
from gateway.policy import NumberLimits, ReadingPolicy
from gateway.routes import RouteTable
from gateway.time_rules import YEAR_2000_S
from gateway.topic_filters import id_fault
from ingest.contract.reading import RECORD_VERSION, hash_payload

__all__ = ["FastPathEncoder"]

_MAX_TOPIC_BYTES: Final = 4096
"""Most bytes of a remembered topic, with its device and piece; MQTT allows topics of 65,535 bytes."""

_TIMED: Final = ',"time_us":'
"""No text of a message contains this: a quote in JSON text has a backslash before it."""

Read = Callable[[bytes, bytes, int, int], Readings | None]
"""`NativeJsonEncoder.read`, shared by all devices with the same checks."""

_Topic = tuple[str, bytes, str]
"""Device, key of its records, and its piece of the records."""


class FastPathEncoder:
    """Fast path. It fills blocks with the messages that may take it. Not thread-safe."""

    def __init__(self, routes: RouteTable, limits: GatewaySettings, policy: ReadingPolicy) -> None:
        self._routes, self._limits, self._policy = routes, limits, policy
        self._text = NativeJsonEncoder(limits.max_readings_per_message)
        self._topics: BoundedCache[bytes, _Topic | None] = BoundedCache(_MAX_TOPIC_BYTES)
        self._readers: BoundedCache[str, Read | None] = BoundedCache(_MAX_TOPIC_BYTES)
        self._timed_readers: BoundedCache[str, Read | None] = BoundedCache(_MAX_TOPIC_BYTES)
        self._texts: dict[NumberLimits, NativeJsonEncoder] = {}
        self._head = f'{{"v":{RECORD_VERSION},"gateway":{json.dumps(limits.gateway_id)},"epoch":'

    def tick(self) -> None:
        """Ask the policy again: its answer about devices may have changed."""
        self._readers.clear()
        self._timed_readers.clear()
        self._texts.clear()

    def forget_topics(self) -> None:
        """Forget topics, because routes have changed."""
        self._topics.clear()
        self.tick()

    def encode_into(self, block: Block, messages: list[Incoming], begin: int, room_bytes: int) -> int:
        """Add messages from place `begin` on to the block, up to the first that must take the slow path.

        Args:
            block: takes the messages.
            messages: as received.
            begin: place of the first.
            room_bytes: how large the block's part of an outcome record may become.

        Returns:
            Place of the first message that was not added.
        """
        topics, readers = self._topics, self._readers if block.waited_since_us is None else self._timed_readers
        accepted, sequences = block.accepted, block.sequences
        add_message, add_mid = block.messages.append, block.mids.append
        add_key, add_value = block.keys.append, block.values.append
        max_bytes = self._limits.max_payload_bytes
        usual_us = earliest_usual_us(block.received_us, self._limits.clock_behind_seconds)
        first_ms = max(YEAR_2000_S * 1000, usual_us // 1000 + 1)
        last_ms = block.received_us // 1000 + self._limits.max_future_seconds * 1000
        head = f'{self._head}{block.epoch},"number":'
        middle = f',"received_us":{block.received_us},'
        if block.waited_since_us:
            middle += f'"waited_since_us":{block.waited_since_us},'
        before = len(block.messages)
        number = block.first + before
        for message in messages[begin:] if begin else messages:
            if isinstance(message, Received):
                break
            topic, payload, mid = message
            known = topics[topic] if topic in topics else self._find(topic)
            if known is None or len(payload) > max_bytes:
                break
            device, key, piece = known
            read = readers[device] if device in readers else self._ask(device, readers)
            if read is None:
                break
            found = read(topic, payload, first_ms, last_ms)
            if found is None:
                break
            text, count, boot, seq = found
            if device not in accepted:
                if block.outcome_bytes >= room_bytes:
                    break
                block.outcome_bytes += COUNT_BYTES + 2 * len(key)
                accepted[device] = 0
            said = hash_payload(payload)
            if boot is None:
                value = f'{head}{number}{middle}{piece}{text}],"flags":["no_identity"],"payload_hash":{said}}}'.encode()
            else:
                value = (
                    f'{head}{number}{middle}{piece}{text}],"message_id":"bs:{boot}:{seq}","boot":{boot},"seq":{seq}'
                    f',"payload_hash":{said}}}'
                ).encode()
                sequences.append((device, boot, seq))  # type: ignore[arg-type] # both or none
            # Together, after everything that may fail: a message in only one column would be acknowledged without its record.
            add_message(message)
            add_mid(mid)
            add_key(key)
            add_value(value)
            accepted[device] += 1
            number += 1
            block.readings += count
            block.size_bytes += len(payload) + len(value)
        return begin + len(block.messages) - before

    def _ask(self, device: str, readers: BoundedCache[str, Read | None]) -> Read | None:
        answer = self._reader(device)
        if answer is not None and readers is self._timed_readers:
            answer = partial(_read_timed, answer)
        readers.put(device, answer, getsizeof(device))
        return answer

    def _reader(self, device: str) -> Read | None:
        if self._policy.plain(device):
            return self._text.read
        limits = self._policy.number_limits(device)
        if limits is None:
            return None
        if limits not in self._texts:
            self._texts[limits] = NativeJsonEncoder(self._limits.max_readings_per_message, limits)
        return self._texts[limits].read

    def _find(self, topic: bytes) -> _Topic | None:
        found = self._look(topic)
        self._topics.put(topic, found, getsizeof(topic) + sum(map(getsizeof, found or ())))
        return found

    def _look(self, topic: bytes) -> _Topic | None:
        try:
            text = topic.decode("utf-8")
        except UnicodeDecodeError:
            return None
        match = self._routes.match(text)
        if not isinstance(match, RouteMatch) or match.decoder != "native" or match.tags or match.profile:
            return None
        # The payload decides between routes; or the message processor may reject a depth that is usual here.
        if match.candidates or self._limits.max_json_depth < MAX_DEPTH:
            return None
        if id_fault(match.device, self._limits.max_device_id_bytes) is not None:
            return None
        piece = f'"topic":{json.dumps(text)},"device":{json.dumps(match.device)},"readings":['
        return match.device, match.device.encode(), piece


def _read_timed(read: Read, topic: bytes, payload: bytes, first_ms: int, last_ms: int) -> Readings | None:
    """Read only a message with a time: one without gets a flag if it may have waited. All or none of its readings have a time."""
    found = read(topic, payload, first_ms, last_ms)
    return found if found is not None and _TIMED in found[0] else None
