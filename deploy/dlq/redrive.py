"""Redrive of dead letters: judge them with gateway/redrive.py, produce and count them like a gateway, write the journal.

A redrive works in steps of at most 100 messages. In each step Kafka first gets all records, then the outcome that counts
them; the journal is written last. A kill between any two of these does no harm: `tidegate audit` still balances, because it
counts a message past its epoch's last outcome from its record. The next redrive repeats the step, and Spark drops by identity
what is stored already.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from deploy.dlq.dead_letter_query import find_dead_letters, stored_identities, stored_parts
from deploy.dlq.journal import RedriveEntry, RedriveJournal
from deploy.settings import Settings
from gateway.decoders.state import DecoderState
from gateway.memory.restart_state import is_own_state
from gateway.message_processor import MessageProcessor
from gateway.profiles.policy import make_policy
from gateway.redrive import DeadLetter, RedriveOutcome, drop_stored_readings, judge_dead_letters, reading_identities
from gateway.routes import compile_routes
from ingest.contract.errors import RetryableError, TidegateError
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import RECORD_VERSION, REDRIVE_GATEWAY, encode_record
from ingest.contract.reasons import Reason, Stage
from ingest.contract.topics import OUTCOMES, READINGS
from ingest.log import DeliveryError, LogWriter
from ingest.security import RECORD_OVERHEAD_BYTES

__all__ = ["RedriveReport", "RedriveRun", "make_redrive_processor", "run_redrive"]

STEP_MESSAGES: Final = 100
EXAMPLES: Final = 10
FIRST_READINGS: Final = 3
PATIENCE_SECONDS: Final = 30.0
"""Longest time without a report of Kafka while records wait."""
YOUNG_US: Final = 24 * 3600 * 1_000_000
"""Default of `young_us`: Spark remembers identities (stream.horizon_days) this much longer than a broker keeps a session."""
_MINUTE_US: Final = 60_000_000


@dataclass
class RedriveReport:
    """Result of a redrive. All counts are dead letters, except `readings`.

    Attributes:
        run: name of the run, its start in epoch ms.
        accepted: letters whose messages went to Kafka; of these, `partial` ones have parts that are still rejected.
        readings: readings that went to Kafka; `first` has up to three of them: device, metric, value, text, unit.
        stored: letters whose readings were in the table already.
        refused: letters that are still rejected, by reason.
        ignored: letters whose messages a rule now ignores, by rule.
        skipped: letters that cannot be judged, by the text that says why.
        examples: one letter of each kind of rejection, at most ten.
    """

    run: int
    dry_run: bool
    letters: int = 0
    accepted: int = 0
    readings: int = 0
    partial: int = 0
    stored: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    first: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    def add(self, verdict: RedriveOutcome) -> None:
        """Count the letters of one judged message."""
        count = len(verdict.letters)
        self.letters += count
        if verdict.ending == "accepted":
            self.accepted += count
            self.readings += verdict.readings
            self.partial += count if verdict.faults else 0
            self._list(verdict)
        elif verdict.ending == "stored":
            self.stored += count
        elif verdict.ending == "refused":
            self.refused[verdict.faults[0].reason.value if verdict.faults else Reason.KAFKA_TOO_LARGE.value] += count
        else:
            (self.ignored if verdict.ending == "ignored" else self.skipped)[verdict.why or ""] += count
        if verdict.ending in ("refused", "skipped"):
            self._show(_example(verdict))

    def _list(self, verdict: RedriveOutcome) -> None:
        room = FIRST_READINGS - len(self.first)
        told = ((record.device, reading) for record in verdict.records for reading in record.readings)
        for device, reading in islice(told, max(0, room)):
            names = ("metric", "value", "text", "unit")
            self.first.append({"device": device, **{name: getattr(reading, name) for name in names}})

    def _show(self, example: dict[str, Any]) -> None:
        """Keep the example if it is the first of its kind."""
        kind = example.get("reason"), example.get("why")
        if len(self.examples) < EXAMPLES and kind not in [(e.get("reason"), e.get("why")) for e in self.examples]:
            self.examples.append(example)


class RedriveRun:
    """One redrive. `writer` and `journal` are None for a dry run, which judges but produces nothing."""

    def __init__(
        self,
        root: str,
        gate: MessageProcessor,
        *,
        run: int,
        writer: LogWriter | None = None,
        journal: RedriveJournal | None = None,
        young_us: int | None = None,
    ) -> None:
        """Prepare the run. Spark itself recognises copies of messages that were received in the last `young_us` (µs)."""
        self._young_us = YOUNG_US if young_us is None else young_us
        self._root, self._gate, self._writer, self._journal = root, gate, writer, journal
        self._number = 0
        self.report = RedriveReport(run, dry_run=writer is None)

    def run(self, letters: Sequence[DeadLetter], *, rate: float, stop: threading.Event) -> RedriveReport:
        """Redrive these letters, at most `rate` messages per second, until all are done or `stop` is set.

        Raises:
            RetryableError: Kafka does not take or confirm records; the journal has the steps before.
        """
        messages, size = _by_message(letters), max(1, min(STEP_MESSAGES, int(rate)))
        for first in range(0, len(messages), size):
            step, began = messages[first : first + size], time.monotonic()
            self._step(step)
            if self._writer is not None:
                stop.wait(max(0.0, len(step) / rate - (time.monotonic() - began)))
            if stop.is_set():
                break
        return self.report

    def _step(self, messages: Sequence[list[DeadLetter]]) -> None:
        parts = stored_parts(self._root, (letter for letters in messages for letter in letters if letter.partial))
        verdicts = [judge_dead_letters(letters, self._gate, parts.get(letters[0].message, ())) for letters in messages]
        verdicts = self._leave_out(verdicts)
        if self._writer is not None and self._journal is not None:
            verdicts = [self._fitting(verdict, self._writer) for verdict in verdicts]
            self._produce(verdicts, self._writer)
            self._journal.append(_entries(verdicts, self._journal))
        for verdict in verdicts:
            self.report.add(verdict)

    def _leave_out(self, verdicts: list[RedriveOutcome]) -> list[RedriveOutcome]:
        """Remove readings that another delivery or redrive has stored. For young messages Spark does the same itself."""
        before_us = time.time_ns() // 1000 - self._young_us
        old = [one for one in verdicts if one.ending == "accepted" and one.letters[0].received_us < before_us]
        wanted = {identity for verdict in old for identity in reading_identities(verdict)}
        if not wanted:
            return verdicts
        moments = [verdict.letters[0].received_us for verdict in old]
        stored = stored_identities(self._root, wanted, min(moments), max(moments))
        return [drop_stored_readings(verdict, stored) for verdict in verdicts]

    def _fitting(self, verdict: RedriveOutcome, writer: LogWriter) -> RedriveOutcome:
        """Return the verdict, or a rejection if one of its records is too large for Kafka."""
        for record in verdict.records:
            record.epoch = self.report.run
        sizes = [len(encode_record(r)) + len(r.device.encode()) + RECORD_OVERHEAD_BYTES + 20 for r in verdict.records]
        limit = writer.max_record_bytes(READINGS)
        if max(sizes, default=0) <= limit:
            return verdict
        why = f"a record of {max(sizes)} bytes is above the limit of topic {READINGS} ({limit} bytes)"
        return RedriveOutcome(verdict.letters, "refused", why=why)

    def _produce(self, verdicts: Sequence[RedriveOutcome], writer: LogWriter) -> None:
        counts: dict[tuple[str | None, int], Count] = {}
        first, reports = self._number + 1, _Reports(writer)
        for verdict in verdicts:
            if verdict.ending not in ("accepted", "ignored"):
                continue
            self._number += 1
            self._count(verdict, counts)
            for record in verdict.records:
                record.number = self._number
                reports.produce(READINGS, record.device.encode(), encode_record(record))
        if not counts:
            return
        reports.wait()
        outcome = OutcomeRecord(
            RECORD_VERSION, REDRIVE_GATEWAY, self.report.run, first, self._number, list(counts.values()), began=1
        )
        reports.produce(OUTCOMES, REDRIVE_GATEWAY.encode(), encode_outcome(outcome))
        reports.wait()

    def _count(self, verdict: RedriveOutcome, counts: dict[tuple[str | None, int], Count]) -> None:
        device = verdict.records[0].device if verdict.records else verdict.letters[0].device
        minute = verdict.letters[0].received_us // _MINUTE_US
        count = counts.setdefault((device, minute), Count(minute, 0, device, ignored={}))
        count.received += 1
        if verdict.ending == "accepted":
            count.accepted += 1
            for other in dict.fromkeys(record.device for record in verdict.records):
                if other != device:
                    counts.setdefault((other, minute), Count(minute, 0, other, ignored={})).shared += 1
        else:
            why = verdict.why or ""
            count.ignored[why] = count.ignored.get(why, 0) + 1


class _Reports:
    """Records given to the writer, and the wait for Kafka's reports of them."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._waiting = 0
        self._error: DeliveryError | None = None

    def produce(self, topic: str, key: bytes, value: bytes) -> None:
        self._waiting += 1
        self._writer.produce(topic, key, value, self._report)

    def wait(self) -> None:
        """Return when Kafka has all records.

        Raises:
            RetryableError: Kafka rejects a record, or reports nothing for 30 s.
        """
        heard_at, waiting = time.monotonic(), self._waiting
        while self._waiting and self._error is None:
            self._writer.poll(0.1)
            if self._waiting < waiting:
                heard_at, waiting = time.monotonic(), self._waiting
            elif time.monotonic() - heard_at > PATIENCE_SECONDS:
                self._error = DeliveryError("retriable", f"no report within {PATIENCE_SECONDS:g} s")
        if self._error is not None:
            message = (
                f"Kafka did not accept all redriven records ({self._error.text}). The journal names the finished ones. Run the "
                "same command again for the rest; nothing is stored twice."
            )
            raise RetryableError(message)

    def _report(self, error: DeliveryError | None) -> None:
        self._waiting -= 1
        self._error = self._error or error


