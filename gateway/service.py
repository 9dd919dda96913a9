"""Run loop of the gateway: receive, decide, produce, and acknowledge what Kafka has. One thread, no locks.

Everything it waits for comes from outside: broker, log writer, stop event. When Kafka fails for good, the gateway does
not repair single messages. It drops the connection without acknowledging, opens a new writer and lets the broker
redeliver in order.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from gateway.decoders.state import DecoderState
from gateway.delivery.ack_chain import AckChain
from gateway.delivery.block import Block
from gateway.delivery.deliverer import Deliverer
from gateway.delivery.intake import MessageIntake
from gateway.delivery.sequence import SequenceTracker
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings, MqttSettings, RouteSettings
from gateway.health import GatewayHealth
from gateway.lease.gateway_lease import GatewayLease
from gateway.lease.lease_duty import LeaseDuty
from gateway.memory.restart_state import GatewayState, ReadOutcomes, ReadState, is_own_state
from gateway.memory.state_watch import ErasureListener, ReadNewer, SharedIdDetector
from gateway.message_processor import MessageProcessor
from gateway.metric_accumulator import MetricAccumulator
from gateway.mqtt.broker_backlog import BrokerBacklog
from gateway.mqtt.broker_window import BrokerWindow
from gateway.mqtt.session import MqttSession
from gateway.mqtt.session_events import Incoming, SessionEvents
from gateway.mqtt.session_text import describe_inflight_limit
from gateway.policy import ReadingPolicy
from gateway.replies.device_replies import DeviceReplies
from gateway.replies.rejection import ReceiptBuilder
from gateway.route_reload import ReadRoutes, RouteReload, no_route_update
from gateway.routes import compile_routes
from gateway.safe_text import show_text
from gateway.time_rules import refuse_unset_clock
from ingest.contract.errors import FatalError, RetryableError
from ingest.contract.outcome import OutcomeRecord
from ingest.contract.reasons import Reason
from ingest.contract.topics import OUTCOMES
from ingest.log import LogWriter
from monitoring.metrics.gateway import GatewayMetrics

__all__ = ["GatewayService"]

logger = logging.getLogger("tidegate.gateway")

OpenLog = Callable[[threading.Event, Callable[[str], None]], LogWriter | None]
"""Function that opens a log writer and reports in sentences what it waits for; None if `stop` was set first."""

GATHER_PER_MESSAGE: Final = 0.0125 / 1000
GATHER_MESSAGES: Final = 50
LEAST_GATHER_SECONDS: Final = 0.01
"""A busy loop reads the broker's messages this far apart, because a read and the flight of its records cost as much as thirty
messages. Kafka's reports wake it in between. The time grows with the messages per second up to 25 ms at 2,000. With more it
shrinks, because 50 messages are enough for one read."""
HURRY_BYTES: Final = 16 * 1024
"""A read of this size leaves no time for gathering."""
TICK_SECONDS: Final = 1.0
HELD_UP_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 0.2
DRAIN_SECONDS: Final = 7.0
SAVE_SECONDS: Final = 2.0
"""Time for this gateway's own state at a stop."""


