"""Messages that the gateways counted: the numbers of each epoch, and holes and overlaps between them.

An outcome counts the messages `first` to `upto` of one epoch of a gateway, and the outcomes of an epoch are consecutive. A hole
is a run of messages that were received but not counted; an overlap was counted twice. Outcomes may come in any order, since
their topic may have several partitions. Pure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingest.contract.outcome import OutcomeRecord

__all__ = ["CountedMessages", "EpochSpan", "NumberRun"]

MINUTE_US: Final = 60_000_000
_EXAMPLES: Final = 10
_NEVER: Final = 1 << 60


class NumberRun(NamedTuple):
    """The messages `first` to `upto` of one epoch of a gateway."""

    gateway: str
    epoch: int
    first: int
    upto: int

    @property
    def messages(self) -> int:
        """Number of messages in the run."""
        return self.upto - self.first + 1


class EpochSpan(NamedTuple):
    """Times at which Kafka appended the first and the last outcome of an epoch (ms), and the last number that they count."""

    gateway: str
    epoch: int
    first_ms: int
    last_ms: int
    upto: int


@dataclass(slots=True)
class _Epoch:
    """`lows` and `highs` are disjoint runs that do not touch, ascending; `minutes` is the first minute of each run."""

    lows: list[int] = field(default_factory=list)
    highs: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=list)
    began: int | None = None
    first_ms: int = _NEVER
    last_ms: int = -1
    upto: int = -1

    def see(self, outcome: OutcomeRecord, timestamp_ms: int) -> None:
        """Note that it was alive."""
        self.first_ms, self.last_ms = min(self.first_ms, timestamp_ms), max(self.last_ms, timestamp_ms)
        self.upto = max(self.upto, outcome.upto)
        self.began = outcome.began if self.began is None else self.began

    def insert(self, first: int, upto: int, minute: int) -> int:
        """Take a run; returns how many of its numbers were there before."""
        if self.highs and first == self.highs[-1] + 1:
            self.highs[-1] = upto
            return 0
        low, high = bisect_left(self.highs, first - 1), bisect_right(self.lows, upto + 1)
        near = list(zip(self.lows[low:high], self.highs[low:high], self.minutes[low:high], strict=True))
        known = sum(max(0, min(b, upto) - max(a, first) + 1) for a, b, _ in near)
        start, _, minute = min([(first, upto, minute), *near])
        self.lows[low:high] = [start]
        self.highs[low:high] = [max([upto, *(b for _, b, _ in near)])]
        self.minutes[low:high] = [minute]
        return known


class CountedMessages:
    """Counts of the outcomes of a window.

    Args:
        cutoff_us: only faults of messages received at or after this time are named; a whole minute.
        from_the_start: True where the outcomes were read from the topic's first record.

    Attributes:
        overlaps: messages that two outcomes count, in all.
        examples: some of these.
    """

    def __init__(self, cutoff_us: int, *, from_the_start: bool = False) -> None:
        self._cutoff_us, self._from_the_start = cutoff_us, from_the_start
        self._epochs: dict[tuple[str, int], _Epoch] = {}
        self._short: dict[tuple[str, int], int] = {}
        self.overlaps = 0
        self.examples: list[NumberRun] = []

    def add(self, outcome: OutcomeRecord, timestamp_ms: int) -> bool:
        """Take an outcome; False where it counts nothing new, so that its counts are not to be added."""
        name = (outcome.gateway, outcome.epoch)
        if outcome.upto < outcome.first:
            self._short[name] = self._short.get(name, 0) + sum(count.received for count in outcome.counts)
            return False
        epoch = self._epochs.setdefault(name, _Epoch())
        epoch.see(outcome, timestamp_ms)
        minute = min((count.minute for count in outcome.counts if count.received), default=_NEVER)
        known = epoch.insert(outcome.first, outcome.upto, minute)
        messages = outcome.upto - outcome.first + 1
        if minute * MINUTE_US >= self._cutoff_us:
            if known:
                self._note_overlap(NumberRun(*name, outcome.first, outcome.upto), known)
            self._short[name] = self._short.get(name, 0) + _missing_in(outcome, messages)
        return known < messages

    def add_late(self, outcome: OutcomeRecord, timestamp_ms: int) -> None:
        """Take an outcome that came while the records were read: it says who is alive and how far it has counted."""
        self._epochs.setdefault((outcome.gateway, outcome.epoch), _Epoch()).see(outcome, timestamp_ms)

    def knows(self, gateway: str) -> bool:
        """Return whether this gateway has counted anything."""
        return any(name == gateway for name, _ in self._epochs)

    def runs(self) -> Iterator[NumberRun]:
        """Yield the counted runs."""
        for name, epoch in self._epochs.items():
            yield from (NumberRun(*name, low, high) for low, high in zip(epoch.lows, epoch.highs, strict=True))

    def lives(self) -> Iterator[EpochSpan]:
        """Each epoch that has counted anything."""
        for name, epoch in self._epochs.items():
            yield EpochSpan(*name, epoch.first_ms, epoch.last_ms, epoch.upto)

    def openings(self, messages: int, since_us: int) -> Iterator[NumberRun]:
        """The first messages of each epoch that began in the window, where the gateway had not counted since `since_us`.

        What the broker sends again is among them, and was received for the first time before that.
        """
        lives = [] if self._from_the_start else list(self.lives())
        for life in lives:
            began = self._epochs[life.gateway, life.epoch].began
            is_known = any(
                other.gateway == life.gateway and other.epoch < life.epoch and other.last_ms * 1000 >= since_us
                for other in lives
            )
            if began is not None and not is_known and self._sees_beginning(life.epoch):
                yield NumberRun(life.gateway, life.epoch, began, began + messages - 1)

    def holes(self) -> Iterator[NumberRun]:
        """Messages between two outcomes, or before the first one of an epoch, that none counts."""
        for name, epoch in self._epochs.items():
            before = [] if epoch.began is None or not self._sees_beginning(name[1]) else [epoch.began - 1]
            ends = [*before, *epoch.highs] if before else epoch.highs
            for end, low, minute in zip(
                ends, epoch.lows if before else epoch.lows[1:], epoch.minutes if before else epoch.minutes[1:],
                strict=False,
            ):  # fmt: skip
                if low > end + 1 and minute * MINUTE_US >= self._cutoff_us:
                    yield NumberRun(*name, end + 1, low - 1)

    def short(self) -> dict[tuple[str, int], int]:
        """(gateway, epoch) -> by how much the counts of its outcomes miss the number of messages that they are about."""
        return {name: count for name, count in self._short.items() if count}

    def _sees_beginning(self, epoch: int) -> bool:
        return self._from_the_start or epoch * 1000 >= self._cutoff_us

    def _note_overlap(self, run: NumberRun, known: int) -> None:
        self.overlaps += known
        if len(self.examples) < _EXAMPLES:
            self.examples.append(run)


def _missing_in(outcome: OutcomeRecord, messages: int) -> int:
    received = sum(count.received for count in outcome.counts)
    ended = sum(
        count.accepted + sum(count.dead_lettered.values()) + sum(count.ignored.values()) for count in outcome.counts
    )
    return max(abs(messages - received), abs(messages - ended))