def _by_message(letters: Sequence[DeadLetter]) -> list[list[DeadLetter]]:
    """Return the letters grouped by message, in the order received. A letter of the stream is one record by itself."""
    found: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault(letter.id if letter.stage == Stage.STREAM else letter.message, []).append(letter)
    return list(found.values())


def _entries(verdicts: Sequence[RedriveOutcome], journal: RedriveJournal) -> Iterator[RedriveEntry]:
    for verdict in verdicts:
        if verdict.ending == "skipped":
            continue
        for letter in verdict.letters:
            name = letter.source_topic, letter.partition, letter.offset, letter.epoch, letter.number
            why = verdict.faults[0].reason.value if verdict.faults else verdict.why
            yield journal.entry(name, verdict.ending, readings=verdict.readings, why=why)


def _example(verdict: RedriveOutcome) -> dict[str, Any]:
    letter = verdict.letters[0]
    shown: dict[str, Any] = {"id": letter.id, "device": letter.device, "topic": letter.topic, "ending": verdict.ending}
    if verdict.faults:
        fault = verdict.faults[0]
        return shown | {"reason": fault.reason.value, "path": fault.path, "got": fault.got, "wanted": fault.wanted}
    return shown | {"why": verdict.why}


def make_redrive_processor(settings: Settings, state: Iterable[tuple[str, bytes]] = ()) -> MessageProcessor:
    """Make a processor that judges as a gateway with these settings, but without a rate limit.

    `state` is the decoder state of the gateways, such as births and aliases. Steps and stuck values are judged only within
    the redrive, because the last values of the live gateway are from another time.
    """
    policy = make_policy(settings.gateway, settings.routes, live=False)
    routes = compile_routes(settings.routes, settings.gateway)
    state = [(key, value) for key, value in state if not is_own_state(key)]
    return MessageProcessor(routes, settings.gateway, state=DecoderState(state), policy=policy)