class GatewayService(SessionEvents):
    """One gateway. `run` belongs to one thread; other threads may call `healthy` and `status`."""

    def __init__(
        self,
        mqtt: MqttSettings,
        gateway: GatewaySettings,
        routes: tuple[RouteSettings, ...],
        open_log: OpenLog,
        metrics: GatewayMetrics,
        *,
        policy: ReadingPolicy | None = None,
        receipts: ReceiptBuilder | None = None,
        read_state: ReadState = list,
        read_outcomes: ReadOutcomes = lambda since_ms: (),
        read_newer: ReadNewer | None = None,
        read_routes: ReadRoutes = no_route_update,
        lease: GatewayLease | None = None,
    ) -> None:
        self._limits, self._receipts = gateway, receipts or ReceiptBuilder()
        self._state = DecoderState()
        table, policy = compile_routes(routes, gateway), policy or ReadingPolicy()
        self._reload = RouteReload(read_routes, table, gateway)
        self._processor = MessageProcessor(table, gateway, state=self._state, policy=policy)
        self._encoder = FastPathEncoder(table, gateway, policy)
        self._intake = MessageIntake(self._processor, self._encoder, is_full=self._is_full)
        self._open_log, self._read_state, self._read_outcomes = open_log, read_state, read_outcomes
        self._state_read = False
        self._tick_at = 0.0
        self._accounts = MetricAccumulator(metrics)
        self._session = MqttSession(mqtt, window=gateway.window_messages, events=self)
        self._duty = LeaseDuty(lease, self._session, self._accounts)
        self._broker, self._backlog = BrokerWindow(gateway.window_messages), BrokerBacklog()
        self._policy, self._tracker = policy, SequenceTracker()
        self._chain = AckChain(gateway.gateway_id, self._tracker)
        self._own = GatewayState(gateway.gateway_id, self._session.name, self._tracker, left_out=table.left_out)
        self._shared_id = (
            SharedIdDetector(gateway.gateway_id, self._own.key, self._own.process, read_newer) if read_newer else None
        )
        self._erasures = ErasureListener(read_newer) if read_newer else None
        self._log: LogWriter | None = None
        self._replies = DeviceReplies(self._receipts, self._session.publish, self._accounts)
        self._deliverer = Deliverer(
            self._chain, self._processor, self._accounts, self._acknowledge, gateway.gateway_id,
            on_acknowledged=self._replies.on_acknowledged, counted=self._counted,
        )  # fmt: skip
        self._failures = 0
        self._health = GatewayHealth()

    def run(self, stop: threading.Event) -> None:
        """Receive until `stop` is set, then drain. Blocks.

        Raises:
            FatalError: the session was taken over, the lease was lost, another gateway conflicts, Kafka rejects a record
                that must fit, or the clock was never set. End the process and say why.
        """
        try:
            while not stop.is_set():
                refuse_unset_clock()
                self._pass(stop)
            self._drain()
        except FatalError as error:
            self._health.say("failed", str(error))
            raise
        finally:
            self._session.close()
            for watch in (self._shared_id, self._erasures):
                if watch is not None:
                    watch.stop()
            self._accounts.disconnected()
            if self._log is not None:
                self._log.close()
            self._duty.close()
        self._health.say("stopped", "stopped; the broker keeps the messages that were not acknowledged")

    def healthy(self) -> tuple[bool, str]:
        """Return whether messages flow (the loop turns and the session is up) or this is a standby, and a sentence for people."""
        state, detail, _since = self._health.now()
        return state in ("running", "standby"), detail

    def is_active(self) -> bool:
        """Return whether this process works, and does not wait as a standby."""
        return self._health.now()[0] != "standby"

    def alive(self) -> bool:
        """Return whether the loop turns; False also after an error that ended it. A gateway that waits for a server is alive."""
        return self._health.now()[0] not in ("stalled", "failed")

    def status(self) -> dict[str, Any]:
        """Return state (starting, standby, waiting, running, stalled, draining, failed, stopped), since when, and a sentence."""
        state, detail, since = self._health.now()
        return {
            "state": state,
            "since": since,
            "detail": detail,
            "epoch": self._chain.epoch,
            "in_flight": self._chain.in_flight,
        }

    # Events of the session. An exception here would end the connection, but lose no message.

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        """See SessionEvents."""
        dropped = self._deliverer.begin(epoch)
        self._broker.begin(time.monotonic())
        self._backlog.begin(_now_us(), present=self._session.session_present)
        self._accounts.connected(session_lost=session_lost)
        if session_lost:
            logger.error(
                "The broker has lost this gateway's session and the messages queued in it. Sequence gaps show them."
            )
        if dropped:
            logger.info(
                "%d messages of the last connection were not acknowledged. The broker sends them again.", dropped
            )

    def disconnected(self, why: str) -> None:
        """See SessionEvents."""
        self._backlog.end(self._chain.oldest_us)
        self._deliverer.halt()
        self._broker.begin(time.monotonic())
        self._accounts.disconnected()

    def received(self, messages: list[Incoming]) -> None:
        """See SessionEvents."""
        taken, dropped, now_us = 0, self._intake.dropped, _now_us()
        self._intake.waited_since_us = self._backlog.waits_since_us(now_us)
        for block in self._intake.take(messages, self._chain.epoch, self._outcome_bytes()):
            taken += len(block.mids)
            if any(outcome.rejected is Reason.INTERNAL_ERROR for outcome in block.odd.values()):
                self._accounts.failed("decode")
            self._deliverer.add(block)
        self._broker.received(taken, time.monotonic())
        self._backlog.received(taken, self._broker.held, now_us)
        self._accounts.received(len(messages), at_qos_1=taken, dropped=self._intake.dropped - dropped)

    def _acknowledge(self, epoch: int, mids: list[bytes]) -> int:
        sent = self._session.acknowledge(epoch, mids)
        self._broker.acknowledged(sent, time.monotonic())
        return sent

    def _outcome_bytes(self) -> int:
        """Bytes of an outcome record that a block may take: small against the whole, so that several fit."""
        return 0 if self._log is None else self._log.max_record_bytes(OUTCOMES) // 8

    def answered(self, ping: int) -> None:
        """See SessionEvents."""
        self._backlog.answered(ping, _now_us())

    def failed(self, stage: str) -> None:
        """See SessionEvents."""
        self._accounts.failed(stage)

    def _is_full(self, block: Block) -> bool:
        """Return whether more than a window is held. The broker respects it at QoS 1; nothing limits QoS 0."""
        messages = self._chain.in_flight + len(block)
        return messages >= 2 * self._limits.window_messages or self._has_used_window(block.size_bytes)

    def _has_used_window(self, more_bytes: int = 0) -> bool:
        """Return whether the bytes of the window are used up: then nothing more is read, and the broker keeps the messages."""
        return self._chain.in_flight_bytes + more_bytes >= self._limits.window_bytes

    # The loop.

    def _pass(self, stop: threading.Event) -> None:
        self._health.beat()
        if self._log is None:
            self._reopen(stop)
            return
        self._turn(self._log)
        self._tick()
        self._report_state(self._log)
        self._raise_give_up()
        if self._deliverer.abort_because is not None:
            self._abandon(self._deliverer.abort_because, stop)

    def _raise_give_up(self) -> None:
        if self._deliverer.give_up_because is not None:
            raise FatalError(self._deliverer.give_up_because)

    def _turn(self, log: LogWriter, *, read: bool = True) -> None:
        """Run one pass: read once, then follow Kafka's reports while more messages gather. At rest it waits for the broker."""
        self._duty.keep(log, self._chain.epoch)
        if not self._is_held_back(log):
            read = read and not self._has_used_window()
            self._session.loop(0.0 if self._deliverer.busy else IDLE_SECONDS, read=read)
            self._follow_backlog(read=read)
        try:
            self._deliver(log, self._pause(log))
        except FatalError as error:
            self._deliverer.abort_because = str(error)
        if self._deliverer.outcome_confirmed:
            self._deliverer.outcome_confirmed, self._failures = False, 0
        self._accounts.flush(in_flight=self._chain.in_flight, stale_reports=self._chain.stale_reports)

    def _deliver(self, log: LogWriter, pause: float) -> None:
        """Send what is due, and until the pause is over also what each report of Kafka makes due: outcomes and PUBACKs.

        With half a window in flight few messages come before a PUBACK, so the pause ends with the first report.

        Raises:
            FatalError: the writer is broken.
        """
        deliverer, is_crowded = self._deliverer, self._broker.is_half_full
        left = pause if is_crowded else self._broker.gather_seconds(pause)
        until = time.monotonic() + left
        deliverer.run_once(log, left)
        while not is_crowded and not deliverer.has_failed and (left := until - time.monotonic()) > 0.0:
            if deliverer.busy or log.in_flight:
                deliverer.run_once(log, left)
            else:
                time.sleep(left)

    def _follow_backlog(self, *, read: bool) -> None:
        """Follow, by the answers to pings, whether the broker still sends its backlog."""
        backlog, now_us = self._backlog, _now_us()
        if self._session.read_bytes:
            backlog.heard(now_us)
        backlog.hold(now_us, full=not read or self._broker.is_full)
        if backlog.since_us is None:
            return
        if backlog.wants_ping(now_us, self._broker.held):
            number = self._session.ping()
            if number:
                backlog.pinged(number, self._broker.held)
            else:
                backlog.end_quiet_backlog(self._broker.held, now_us)

    def _is_held_back(self, log: LogWriter) -> bool:
        """Return whether the next connection must wait: each brings its window again, so Kafka takes the last one's first."""
        return self._session.closed and log.in_flight > 0

    def _pause(self, log: LogWriter) -> float:
        """Return how long a pass lets messages and reports gather: 0 if more is waiting already, longest if Kafka is slow."""
        if self._session.read_bytes >= HURRY_BYTES or not (self._deliverer.busy or log.in_flight):
            return 0.0
        if time.monotonic() - self._deliverer.progress_at >= 1.0:
            return HELD_UP_SECONDS
        rate = self._broker.rate
        return max(LEAST_GATHER_SECONDS, min(rate * GATHER_PER_MESSAGE, GATHER_MESSAGES / max(rate, 1.0)))

    def _abandon(self, why: str, stop: threading.Event) -> None:
        """Give the connection up after Kafka failed for good: no acknowledgement, a new writer, and redelivery in order."""
        delay = self._next_delay()
        logger.error(
            "%s: dropping the MQTT connection without acknowledging. A new writer starts in %.1f s.", why, delay
        )
        self._accounts.failed("produce")
        self._deliverer.abort_because = None
        self._session.drop(f"Kafka failed ({why})")
        self._deliverer.halt()
        log, self._log = self._log, None
        if log is not None:
            log.abort()
        self._wait_for(f"{why}: retrying in {delay:.1f} s")
        stop.wait(delay)

    def _next_delay(self) -> float:
        """Return a delay that grows with each failure since the last outcome, even if Kafka opened in between."""
        self._failures += 1
        longest: float = min(10.0, 0.25 * 2 ** min(self._failures, 8))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads tries, guards nothing

    def _reopen(self, stop: threading.Event) -> None:
        log = None
        try:
            log = self._open_log(stop, self._wait_for)
            if log is not None and not self._state_read:
                if not self._duty.take(log, stop, self._wait_for):
                    return
                self._recall(self._read_state())
                self._state_read = True
                for watch in (self._shared_id, self._erasures):
                    if watch is not None:
                        watch.start()
            self._own.reopen()
            self._log = log
        except RetryableError as error:
            self._wait_for(str(error))
            stop.wait(max(self._next_delay(), error.retry_after_seconds))
        finally:
            if log is not None and self._log is None:
                log.abort()

    def _recall(self, found: list[tuple[str, bytes]]) -> None:
        """Load the state of earlier processes: of devices for the decoders, and of this gateway itself."""
        self._state.load([(key, value) for key, value in found if not is_own_state(key)])
        self._own.recall(found, self._read_outcomes)
        self._session.follow_epoch(self._own.epoch)
        self._backlog.known_us = self._own.reached_us or None
        if self._own.filters is not None:
            self._session.subscriptions.recall(self._own.filters)

    def _tick(self) -> None:
        """Run once a second, between messages."""
        now = time.monotonic()
        if now < self._tick_at:
            return
        self._tick_at = now + TICK_SECONDS
        self._broker.judge(now)
        self._accounts.session(
            broker_limit=self._broker.limit, contended=self._session.contended, id_shared=bool(self._shared())
        )
        if self._erasures is not None and (erased := self._erasures.take()):
            self._own.forget(erased)
        self._tracker.pass_time(now)
        self._accounts.memories({"sequence": self._tracker.fill, **self._policy.memory_fill()})
        try:
            self._reload.tick(self._processor, self._encoder, self._policy, self._receipts, self._own)
            self._processor.tick()
            self._encoder.tick()
            self._replies.tick()
            self._save(stopped=False)
        except Exception as error:
            logger.error("A task that runs each second failed: %s", show_text(f"{type(error).__name__}: {error}"))
            self._accounts.failed("tick")

    def _drain(self) -> None:
        """Stop reading, let Kafka report what it has, acknowledge that, and leave the rest to the broker."""
        self._health.say("draining", "stopping: acknowledging the messages that Kafka has")
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._log is not None and self._session.live and self._deliverer.busy and time.monotonic() < deadline:
            self._health.beat()
            self._turn(self._log, read=False)
            self._raise_give_up()
            if self._deliverer.abort_because is not None:
                break
        if self._log is not None:
            self._save(stopped=True)
            self._log.flush(SAVE_SECONDS)
            self._duty.release(self._log)

    def _counted(self, record: OutcomeRecord) -> None:
        self._own.follow(record)
        # Under load the next outcome is in flight at each tick.
        self._save(stopped=False)

    def _save(self, *, stopped: bool) -> None:
        if self._log is not None and self._chain.is_counted:
            self._own.filters = self._session.subscriptions.held
            self._own.reached_us = self._backlog.reached_us(self._chain.oldest_us)
            self._own.save(self._log, stopped=stopped)

    # State for people.

    def _wait_for(self, what: str, is_standby: bool = False) -> None:
        self._health.beat()
        self._health.say("standby" if is_standby else "waiting", what)
        self._duty.note(waits=is_standby)

    def _shared(self) -> str:
        return "" if self._shared_id is None else self._shared_id.words

    def _report_state(self, log: LogWriter) -> None:
        if self._is_held_back(log):
            self._health.say("waiting", f"waiting for Kafka to take {log.in_flight} records before reconnecting")
        elif not self._session.connected:
            self._health.say("waiting", self._session.detail)
        elif self._deliverer.busy and time.monotonic() - self._deliverer.progress_at > 3.0:
            self._health.say("waiting", f"waiting for Kafka to acknowledge {self._chain.in_flight} messages")
        else:
            self._health.say(
                "running", self._session.state + describe_inflight_limit(self._broker.limit) + self._shared()
            )


def _now_us() -> int:
    return time.time_ns() // 1000
