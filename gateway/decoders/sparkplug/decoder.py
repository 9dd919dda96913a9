"""Sparkplug B: births define names, aliases, datatypes and units; data is read by them, also across restarts.

Topics `spBv1.0/<group>/<type>/<node>[/<device>]`; the device is `<group>/<node>` or `<group>/<node>/<device>`, or what the
route says. Values of births and of data are readings; deaths, STATE and commands are not, nor are bdSeq and metrics under
Node Control. Arrays become `name[0]`, `name[1]`, templates `template/member`; a dataset, bytes or a file is a rejected
part.

Aliases are remembered in the gateway's state, by the rules of gateway/decoders/versioned_state.py. A name is never guessed. If no
birth is known, or it is undecided which birth a message belongs to, the metric is rejected (`alias_unknown`, its bytes
kept to be redriven) and the node is asked for a rebirth; see gateway/decoders/sparkplug/nodes.py.

Identity: a hash of the payload's bytes. They hold the node's clock in milliseconds and its sequence number, so two
messages are equal only if they are one message, sent twice; the sequence number alone wraps every 256 messages. If the
node has no clock (no timestamp, or one before 2000), two messages a reboot apart may be equal, so there is no identity.
"""

import hashlib
from collections import Counter
from typing import Final, NamedTuple

from gateway.decoders.parse_cache import ParseCache, cache_topics
from gateway.decoders.protobuf import BadProtobuf
from gateway.decoders.shape import Decoded, Ignored, Reply, RouteMatch
from gateway.decoders.sparkplug.births import (
    BirthDefinitions,
    MetricDefinition,
    flatten_metrics,
    is_protocol,
    pack_definitions,
    properties_of,
    unpack_definitions,
)
from gateway.decoders.sparkplug.nodes import EdgeNode, EdgeNodes
from gateway.decoders.sparkplug.payload import (
    SparkplugMetric,
    SparkplugPayload,
    TooManyMetrics,
    read_payload,
    rebirth_request,
)
from gateway.decoders.sparkplug.readings import YEAR_2000_MS, MetricConverter, make_definition_lookup
from gateway.decoders.state import MAX_KEY_CHARACTERS, DecoderState
from gateway.decoders.values import metric_fault
from gateway.decoders.versioned_state import MAX_VALUE_BYTES, VersionStore
from gateway.gateway_settings import GatewaySettings
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["SparkplugDecoder"]

SEQ_GAP: Final = "seq_gap"
BIRTH_UNCONFIRMED: Final = "birth_unconfirmed"
_NOBODY: Final = ""
"""A host's messages do not show that a device is alive."""
_NAMESPACE: Final = "spBv1.0"
_NODE_KINDS: Final = frozenset({"NBIRTH", "NDATA", "NDEATH", "NCMD"})
_DEVICE_KINDS: Final = frozenset({"DBIRTH", "DDATA", "DDEATH", "DCMD"})


class _Address(NamedTuple):
    """Parts of a topic of the namespace. `node` is `<group>/<node>`, `head` the part before the namespace."""

    kind: str
    node: str
    device: str | None
    name: str
    head: str

    @property
    def rebirth_topic(self) -> str:
        group, node = self.node.split("/")
        return f"{self.head}{_NAMESPACE}/{group}/NCMD/{node}"


@cache_topics
def _read_topic(topic: str) -> _Address | None:
    head, found, rest = topic.partition(f"{_NAMESPACE}/")
    if not found or (head and not head.endswith("/")):
        return _Address("STATE", "", None, topic, "") if topic.startswith("STATE/") else None
    parts = rest.split("/")
    if parts[0] == "STATE" and len(parts) == 2:
        return _Address("STATE", "", None, rest, head)
    if len(parts) not in (3, 4) or not all(parts):
        return None
    group, kind, node, *device = parts
    if kind not in (_DEVICE_KINDS if device else _NODE_KINDS):
        return None
    return _Address(kind, f"{group}/{node}", device[0] if device else None, "/".join((group, node, *device)), head)