def _state(settings: Settings, *, needed: bool) -> list[tuple[str, bytes]]:
    from ingest.gateway_state import read_state

    try:
        return read_state(settings.kafka)
    except TidegateError:
        if needed:
            raise
        return []  # a dry run works without Kafka; messages that need a birth are then rejected


def run_redrive(
    settings: Settings,
    *,
    where: str | None,
    limit: int | None,
    again: bool,
    rate: float,
    dry_run: bool,
    stop: threading.Event,
) -> RedriveReport:
    """Redrive the letters that `where` finds, and return the report.

    Args:
        settings: settings of the pipeline.
        where: SQL condition on columns of `dead_letters`; None for all letters.
        limit: most letters; None for no limit.
        again: also redrive letters that an earlier redrive has finished.
        rate: most messages per second.
        dry_run: judge the letters, but produce nothing.
        stop: ends the redrive between two steps.

    Raises:
        FatalError: another redrive runs.
        RetryableError: Kafka does not take or confirm records.
        TidegateError: `where` is not SQL.
    """
    from ingest.producer import open_writer
    from ingest.record_limits import LearnedLimits

    root, run = settings.lake.root, time.time_ns() // 1_000_000
    gate = make_redrive_processor(settings, _state(settings, needed=not dry_run))
    with ExitStack() as cleanup:
        journal = writer = None
        if not dry_run:
            journal = RedriveJournal(root, run)
            cleanup.callback(journal.close)
            journal.join_files(settings.lake.dead_letters_days)
            writer = open_writer(settings.kafka, client_id="tidegate-redrive", learned=LearnedLimits(batch_bytes=1))
            cleanup.callback(writer.close)
        # The letters are looked up under the journal's lock, so they include the result of a redrive that has just ended.
        young = max(0.0, settings.stream.horizon_days * 86_400 - settings.mqtt.session_expiry_seconds)
        redrive = RedriveRun(root, gate, run=run, writer=writer, journal=journal, young_us=int(young * 1_000_000))
        for letters in find_dead_letters(root, where, limit, again=again):
            redrive.run(letters, rate=rate, stop=stop)
            if stop.is_set():
                break
        return redrive.report
