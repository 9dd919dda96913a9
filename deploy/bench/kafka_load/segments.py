"""Segment files of one topic on this machine: write them out, drop them from the page cache, measure the cost of a read."""

import ctypes
import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

__all__ = ["ReadCost", "SegmentFiles", "resident_bytes"]

_MB: Final = 1e6
_GONE_SECONDS: Final = 90.0
"""A broker deletes its first files half a minute after its start, later ones about a second after their topic."""


@dataclass
class ReadCost:
    """Work of brokers while a block ran: bytes read from the disk, seconds of processor time."""

    disk_bytes: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class SegmentFiles:
    """The files that hold a topic's records.

    Attributes:
        records: folders in which the brokers keep their partitions.
        topic: its name.
        brokers: process ids of the nodes.
    """

    records: Sequence[Path]
    topic: str
    brokers: Mapping[str, int] = field(default_factory=dict)

    @property
    def logs(self) -> Sequence[Path]:
        """Files with records, of all copies of all partitions; the indexes next to them are mapped, and stay in memory."""
        return sorted(file for place in self._partitions() for file in place.glob("*.log"))

    @property
    def stored_mb(self) -> float:
        """Size of all copies together."""
        return sum(file.stat().st_size for file in self.logs) / _MB

    def write_out(self) -> None:
        """Let the disk have all of it; returns when it does."""
        for file in self.logs:
            with _opened(file) as handle:
                os.fsync(handle)

    def drop(self) -> float:
        """Take all of it out of the page cache; returns the MB that are on the disk alone afterwards.

        Pages that are not on the disk yet would stay, so all is written out before.
        """
        self.write_out()
        cold = 0
        for file in self.logs:
            with _opened(file) as handle:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            cold += file.stat().st_size - resident_bytes(file)
        return cold / _MB

    @contextmanager
    def cost(self) -> Iterator[ReadCost]:
        """Measure the work of the brokers while the block runs."""
        found, before = ReadCost(), self._spent()
        yield found
        after = self._spent()
        both = before.keys() & after.keys()
        found.disk_bytes = sum(after[name][0] - before[name][0] for name in both)
        found.cpu_seconds = sum(after[name][1] - before[name][1] for name in both)

    def await_gone(self) -> bool:
        """Wait until the brokers have deleted the files of a topic that was removed; False where some are left."""
        deadline = time.monotonic() + _GONE_SECONDS
        while any(self._places()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _places(self) -> Iterator[Path]:
        """Folders of its partitions; those that wait for their deletion have a longer name."""
        return (place for folder in self.records for place in folder.glob(f"{self.topic}-[0-9]*"))

    def _partitions(self) -> Iterator[Path]:
        return (place for place in self._places() if place.name.removeprefix(f"{self.topic}-").isdigit())

    def _spent(self) -> dict[str, tuple[float, float]]:
        """Bytes read from the disk and seconds of processor, by broker."""
        found: dict[str, tuple[float, float]] = {}
        for name, pid in self.brokers.items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                found[name] = (float(process.io_counters().read_bytes), times.user + times.system)
        return found


def resident_bytes(file: Path) -> int:
    """Bytes of a file that are in the page cache, in whole pages but for its end."""
    size = file.stat().st_size
    if not size:
        return 0
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    states = (ctypes.c_ubyte * pages)()
    with _opened(file) as handle, mmap.mmap(handle, size, access=mmap.ACCESS_COPY) as mapped:
        # A private map can be looked at without a page of it being read.
        place = ctypes.c_char.from_buffer(mapped)
        failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(place)), ctypes.c_size_t(size), states)
        del place
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(file))
    return min(size, sum(state & 1 for state in states) * mmap.PAGESIZE)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


_libc: Final = ctypes.CDLL(None, use_errno=True)