class SparkplugDecoder:
    """Sparkplug decoder of one gateway; see `Decoder`. Called in receive order."""

    def __init__(self, state: DecoderState) -> None:
        self._state = state
        self._memory = VersionStore(state)
        self._definitions = ParseCache(unpack_definitions)
        self._nodes = EdgeNodes()

    def __call__(
        self, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
    ) -> Decoded | Reject | Ignored:
        """Decode one message."""
        where = _read_topic(match.topic)
        if where is None:
            wanted = (
                "spBv1.0/<group>/<type>/<node>[/<device>] with a type such as NDATA or DDATA, or spBv1.0/STATE/<host>"
            )
            return Reject(Reason.UNDECODED, "topic", show_text(match.topic), wanted)
        # A route without its own device gives the topic without its last segment, which is the same for all devices.
        device = where.name if match.device == match.topic.rpartition("/")[0] else match.device
        if where.kind == "STATE":
            return Ignored(IgnoredReason.STATUS, _NOBODY)
        if where.kind.endswith("CMD"):
            return Ignored(IgnoredReason.COMMAND, _NOBODY)
        decoded = Decoded(device, [], [], None, match.tags)
        try:
            return self._decode(payload, where, decoded, match, limits, received_us)
        except BadProtobuf as error:
            fault = Reject(Reason.UNDECODED, got=show_text(str(error)), wanted="a Sparkplug B payload in protobuf")
        except TooManyMetrics:
            wanted = f"at most {limits.max_readings_per_message} metrics in a message"
            fault = Reject(Reason.TOO_LARGE, "$.metrics", "more metrics", wanted)
        decoded.readings, decoded.rejects = [], [fault]
        return decoded

    def _decode(
        self,
        payload: bytes,
        where: _Address,
        decoded: Decoded,
        match: RouteMatch,
        limits: GatewaySettings,
        received_us: int,
    ) -> Decoded | Ignored:
        if len(payload) > limits.max_payload_bytes:
            wanted = f"at most {limits.max_payload_bytes} bytes"
            decoded.rejects.append(Reject(Reason.TOO_LARGE, got=f"{len(payload)} bytes", wanted=wanted))
            return decoded
        most = limits.max_readings_per_message
        message = read_payload(payload, max_metrics=most, max_bytes=limits.max_payload_bytes)
        is_known = self._state.get(f"sparkplug/{where.node}") is not None
        node = self._nodes.node(where.node, self._state.generation, is_known=is_known)
        if where.kind == "NDEATH":
            node.gone(_bd_seq(message))
            return Ignored(IgnoredReason.STATUS, decoded.device)
        missed = self._follow(node, where, message)
        if where.kind == "DDEATH":
            replies = self._ask(node, where, received_us) if missed else []
            return Ignored(IgnoredReason.STATUS, decoded.device, tuple(replies))
        decoded.message_id = _identity(payload, message)
        reader = MetricConverter(decoded, match, limits, received_us)
        if where.kind.endswith("BIRTH"):
            self._read_birth(message, where, decoded, reader, most)
            if where.device is not None and self._state.get(_key(where)) is not None:
                node.device_born(where.device)
            doubt = missed
        else:
            self._read_data(message, where, decoded, reader, most)
            doubt = not node.is_certain(where.device)
            decoded.flags = [BIRTH_UNCONFIRMED] if doubt else None
        if missed:
            decoded.flags = [*(decoded.flags or ()), SEQ_GAP]
        if doubt or reader.stale:
            decoded.replies = self._ask(node, where, received_us)
        return decoded

    def _follow(self, node: EdgeNode, where: _Address, message: SparkplugPayload) -> bool:
        """Follow the node's sequence; True if a message before this one was missed."""
        generation = self._state.generation
        if where.kind == "NBIRTH":
            node.born(message.seq, _ordering_ms(message), _bd_seq(message), generation)
            return False
        missed = node.follow(message.seq, _ordering_ms(message), generation)
        # Only for devices whose birth is remembered: their number is bounded, that of names is not.
        if where.kind == "DDEATH" and where.device is not None and self._state.get(_key(where)) is not None:
            node.device_gone(where.device)
        return missed

    def _read_birth(
        self, message: SparkplugPayload, where: _Address, decoded: Decoded, reader: MetricConverter, most: int
    ) -> None:
        metrics = flatten_metrics(message.metrics, lambda metric: metric.name, most)
        definitions = _define(metrics, decoded)
        if not self._memory.entry(_key(where)).learn(pack_definitions(definitions), _ordering_ms(message)):
            wanted = (
                f"a birth of at most {MAX_VALUE_BYTES} bytes on a topic of at most {MAX_KEY_CHARACTERS} characters, and "
                "free space in the remembered state of all devices"
            )
            fault = Reject(Reason.TOO_LARGE, "$.metrics", f"{len(definitions)} definitions", wanted)
            decoded.rejects.append(fault)
        reader.read(metrics, message.time_ms, make_definition_lookup([BirthDefinitions(definitions)]))

    def _read_data(
        self, message: SparkplugPayload, where: _Address, decoded: Decoded, reader: MetricConverter, most: int
    ) -> None:
        contents = self._memory.entry(_key(where)).contents(_ordering_ms(message))
        find = make_definition_lookup([self._definitions.read(content) for content in contents])

        def name_of(metric: SparkplugMetric) -> str | None:
            definition = find(metric)
            return metric.name if definition is None else definition.name

        reader.read(flatten_metrics(message.metrics, name_of, most), message.time_ms, find)

    def _ask(self, node: EdgeNode, where: _Address, received_us: int) -> list[Reply]:
        if not self._nodes.may_ask(node, received_us):
            return []
        return [Reply(where.rebirth_topic, rebirth_request(received_us // 1000))]


def _key(where: _Address) -> str:
    return f"sparkplug/{where.node}" if where.device is None else f"sparkplug/{where.node}/{where.device}"


def _ordering_ms(message: SparkplugPayload) -> int | None:
    """Return when it was sent; None if its sender's clock was never set, because such a time orders nothing."""
    return message.time_ms if message.time_ms is not None and message.time_ms >= YEAR_2000_MS else None


def _bd_seq(message: SparkplugPayload) -> int | None:
    raw = next((metric.raw for metric in message.metrics if metric.name == "bdSeq"), None)
    return raw if isinstance(raw, int) else None


def _identity(payload: bytes, message: SparkplugPayload) -> str | None:
    sent_ms = message.time_ms
    if sent_ms is None and message.metrics:
        sent_ms = message.metrics[0].time_ms
    if sent_ms is None or sent_ms < YEAR_2000_MS:
        return None
    return f"sp:{hashlib.sha256(payload).hexdigest()[:32]}"


def _define(metrics: list[SparkplugMetric], decoded: Decoded) -> list[MetricDefinition]:
    """Return the definitions of a birth. An alias that occurs twice is ignored: both metrics then go by name only."""
    counts = Counter(metric.alias for metric in metrics)
    definitions: list[MetricDefinition] = []
    for place, metric in enumerate(metrics):
        alias = metric.alias
        if alias is not None and counts[alias] > 1:
            wanted = "one metric for each alias"
            decoded.rejects.append(Reject(Reason.DUPLICATE_KEY, f"$.metrics[{place}].alias", str(alias), wanted))
            alias = None
        if metric.name is not None and metric_fault(metric.name) is None:
            unit, _flags = properties_of(metric)
            definitions.append(MetricDefinition(metric.name, alias, metric.datatype, unit, is_protocol(metric.name)))
    return definitions
