"""Store of identities without a counter: 64-bit hashes in sorted files on disk, by day of landing, for the time of the horizon.

Each file has ascending hashes, a 32-bit tag of the device for each (so that a device can be forgotten), and a footer with count
and checksums. Files are mapped into memory and searched by bisection. New hashes wait in memory until they fill a file. A
thread next to the landing joins small files to larger ones, slice by slice, until a day is one file. All of it is derived from
the table; a lost or torn file is noticed when it is opened.

A hash that is found makes a reading suspected: the landing compares it with the table's row
(streaming/duplicate_comparator.py).
"""

import logging
import math
import mmap
import os
import shutil
import struct
import tempfile
import threading
import uuid
import weakref
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["POINTS_LIMIT", "PointFile", "PointStore"]

logger = logging.getLogger("tidegate.streaming.points")

POINTS_LIMIT: Final = 4_000_000_000
"""On disk at most, 12 bytes each; past it the oldest day is forgotten."""
FLUSH_POINTS: Final = 250_000
"""New ones in memory, some 150 bytes each, until they become a file."""
JOINED_FILES: Final = 8
"""Number of files of one size and one day that are joined."""
SLICE_POINTS: Final = 1_000_000
"""Joined, or searched for a device, at once."""
_HASH_BYTES: Final = 8
_TAG_BYTES: Final = 4
_FOOTER: Final = struct.Struct("<4sQII")
_MAGIC: Final = b"TGP1"


class PointFile(NamedTuple):
    """A file as the snapshot names it."""

    day: int
    name: str
    points: int


@dataclass(frozen=True, eq=False, slots=True)
class _File:
    entry: PointFile
    path: Path
    hashes: memoryview
    tags: memoryview


