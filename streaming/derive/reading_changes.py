"""Changes of `readings` since a version: files to fold in, and ranges whose windows must be recalculated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lakehouse.changes import DataFile, LogExpired, VersionChange, newest_version, read_changes
from lakehouse.file_stats import as_micros, may_hold_text, time_span
from streaming.derive.fold_files import day_of
from streaming.derive.windows import DAY_US, ChangedRange

__all__ = ["ReadingChanges", "changes_since", "files_in_ranges", "oldest_day"]

MOST_ROWS: Final = 5_000_000
MOST_FILES: Final = 2_000
"""A pass that has more to fold takes the rest in the next one."""
MOST_RANGES: Final = 64
"""Above this limit, ranges merge per device; recalculating a correct window is only slower."""


@dataclass(slots=True)
class ReadingChanges:
    """Changes up to a version; `whole` if all windows must be recalculated from the table as of that version.

    `expired` is the end of the newest day whose rows retention took; `erased` where a device was erased, which leaves nothing.
    """

    upto: int
    files: list[DataFile] = field(default_factory=list)
    ranges: list[ChangedRange] = field(default_factory=list)
    whole: bool = False
    erased: bool = False
    expired: int | None = None

    @property
    def rows(self) -> int:
        """Rows of the files to fold."""
        return sum(file.rows or 0 for file in self.files)


def changes_since(root: str, table: str, version: int | None) -> ReadingChanges | None:
    """Return the changes committed after a version; None if there are none. `version` is None for a new table."""
    if version is None:
        return ReadingChanges(newest_version(root, table), whole=True)
    news = ReadingChanges(version)
    try:
        for change in read_changes(root, table, after=version):
            _take(news, change)
            if news.rows >= MOST_ROWS or len(news.files) >= MOST_FILES:
                break
    except LogExpired:
        return ReadingChanges(newest_version(root, table), whole=True)
    return news if news.upto > version else None


def files_in_ranges(files: Sequence[DataFile], ranges: Sequence[ChangedRange]) -> list[DataFile]:
    """The files that may hold readings of any of these ranges."""
    return [file for file in files if any(_may_hold(file, each) for each in ranges)]


def oldest_day(files: Sequence[DataFile]) -> int | None:
    """Return the start of the oldest day of receipt that a table still holds; retention may have deleted older ones."""
    return min((day_of(file) * DAY_US for file in files), default=None)


def _take(news: ReadingChanges, change: VersionChange) -> None:
    news.upto = change.version
    if not change.removed:
        news.files += change.added
        return
    gone = {file.path for file in change.removed}
    metadata = change.metadata
    # Rows that this pass would fold in may be in another file by now, and theirs deleted: their windows are recalculated.
    news.ranges += [_file_range(file) for file in news.files if file.path in gone]
    news.files = [file for file in news.files if file.path not in gone]
    if metadata.is_retention:
        # These are gone from `readings` only.
        days = [(day_of(file) + 1) * DAY_US for file in change.removed]
        news.expired = max(days if news.expired is None else [*days, news.expired])
        return
    news.erased |= metadata.request.get("kind") == "erase"
    named = _named_range(metadata.arguments)
    touched = [_file_range(file) for file in (*change.added, *change.removed)]
    news.ranges = _joined([*news.ranges, *(_narrowed(each, named) for each in touched)])


_ALWAYS: Final = (-(2**60), 2**60)


def _named_range(arguments: Mapping[str, Any]) -> ChangedRange:
    low, high = as_micros(arguments.get("from")), as_micros(arguments.get("to"))
    device, named = arguments.get("device"), arguments.get("device_sha256")
    return ChangedRange(
        str(named) if named is not None else str(device) if device is not None else None,
        _ALWAYS[0] if low is None else low,
        _ALWAYS[1] if high is None else high,
        hashed=named is not None,
    )


def _file_range(file: DataFile) -> ChangedRange:
    return ChangedRange(None, *(time_span(file, "event_time") or _ALWAYS))


def _narrowed(found: ChangedRange, named: ChangedRange) -> ChangedRange:
    return replace(named, low=max(found.low, named.low), high=min(found.high, named.high))


def _joined(ranges: list[ChangedRange]) -> list[ChangedRange]:
    """Return the same moments in as few ranges as possible."""
    joined: list[ChangedRange] = []
    for each in sorted((r for r in ranges if r.low <= r.high), key=lambda r: (r.device or "", r.low)):
        if joined and joined[-1].device == each.device and joined[-1].high >= each.low:
            joined[-1] = replace(each, low=joined[-1].low, high=max(joined[-1].high, each.high))
        else:
            joined.append(each)
    if len(joined) <= MOST_RANGES:
        return joined
    devices = dict.fromkeys(each.device for each in joined)
    return [_hull([each for each in joined if each.device == device]) for device in devices]


def _hull(ranges: list[ChangedRange]) -> ChangedRange:
    return replace(ranges[0], low=min(each.low for each in ranges), high=max(each.high for each in ranges))


def _may_hold(file: DataFile, sought: ChangedRange) -> bool:
    times = time_span(file, "event_time")
    if times is not None and (times[0] > sought.high or times[1] < sought.low):
        return False
    return sought.hashed or sought.device is None or may_hold_text(file, "device", sought.device)
