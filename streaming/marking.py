"""Makes the marks of a landing's commits: where a batch began and ended, and the name of each partition's last record.

The names are read from Kafka on a thread of their own while Spark works at the batch, whose ends are known when it begins. A
partition whose name did not come in time keeps the one before: a name holds for its own offset.

A new leader's epoch says that the log may have been cut back while the query ran: then the last known name is asked for again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Final

from ingest.contract.errors import FatalError
from ingest.record_names import Names, RecordName
from streaming.losses import StartOrder, remade_topics
from streaming.offsets import Cuts, Mark, Offsets

__all__ = ["LastNames", "Marker", "known_names"]

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
        self._patience = PATIENCE_SECONDS

    def begin(self, starts: Offsets, ends: Offsets) -> None:
        """A batch of these records begins: ask for the names of its last ones."""
        if self._asked is None or self._asked.done():
            self._asked = self._worker.submit(self._learn, starts, ends)

    def before(self, ends: Offsets) -> Names:
        """The newest names that lie before these ends.

        Raises:
            FatalError: Kafka has another record where the mark before names one.
        """
        try:
            if self._asked is not None:
                self._asked.result(self._patience)
        except Late:
            self._patience = 0.0
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
        self._last = {topic: {**self._last.get(topic, {}), **names.get(topic, {})} for topic in {*self._last, *names}}

    def _refuse_cut(self, names: Names) -> None:
        doubted: Names = {}
        for topic, parts in names.items():
            for part, name in parts.items():
                known = self._last.get(topic, {}).get(part)
                if known is not None and known.offset < name.offset and known.leader_epoch != name.leader_epoch:
                    doubted.setdefault(topic, {})[part] = known
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
                f"Kafka's log was cut back while it was read: {'; '.join(cut)} holds another record than was landed. Nothing is "
                "skipped in silence. Run `tidegate repair --accept-loss` to see what going on means, and with --apply to do it; "
                "stored rows stay. A SQL stream says at its next start how it goes on."
            )
            raise FatalError(message)


class Marker(LastNames):
    """Of one landing; a commit asks it for the mark of its batch."""

    def __init__(self, ids: Mapping[str, str], order: StartOrder, cuts: Cuts, last: Names, read: ReadNames) -> None:
        """A marker that goes on from what the tables hold.

        Args:
            ids: Kafka's ids of the topics.
            order: of a repair; its accepted losses go into the first mark.
            cuts: all accepted ones.
            last: names that are known already.
            read: asks Kafka for names.
        """
        super().__init__(last, read)
        self._ids, self._order, self._cuts = ids, order, cuts

    def mark(
        self,
        app: str,
        batch: int,
        starts: Offsets,
        ends: Offsets,
        versions: Mapping[str, int] | None = None,
        follows: Sequence[str] = (),
    ) -> Mark:
        """The mark of a commit.

        Args:
            app: the query.
            batch: its number.
            starts: where it begins.
            ends: where it ends.
            versions: of the landed tables before this commit.
            follows: tables that the batch commits to after this one.

        Raises:
            FatalError: Kafka has another record where the mark before names one.
        """
        accepted, last = self._order.accepted, self.before(ends)
        return Mark(app, batch, starts, ends, self._ids, accepted, last, self._cuts, versions or {}, follows)

    def settle(self) -> None:
        """The mark is committed: what a repair said to this start is done."""
        accepted, self._order = self._order, StartOrder()
        accepted.settle()


def known_names(mark: Mark | None, ids: Mapping[str, str], cuts: Cuts) -> Names:
    """The names of the newest mark that still hold: of the same topics, before what was cut off."""
    anew = remade_topics(mark, ids)

    def holds(topic: str, part: int, name: RecordName) -> bool:
        return mark is not None and all(name.offset < edge for edge in mark.edges_since(cuts, topic, part))

    return {
        topic: {part: name for part, name in parts.items() if holds(topic, part, name)}
        for topic, parts in (mark.last if mark else {}).items()
        if topic not in anew
    }


def _offsets(names: Names) -> dict[str, dict[int, int]]:
    return {topic: {part: name.offset for part, name in parts.items()} for topic, parts in names.items()}
