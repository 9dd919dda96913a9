"""The live files of a rollup table by their windows, kept up to date from the log without a snapshot per pass."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Final

from lakehouse.changes import DataFile, LogExpired, newest_version, read_changes, table_files
from lakehouse.file_stats import time_span
from streaming.derive.windows import DAY_US

__all__ = ["LiveFiles", "Span", "day_of"]

_EPOCH: Final = date(1970, 1, 1)

Span = tuple[int, int]
"""The first and the last moment that rows of a file may have."""


class LiveFiles:
    """Files by the day of their windows, each with the span of its window starts. Not thread-safe."""

    def __init__(self, root: str, name: str) -> None:
        self._root, self._name = root, name
        self.version = -1
        self._days: dict[int, dict[str, tuple[DataFile, Span]]] = {}
        self._load()

    def refresh(self, upto: int | None = None) -> list[DataFile]:
        """Take in what was committed since; returns the files that are new.

        Args:
            upto: a version that is known to be there; None looks for the newest.
        """
        fresh: list[DataFile] = []
        try:
            for change in read_changes(self._root, self._name, after=self.version, upto=upto):
                if not change.added and not change.removed:
                    # Rows were rearranged, or nothing was: the log's own summary says which files are live.
                    self._load()
                    break
                for file in change.removed:
                    self._days.get(day_of(file), {}).pop(file.path, None)
                for file in change.added:
                    self._add(file)
                fresh += change.added
                self.version = change.version
        except LogExpired:
            self._load()
        return fresh

    def overlapping(self, spans: Iterable[Span]) -> list[DataFile]:
        """The files that may hold windows that begin within any of these spans (both ends inclusive)."""
        found: dict[str, DataFile] = {}
        for low, high in spans:
            for day in self._days_between(low, high):
                for path, (file, (first, last)) in self._days[day].items():
                    if first <= high and last >= low:
                        found[path] = file
        return list(found.values())

    def spans(self, files: Iterable[DataFile]) -> list[Span]:
        """Return the range of times at which the windows of these live files begin."""
        return [self._days[day_of(file)][file.path][1] for file in files]

    def after(self, moment: int) -> list[DataFile]:
        """The files that may hold windows that begin after a moment."""
        return [file for files in self._days.values() for file, (_, last) in files.values() if last > moment]

    def all(self) -> list[DataFile]:
        """Every live file."""
        return [file for files in self._days.values() for file, _ in files.values()]

    def _days_between(self, low: int, high: int) -> Iterator[int]:
        wanted = range(low // DAY_US, high // DAY_US + 1)
        if len(wanted) > len(self._days):
            return (day for day in self._days if day in wanted)
        return (day for day in wanted if day in self._days)

    def _load(self) -> None:
        self.version = newest_version(self._root, self._name)
        self._days = {}
        for file in table_files(self._root, self._name, version=self.version):
            self._add(file)

    def _add(self, file: DataFile) -> None:
        day = day_of(file)
        whole = (day * DAY_US, day * DAY_US + DAY_US - 1)
        self._days.setdefault(day, {})[file.path] = (file, time_span(file, "window_start") or whole)


def day_of(file: DataFile) -> int:
    """The day of a file's partition, counted from the epoch."""
    day = date.fromisoformat(str(file.partition["date"]))
    return day.toordinal() - _EPOCH.toordinal()
