"""A power cut that takes the newest files of two tables and of the checkpoint, in any combination: each record lands once."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.contract.errors import FatalError
from streaming.checkpoint import LocalCheckpoint
from streaming.landing_offsets import (
    Mark,
    Offsets,
    behind,
    beyond,
    has_records,
    largest_offsets,
    newest_of,
    next_era,
    parse_mark,
)
from streaming.repair_checkpoint import checkpoint_findings, checkpoint_moves
from streaming.start_landing import choose_start_offsets, first_offsets, select_valid_marks
from streaming.vanished_commits import FinishedBatch, find_vanished_commits, replay_from

Row = tuple[str, int, int]
READINGS, LETTERS = "r", "d"
TABLES = ("readings", "letters")


@dataclass
class Pipeline:
    """Kafka's ends, commits of two tables (mark and rows), and a real checkpoint folder. Each seventh reading is refused."""

    folder: Path
    ends: Offsets = field(default_factory=lambda: {READINGS: {0: 0, 1: 0}, LETTERS: {0: 0}})
    commits: dict[str, list[tuple[Mark | None, list[Row]]]] = field(
        default_factory=lambda: {name: [(None, [])] for name in TABLES}
    )
    replay: Offsets = field(default_factory=dict)
    apps: int = 0
    time: int = 0

    @property
    def checkpoint(self) -> LocalCheckpoint:
        return LocalCheckpoint(self.folder)

    def marks(self, name: str) -> Iterator[Mark]:
        return (mark for mark, _ in reversed(self.commits[name]) if mark is not None)

    def newest(self) -> dict[str, Mark | None]:
        return {name: next(self.marks(name), None) for name in TABLES}

    def versions(self) -> dict[str, int]:
        return {name: len(commits) - 1 for name, commits in self.commits.items()}

    def start(self) -> bool:
        """Whether it starts; as the landing decides it."""
        checkpoint, marks = self.checkpoint, self.newest()
        try:
            checkpoint.verify()
        except FatalError:
            return False
        newest, begun = newest_of(marks.values()), checkpoint.begun()
        reached = FinishedBatch.of(checkpoint) if begun else None
        if (begun or not self.replay) and find_vanished_commits(newest, self.versions(), reached):
            return False
        if not begun:
            following = first_offsets(marks.values(), self.replay)
            self._make({topic: dict.fromkeys(parts, 0) for topic, parts in self.ends.items()}, following)
        self.app = checkpoint.query_id() or ""
        self.era = next_era(marks.values(), self.app if begun else None)
        self.done = {
            name: [
                (topic, part, end)
                for topic, parts in (mark.reach if mark else {}).items()
                for part, end in parts.items()
            ]
            for name, mark in select_valid_marks(marks, self.ends, {}).items()
        }
        self.marked, self.promised = largest_offsets(*(mark.ends for mark in marks.values() if mark)), False
        return True

    def restart(self) -> None:
        """A start; where it refuses, a repair, which finds something."""
        for _ in range(5):
            if self.start():
                return
            assert self.repair(), "a refusal that no repair mends"
        raise AssertionError(self.commits)

    def repair(self) -> bool:
        moves = [path for finding in checkpoint_findings(self.folder) for path in finding.moves]
        begun, newest = not moves and self.checkpoint.begun(), newest_of(self.newest().values())
        gone = find_vanished_commits(newest, self.versions(), FinishedBatch.of(self.checkpoint) if begun else None)
        for lost in gone if begun or not self.replay else ():
            history = [mark for name in TABLES for mark in self.marks(name)]
            for topic, parts in replay_from(lost, history, newest, self.checkpoint.starts(0)).items():
                into = self.replay.setdefault(topic, {})
                into |= {part: min(at, into.get(part, at)) for part, at in parts.items()}
            moves += checkpoint_moves(self.folder)
        for path in dict.fromkeys(moves):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return bool(moves)

    def land(self, most: int, *, killed_after: str = "") -> None:
        """The next batch, or the one that was planned; killed where told."""
        checkpoint = self.checkpoint
        planned, finished = checkpoint.planned(), checkpoint.finished()
        number = planned if planned is not None and planned != finished else (-1 if finished is None else finished) + 1
        starts = checkpoint.starts(number)
        if number != planned:
            ends = {
                t: {p: min(starts.get(t, {}).get(p, 0) + most, end) for p, end in parts.items()}
                for t, parts in self.ends.items()
            }
            if not has_records(starts, ends):
                return
            self._write(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(ends)}")
        ends = checkpoint.ends(number)
        self.done = {name: behind(starts, done) for name, done in self.done.items()}
        rows = {name: list(self._rows(name, starts, ends)) for name in TABLES}
        if killed_after == "plan":
            return
        if rows["readings"]:
            follows = ("letters",) if rows["letters"] else ()
            self._commit("readings", number, starts, ends, rows["readings"], follows)
        if killed_after == "readings":
            return
        if rows["letters"]:
            self._commit("letters", number, starts, ends, rows["letters"])
        if killed_after == "letters":
            return
        if has_records(self.marked, ends):
            self._commit("readings", number, starts, ends, [])
        self._write(f"commits/{number}", "v1\n{}")

    def lose(self, readings: int, letters: int, plans: int, finished: int, *, whole: bool) -> None:
        """The newest files are gone."""
        for name, count in (("readings", readings), ("letters", letters)):
            del self.commits[name][max(1, len(self.commits[name]) - count) :]
        for name, count in (("offsets", plans), ("commits", finished)):
            files = sorted((self.folder / name).iterdir(), key=lambda path: -int(path.name))
            for path in files[:count]:
                path.unlink()
        if whole:
            shutil.rmtree(self.folder)

    def _make(self, oldest: Offsets, following: Offsets | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.apps += 1
        for name in ("offsets", "commits", "sources/0"):
            (self.folder / name).mkdir(parents=True)
        self._write("metadata", json.dumps({"id": f"app{self.apps}"}))
        self._write("sources/0/0", f"\0v1\n{json.dumps(choose_start_offsets(following, oldest, []))}")

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _rows(self, name: str, starts: Offsets, ends: Offsets) -> Iterator[Row]:
        covered = {(topic, part): end for topic, part, end in self.done[name]}
        for topic, parts in ends.items():
            for part, end in parts.items():
                first = max(starts.get(topic, {}).get(part, 0), covered.get((topic, part), 0))
                yield from ((topic, part, at) for at in range(first, end) if wants(name, topic, at))

    def _commit(
        self, name: str, batch: int, starts: Offsets, ends: Offsets, rows: list[Row], follows: Any = ()
    ) -> None:
        self.time += 1
        further = beyond(ends, self.done[name])
        mark = Mark(
            self.app, batch, starts, ends, versions=self.versions(), follows=follows, beyond=further, era=self.era
        )
        self.commits[name].append((replace(parse_mark(mark.encode()) or mark, at_ms=self.time), rows))
        self.marked, self.replay = largest_offsets(self.marked, ends), {}


def wants(name: str, topic: str, offset: int) -> bool:
    is_letter = topic == LETTERS or offset % 7 == 0
    return is_letter == (name == "letters")


SOME = st.integers(0, 3)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "land", "land", "restart", "add a partition", "plan", "readings", "letters"]
        ),
        st.sampled_from([(READINGS, 0), (READINGS, 1), (LETTERS, 0)]),
        st.integers(1, 9),
    ),
    max_size=16,
)


