"""Marks of a landing's commits: where a batch began and ended, and the name of each partition's last record.

The names are read from Kafka on a separate thread while Spark works on the batch, whose ends are known at its begin. If the
name of a partition does not come in time, the mark has the name before it: a name belongs to its own offset.

A new leader epoch may mean that the log was cut back while the query ran. The last known name is then read again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import replace
from typing import Final

from ingest.contract.errors import FatalError, RetryableError
from ingest.read.record_names import Names
from streaming.landing_offsets import Cuts, Mark, Offsets
from streaming.lost_records import StartInstruction

__all__ = ["LastNames", "Marker"]

PATIENCE_SECONDS: Final = 2.0
"""Kafka has this long to give a batch's names; after a time without an answer no batch waits until one came."""

ReadNames = Callable[[Mapping[str, Mapping[int, int]], float], tuple[Names, bool]]
"""Names of the records at these offsets, within so many seconds, and whether Kafka answered for all."""


class LastNames:
    """The names of the last records that were read, asked for batch by batch."""

    def __init__(self, last: Names, read: ReadNames) -> None:
        """`last` are known already; `read` asks Kafka."""
        self._last, self._read = last, read
        self._worker = ThreadPoolExecutor(1, "names")
        self._asked: Future[None] | None = None
        self._unnamed: set[tuple[str, int]] = set()
        self._patience = PATIENCE_SECONDS

    def begin(self, starts: Offsets, ends: Offsets) -> None:
        """A batch of these records begins: ask for the names of its last ones."""
        if self._asked is None or self._asked.done():
            self._asked = self._worker.submit(self._learn, starts, ends)

    def before(self, ends: Offsets | None = None) -> Names:
        """The newest names, or those of them that lie before these ends.

        Raises:
            FatalError: Kafka has another record where the mark before names one.
        """
        try:
            if self._asked is not None:
                self._asked.result(self._patience)
        except Late:
            self._patience = 0.0
        if ends is None:
            return self._last
        return {
            topic: {part: name for part, name in parts.items() if name.offset < ends.get(topic, {}).get(part, 0)}
            for topic, parts in self._last.items()
        }

    def close(self) -> None:
        """Wait for what was asked."""
        self._worker.shutdown()

    def _learn(self, starts: Offsets, ends: Offsets) -> None:
        wanted = {
            topic: {part: end - 1 for part, end in parts.items() if end > starts.get(topic, {}).get(part, 0)}
            for topic, parts in ends.items()
        }
        names, whole = self._read(wanted, PATIENCE_SECONDS)
        self._patience = PATIENCE_SECONDS if whole else 0.0
        self._refuse_cut(names)
        for topic, parts in wanted.items():
            for part in parts:
                is_known = names.get(topic, {}).get(part) is not None
                (self._unnamed.discard if is_known else self._unnamed.add)((topic, part))
        self._last = _newer(self._last, names)

    def _refuse_cut(self, names: Names) -> None:
        doubted: Names = {}
        unsure: str | bool = False
        for topic, parts in names.items():
            for part, name in parts.items():
                known = self._last.get(topic, {}).get(part)
                if known is not None and known.offset < name.offset and known.leader_epoch != name.leader_epoch:
                    doubted.setdefault(topic, {})[part] = known
                    unsure = unsure or ((topic, part) in self._unnamed and f"{topic} partition {part}")
        if not doubted:
            return
        found, _ = self._read(_offsets(doubted), PATIENCE_SECONDS)
        cut = [
            f"{topic} partition {part} offset {known.offset}"
            for topic, parts in doubted.items()
            for part, known in parts.items()
            if not known.is_same(found.get(topic, {}).get(part, known))
        ]
        if cut:
            message = (
                f"Kafka's log was cut back while it was read: {'; '.join(cut)} holds another record than the one that landed. No "
                "record is skipped without a report. Run `tidegate repair --accept-loss` to see the effect of going on, and "
                "again with --apply to do it; stored rows stay. A SQL stream says at its next start how it goes on."
            )
            raise FatalError(message)
        if unsure:
            message = (
                f"{unsure} has a new leader, and Kafka did not return the name of the last record before the change in time. "
                "Reading starts again, and stored rows are then compared with Kafka's log."
            )
            raise RetryableError(message)


class Marker(LastNames):
    """Marks of one landing; a commit asks for the mark of its batch."""

    def __init__(
        self, ids: Mapping[str, str], order: StartInstruction, cuts: Cuts, last: Names, read: ReadNames, *, era: int = 0
    ) -> None:
        """Create a marker that goes on from the tables' state.

        Args:
            ids: Kafka's ids of the topics.
            order: of a repair; its accepted losses go into the first mark.
            cuts: all accepted ones.
            last: names that are known already.
            read: asks Kafka for names.
            era: the number of the checkpoint.
        """
        super().__init__(last, read)
        self._ids, self._order, self._cuts, self._era = ids, order, cuts, era

    def mark(
        self,
        app: str,
        batch: int,
        starts: Offsets,
        ends: Offsets,
        versions: Mapping[str, int] | None = None,
        follows: Sequence[str] = (),
        beyond: Offsets | None = None,
    ) -> Mark:
        """The mark of a commit.

        Args:
            app: the query.
            batch: its number.
            starts: where it begins.
            ends: where it ends.
            versions: of the landed tables before this commit.
            follows: tables that the batch commits to after this one.
            beyond: how far the table is where that is further.

        Raises:
            FatalError: Kafka has another record where the mark before names one.
        """
        accepted, last = self._order.accepted, self.before()
        mark = Mark(app, batch, starts, ends, self._ids, accepted, last, self._cuts, versions or {}, follows)
        return replace(mark, beyond=beyond or {}, era=self._era)

    def settle(self) -> None:
        """The mark is committed: what a repair said to this start is done."""
        accepted, self._order = self._order, StartInstruction()
        accepted.settle()


def _newer(known: Names, names: Names) -> Names:
    """Per partition the later of both: a batch that is read again may end earlier than before."""
    newer = {topic: dict(parts) for topic, parts in known.items()}
    for topic, parts in names.items():
        into = newer.setdefault(topic, {})
        into |= {part: name for part, name in parts.items() if part not in into or name.offset > into[part].offset}
    return newer


def _offsets(names: Names) -> dict[str, dict[int, int]]:
    return {topic: {part: name.offset for part, name in parts.items()} for topic, parts in names.items()}
