"""Model of broker and Kafka around the gateway's delivery. `from tests.support.delivery import DeliveryMachine`.

The broker keeps a message until its PUBACK, and sends all that it keeps again, in order, on each new connection. Kafka stores
and reports records when the machine says so, and may fail them. What the machine checks is what the audit relies on, after
every step: so it holds for a kill at any point.
"""

import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from gateway.delivery.ack_chain import AckChain
from gateway.delivery.deliverer import Deliverer
from gateway.delivery.intake import MessageIntake
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.session_events import Incoming, Received
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.outcome import OutcomeRecord, decode_outcome
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.log import FailureKind
from ingest.memory import MemoryLog
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["DeliveryMachine", "KilledMachine"]

LIMITS = GatewaySettings(gateway_id="gw")
ROUTES = compile_routes((), LIMITS)
METRICS = GatewayMetrics(CollectorRegistry(), reasons=Reason, ignored_reasons=IgnoredReason)


@dataclass(eq=False)
class Message:
    """A message that the broker keeps until its PUBACK; `mid` and `number` are those of the current connection."""

    device: str
    kind: str
    payload: bytes
    mid: int = 0
    number: int = 0
    was_sent: bool = False


@dataclass
class WatchedLog(MemoryLog):
    """Log that shows each record at the moment in which it is stored."""

    watch: Callable[[str, bytes], None] = lambda _topic, _value: None

    def release_topic(self, topic: str) -> None:
        """Report the held records of a topic."""
        with self._lock:
            for pending in [each for each in self._pending if not each.settled and each.topic == topic]:
                self._settle(pending)

    def _store(self, pending: Any) -> None:
        is_new = not pending.stored
        super()._store(pending)
        if is_new:
            self.watch(pending.topic, pending.value)