class PointStore:
    """The hashes that landed within the horizon. Safe for the landing's thread, the joining one and `forget` together."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` keeps the files between runs; None keeps them in a folder of this process."""
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="tidegate-points-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = folder
        self._files: list[_File] = []
        self._fresh: dict[int, dict[int, int]] = {}
        self._stale: list[Path] = []
        self._lock = threading.RLock()
        self._work, self._asked_to_end = threading.Lock(), threading.Event()
        self.evicted = 0

    @property
    def count(self) -> int:
        """Points held, in files and in memory."""
        with self._lock:
            return sum(file.entry.points for file in self._files) + self.fresh_count

    @property
    def fresh_count(self) -> int:
        """Number of points that are not in a file yet."""
        return sum(map(len, self._fresh.values()))

    def find(self, points: Collection[int]) -> list[int]:
        """Return those of these hashes that are held."""
        with self._lock:
            found = {point for fresh in self._fresh.values() for point in points if point in fresh}
            ordered = sorted(set(points) - found)
            for file in self._files:
                hashes, end = file.hashes, len(file.hashes)
                for point in ordered:
                    place = bisect_left(hashes, point)
                    if place < end and hashes[place] == point:
                        found.add(point)
            return sorted(found)

    def add(self, day: int, points: Iterable[int], tags: Iterable[int]) -> None:
        """Hold these from now on: hash and tag of the device, by the day they landed (days since 1970)."""
        with self._lock:
            self._fresh.setdefault(day, {}).update(zip(points, tags, strict=True))
        if self.fresh_count >= FLUSH_POINTS:
            self.flush()

    def flush(self) -> None:
        """Write what waits in memory to files; without room on the disk it waits on."""
        with self._lock:
            for day, fresh in list(self._fresh.items()):
                ordered = sorted(fresh)
                hashes, tags = array("Q", ordered).tobytes(), array("I", [fresh[point] for point in ordered]).tobytes()
                try:
                    self._files.append(self._write(day, len(ordered), [(hashes, tags)]))
                except OSError as error:
                    logger.warning("cannot save identities to %s: %s", self._folder, error)
                    return
                del self._fresh[day]

    def entries(self) -> list[PointFile]:
        """The files, as the snapshot must name them."""
        with self._lock:
            return [file.entry for file in self._files]

    def open(self, entries: Iterable[PointFile]) -> set[int]:
        """Take these files over; returns the days of which one is lost or torn, and holds nothing of them."""
        found, lost = [], set()
        for entry in entries:
            try:
                found.append(_map(entry, self._folder / entry.name))
            except (OSError, ValueError, struct.error) as error:
                logger.warning(
                    "cannot read the saved identities of a day; reading them from the table again: %s", error
                )
                lost.add(entry.day)
        with self._lock:
            self._files = [file for file in found if file.entry.day not in lost]
            named = {file.entry.name for file in self._files}
            self._stale += [path for path in self._folder.glob("*") if path.name not in named]
        return lost

    def sweep(self) -> None:
        """Delete files that nothing names any more; call it when the snapshot names the present ones."""
        with self._lock:
            stale, self._stale = self._stale, []
        for path in stale:
            path.unlink(missing_ok=True)

    def expire(self, today: int, horizon_days: float) -> None:
        """Forget days past the horizon. A clock that jumps ahead costs one day at most: as many newer days must hold points."""
        kept_days = math.ceil(horizon_days) + 1 if math.isfinite(horizon_days) else today
        if not self._work.acquire(blocking=False):
            return  # files are being joined: the next call forgets them
        try:
            self._expire(today, kept_days)
        finally:
            self._work.release()

    def _expire(self, today: int, kept_days: int) -> None:
        with self._lock:
            days = sorted({file.entry.day for file in self._files})
            old = {day for day in days if day <= today - kept_days and len(days) - days.index(day) > kept_days}
            while self.count - self._count_of(old) > POINTS_LIMIT and len(old) < len(days) - 1:
                oldest = next(day for day in days if day not in old)
                self.evicted += self._count_of({oldest})
                old.add(oldest)
            self._replace([file for file in self._files if file.entry.day in old], [])

    def forget(self, tag: int) -> None:
        """Hold nothing of a device any more."""
        self._asked_to_end.set()
        with self._work:
            self._asked_to_end.clear()
            with self._lock:
                self._fresh = {
                    day: {point: of for point, of in fresh.items() if of != tag} for day, fresh in self._fresh.items()
                }
                files = list(self._files)
            for file in files:
                kept = list(_without(file, tag))
                count = sum(len(hashes) for hashes, _ in kept) // _HASH_BYTES
                if count < file.entry.points:
                    fresh = [self._write(file.entry.day, count, kept)] if count else []
                    with self._lock:
                        self._replace([file], fresh)

    def join(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Join small files into larger ones until none is due, or `stopped`."""
        with self._work:
            while (due := self._due()) and not stopped() and not self._asked_to_end.is_set():
                count = sum(file.entry.points for file in due)
                slices = (part for part in _merged(due, count) if not stopped() and not self._asked_to_end.is_set())
                try:
                    joined = self._write(due[0].entry.day, count, slices)
                except (OSError, ValueError) as error:
                    logger.info("cannot join files of identities now; the next try is later: %s", error)
                    return
                with self._lock:
                    self._replace(due, [joined])

    def _due(self) -> list[_File]:
        with self._lock:
            files, days = list(self._files), {file.entry.day for file in self._files}
        for day in sorted(days):
            of_day = [file for file in files if file.entry.day == day]
            if day < max(days) and len(of_day) > 1:
                return of_day
            sizes: dict[int, list[_File]] = {}
            for file in of_day:
                sizes.setdefault(int(math.log(max(file.entry.points, FLUSH_POINTS / 4), JOINED_FILES)), []).append(file)
            for each in sizes.values():
                if len(each) >= JOINED_FILES:
                    return each
        return []

    def _count_of(self, days: set[int]) -> int:
        return sum(file.entry.points for file in self._files if file.entry.day in days)

    def _replace(self, old: list[_File], new: list[_File]) -> None:
        self._files = [file for file in self._files if file not in old] + new
        self._stale += [file.path for file in old]

    def _write(self, day: int, count: int, parts: "Iterable[tuple[bytes, bytes]]") -> _File:
        """A new file of parts in ascending order: whole and on the disk before anything names it.

        Raises:
            OSError: the disk has no room; ValueError: the parts ended early.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{day}-{uuid.uuid4().hex[:12]}"
        path, fresh = self._folder / name, self._folder / f"{name}.new"
        at, crc_hashes, crc_tags = 0, 0, 0
        try:
            with fresh.open("wb") as file:
                for hashes, tags in parts:
                    file.seek(at * _HASH_BYTES)
                    file.write(hashes)
                    file.seek(count * _HASH_BYTES + at * _TAG_BYTES)
                    file.write(tags)
                    at += len(hashes) // _HASH_BYTES
                    crc_hashes, crc_tags = zlib.crc32(hashes, crc_hashes), zlib.crc32(tags, crc_tags)
                if at != count:
                    message = f"{at} of {count} identities"
                    raise ValueError(message)
                file.seek(count * (_HASH_BYTES + _TAG_BYTES))
                file.write(_FOOTER.pack(_MAGIC, count, crc_hashes, crc_tags))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
        return _map(PointFile(day, name, count), path, check=False)


def _map(entry: PointFile, path: Path, *, check: bool = True) -> _File:
    size, ends = entry.points * (_HASH_BYTES + _TAG_BYTES), entry.points * _HASH_BYTES
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size + _FOOTER.size:
            message = f"the length of {path} does not match {entry.points} identities"
            raise ValueError(message)
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    magic, count, crc_hashes, crc_tags = _FOOTER.unpack(mapped[size:])
    hashes, tags = mapped[:ends], mapped[ends:size]
    if (magic, count) != (_MAGIC, entry.points) or (check and (_crc(hashes), _crc(tags)) != (crc_hashes, crc_tags)):
        message = f"the checksum of {path} does not match"
        raise ValueError(message)
    return _File(entry, path, hashes.cast("Q"), tags.cast("I"))


def _crc(data: memoryview) -> int:
    crc = 0
    for at in range(0, len(data), 1 << 24):
        crc = zlib.crc32(data[at : at + (1 << 24)], crc)
    return crc


def _merged(files: list[_File], count: int) -> Iterator[tuple[bytes, bytes]]:
    """All points of some files in order: slices of the range of hashes, so that one slice at a time is in memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    slices = max(1, -(-count // SLICE_POINTS))
    starts = [0] * len(files)
    for number in range(1, slices + 1):
        bound = number * (1 << 64) // slices
        ends = [bisect_left(file.hashes, bound) if number < slices else len(file.hashes) for file in files]
        spans = list(zip(files, starts, ends, strict=True))
        hashes = pa.concat_arrays([_arrow(file.hashes[low:high], pa.uint64()) for file, low, high in spans])
        tags = pa.concat_arrays([_arrow(file.tags[low:high], pa.uint32()) for file, low, high in spans])
        order = pc.array_sort_indices(hashes)
        yield _raw(hashes.take(order)), _raw(tags.take(order))
        starts = ends


def _without(file: _File, tag: int) -> Iterator[tuple[bytes, bytes]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for low in range(0, file.entry.points, SLICE_POINTS):
        hashes = _arrow(file.hashes[low : low + SLICE_POINTS], pa.uint64())
        tags = _arrow(file.tags[low : low + SLICE_POINTS], pa.uint32())
        kept = pc.not_equal(tags, pa.scalar(tag, pa.uint32()))
        yield _raw(hashes.filter(kept)), _raw(tags.filter(kept))


def _arrow(view: memoryview, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(view), [None, pa.py_buffer(view)])


def _raw(values: Any) -> bytes:
    if not len(values):
        return b""
    width = values.type.bit_width // 8
    return bytes(memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width])