@settings(max_examples=60)
@given(before=STEPS, lost=st.tuples(SOME, SOME, SOME, SOME), whole=st.booleans(), after=STEPS)
def test_whatever_newest_files_a_power_cut_takes_each_record_lands_once(
    before: list[tuple[str, tuple[str, int], int]],
    lost: tuple[int, int, int, int],
    whole: bool,
    after: list[tuple[str, tuple[str, int], int]],
) -> None:
    with TemporaryDirectory() as folder:
        pipeline = Pipeline(Path(folder) / "land")
        pipeline.restart()
        run(pipeline, before)
        pipeline.lose(*lost, whole=whole)
        pipeline.restart()
        run(pipeline, after)
        for parts in pipeline.ends.values():
            parts.update({part: end + 3 for part, end in parts.items()})
        pipeline.restart()
        while has_records(pipeline.checkpoint.next_offsets() or {}, pipeline.ends):
            pipeline.land(50)
        for name in TABLES:
            rows = [row for _, each in pipeline.commits[name] for row in each]
            wanted = {
                (topic, part, at)
                for topic, parts in pipeline.ends.items()
                for part, end in parts.items()
                for at in range(end)
                if wants(name, topic, at)
            }
            assert len(rows) == len(set(rows)), f"{name}: landed twice"
            assert set(rows) == wanted, f"{name}: skipped"


def run(pipeline: Pipeline, steps: list[tuple[str, tuple[str, int], int]]) -> None:
    for step, (topic, part), count in steps:
        if step == "append":
            pipeline.ends[topic][part] += count
        elif step == "land":
            pipeline.land(count)
        elif step == "add a partition":
            pipeline.ends[READINGS].setdefault(len(pipeline.ends[READINGS]), count)
        else:
            if step != "restart":
                pipeline.land(count, killed_after=step)
            pipeline.restart()