class DeliveryMachine(RuleBasedStateMachine):
    """Drives the delivery through reports in any order, failures, full queues, and ends of connections and writers."""

    def __init__(self) -> None:
        super().__init__()
        self.log = WatchedLog(partitions=3, watch=self._stored)
        self.epoch = 0
        self.live = False
        self.queue: list[Message] = []
        self.sent: deque[Message] = deque()
        self.history: dict[tuple[int, int], Message] = {}
        self.skipped: Counter[str] = Counter()
        self.counted_twice: Counter[str] = Counter()
        self.next_seq: Counter[str] = Counter()
        self.stored: set[tuple[int, int]] = set()
        self.outcomes: list[OutcomeRecord] = []
        self.faults: list[str] = []
        self.is_first_process = True
        self.order: dict[str, tuple[int, int]] = {}
        self.start_process()
        self.connect(1)

    def start_process(self) -> None:
        """A gateway that knows nothing of an earlier one, with a new writer."""
        table, policy = ROUTES, ReadingPolicy()
        gate = MessageProcessor(table, LIMITS, policy=policy)
        self.intake = MessageIntake(gate, FastPathEncoder(table, LIMITS, policy), is_full=lambda block: False)
        self.counted: set[tuple[int, int]] = set()
        accounts = MetricAccumulator(METRICS)
        self.pump = Deliverer(AckChain("gw"), gate, accounts, self._acknowledge, "gw", counted=self._counted)
        self.writer = self.log.writer()

    def _counted(self, record: OutcomeRecord) -> None:
        self.counted.add((record.epoch, record.first))

    # What devices and broker do.

    @rule(
        kinds=st.lists(st.sampled_from(["good", "gap", "gap", "dead", "ignored"]), min_size=1, max_size=3),
        device=st.integers(0, 2),
        runs=st.integers(0, 1),
    )
    def publish_all(self, kinds: list[str], device: int, runs: int) -> None:
        for number, kind in enumerate(kinds):
            self.publish((device + number) % 3, kind)
        if self.live:
            self.deliver(4, runs)

    def publish(self, device: int, kind: str) -> None:
        name = f"d{device}"
        payload = b"no json" if kind == "dead" else b'{"values": {}}'
        if kind in ("good", "gap"):
            if kind == "gap" and self.next_seq[name]:
                self.next_seq[name] += 2
                self.skipped[name] += 2
            payload = json.dumps({"boot": 1, "seq": self.next_seq[name], "values": {"t": 1.5}}).encode()
            self.next_seq[name] += 1
        self.queue.append(Message(name, kind, payload))

    @precondition(lambda self: self.live and len(self.sent) < len(self.queue))
    @rule(count=st.integers(1, 4), runs=st.integers(0, 1))
    def deliver(self, count: int, runs: int = 0) -> None:
        came: list[Incoming] = []
        chosen = self.queue[len(self.sent) : len(self.sent) + count]
        for message in chosen:
            self.mid += 1
            message.mid = self.mid
            topic = f"tidegate/v1/{message.device}/readings".encode()
            is_dup, message.was_sent = message.was_sent, True
            usual = (topic, message.payload, self.mid.to_bytes(2, "big"))
            came.append(Received(topic, message.payload, self.mid, 1, dup=True) if is_dup else usual)
        self.sent += chosen
        first = self.intake.number + 1
        for number, message in enumerate(chosen, start=first):
            message.number = number
            self.history[self.epoch, number] = message
        for block in self.intake.take(came, self.epoch, 100_000):
            self.pump.add(block)
        self.run(runs)

    @precondition(lambda self: self.live)
    @rule()
    def lose(self) -> None:
        self.live = False
        self.sent.clear()
        self.pump.halt()

    @precondition(lambda self: not self.live and not self.writer.in_flight)
    @rule(step=st.integers(1, 3))
    def connect(self, step: int) -> None:
        self.epoch, self.mid, self.live = self.epoch + step, 0, True
        self.pump.begin(self.epoch)

    def _acknowledge(self, epoch: int, mids: list[bytes]) -> int:
        self._require(self.live and epoch == self.epoch, "no PUBACK of a connection that is gone")
        for mid in mids:
            if not self.sent:
                self._require(False, "a PUBACK for nothing")
                break
            message = self.sent.popleft()
            self._require(message.mid == int.from_bytes(mid, "big"), "PUBACKs in receive order")
            self._require(self._has(epoch, message.number), "no PUBACK before Kafka has the records")
            is_counted = any(each.epoch == epoch and message.number <= each.upto for each in self.outcomes)
            self._require(is_counted, "no PUBACK before Kafka has the outcome")
            self.queue.remove(message)
        return len(mids)

    # What Kafka does.

    @precondition(lambda self: not self.log._held)
    @rule(stored=st.booleans())
    def hold(self, stored: bool) -> None:
        self.log.hold(stored=stored)

    @rule(
        what=st.sampled_from([None, 1, 2, READINGS, READINGS, READINGS, DEAD_LETTERS, OUTCOMES]), runs=st.integers(0, 1)
    )
    def release(self, what: int | str | None, runs: int) -> None:
        """Report everything from now on, or the next records, or those of a topic."""
        if isinstance(what, str):
            self.log.release_topic(what)
        else:
            self.log.release(what)
        self.run(runs)

    @rule()
    def run_while_the_queue_is_full(self) -> None:
        self.log.full(True)
        self.run(1)
        self.log.full(False)

    @precondition(lambda self: not self.log._failures)
    @rule(kind=st.sampled_from(["record", "record", "retriable", "fatal"]))
    def fail(self, kind: FailureKind) -> None:
        self.log.fail_next(kind)

    # What the gateway's loop does.

    @rule(times=st.integers(1, 3))
    def run(self, times: int) -> None:
        for _ in range(times):
            self.pump.run_once(self.writer, 0.0)
            if self.pump.give_up_because is not None:
                self.end_process()
            elif self.pump.abort_because is not None:
                self.abandon()

    def abandon(self) -> None:
        """As the service does when Kafka failed for good."""
        self.pump.abort_because = None
        self.live = False
        self.sent.clear()
        self.pump.halt()
        self.writer.abort()
        for outcome in self.outcomes:
            if (outcome.epoch, outcome.first) not in self.counted:
                # Kafka has it, and the gateway cannot know.
                self.counted.add((outcome.epoch, outcome.first))
                self.counted_twice.update(_gaps(outcome))
        self.writer = self.log.writer()

    def end_process(self) -> None:
        """As by kill -9: nothing is said, nothing is flushed."""
        self.live = False
        self.sent.clear()
        self.writer.abort()
        self.is_first_process = False
        self.start_process()

    # What must hold.

    def _require(self, holds: bool, what: str) -> None:
        """Note a fault: an exception in a report would only be logged."""
        if not holds:
            self.faults.append(what)

    def _stored(self, topic: str, value: bytes) -> None:
        """Judge a record at the moment in which Kafka has it."""
        if topic == OUTCOMES:
            self._judge_outcome(decode_outcome(value))
        elif topic == READINGS:
            record = decode_record(value)
            self.stored.add((record.epoch, record.number))
            before = self.order.get(record.device, (0, 0))
            self._require(before <= (record.epoch, record.number), "a device's records stay in order")
            self.order[record.device] = record.epoch, record.number
        elif topic == DEAD_LETTERS:
            letter = decode_dead_letter(value)
            self.stored.add((letter.epoch, letter.number))

    def _judge_outcome(self, record: OutcomeRecord) -> None:
        before = [each for each in self.outcomes if each.epoch == record.epoch]
        self._require(record.first == (before[-1].upto + 1 if before else record.began), "outcomes follow each other")
        for number in range(record.first, record.upto + 1):
            self._require(self._has(record.epoch, number), "records before the outcome that counts them")
        received = sum(count.received for count in record.counts)
        self._require(received == record.upto - record.first + 1, "each message counts once")
        self._require(not any(count.restarts for count in record.counts), "no device began again")
        self.outcomes.append(record)

    def _has(self, epoch: int, number: int) -> bool:
        message = self.history.get((epoch, number))
        return message is not None and (message.kind == "ignored" or (epoch, number) in self.stored)

    @invariant()
    def no_fault(self) -> None:
        assert self.faults == []

    @invariant()
    def what_is_held_is_what_has_no_puback(self) -> None:
        assert self.pump._chain.in_flight == (len(self.sent) if self.live else 0)

    def teardown(self) -> None:
        """Once Kafka answers, every message ends in a PUBACK, and every gap is counted."""
        self.log._failures.clear()
        self.log.release()
        for _ in range(20 + len(self.queue)):
            self.run(4)
            if not self.live and not self.writer.in_flight:
                self.connect(1)
            elif self.live and len(self.sent) < len(self.queue):
                self.deliver(len(self.queue))
        self.no_fault()
        assert not self.queue, f"{len(self.queue)} messages never got a PUBACK"
        if self.is_first_process:
            # What a process leaves to the next is tested with GatewayState.
            self.each_gap_is_counted()

    def each_gap_is_counted(self) -> None:
        """In one outcome, and in another one only if Kafka has the first and its report was lost."""
        found: Counter[str] = Counter()
        for outcome in self.outcomes:
            found.update(_gaps(outcome))
        assert found == self.skipped + self.counted_twice


class KilledMachine(DeliveryMachine):
    """The same with kills: the next process begins without the numbers of devices."""

    @rule()
    def kill(self) -> None:
        self.end_process()


def _gaps(outcome: OutcomeRecord) -> Counter[str]:
    found: Counter[str] = Counter()
    for count in outcome.counts:
        if count.gap or count.reordered:
            found[count.device or ""] += count.gap - count.reordered
    return found
