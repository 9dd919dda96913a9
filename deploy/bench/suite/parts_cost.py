"""Processor time and memory of each part of a run under load, including child processes."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from deploy.bench.suite.cell_beds import LivePids
from deploy.local.runfile import read_run

__all__ = ["PartsSample", "PartsWatch", "RunParts", "busy_text", "cost_figures"]

LOOK_SECONDS: Final = 1.0
BUSY_SHARE: Final = 0.6
"""Share of all cores from which the parts, next to the publisher and the reader, are the limit of a run."""
_MB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class PartsSample:
    """All parts at one moment, in epoch seconds: processor seconds so far, and resident megabytes, by part."""

    at: float
    cpu_seconds: Mapping[str, float]
    rss_mb: Mapping[str, float]


class RunParts(LivePids):
    """Process ids of the parts of an embedded run as they are at each look; nothing while none runs.

    Attributes:
        folder: of the run's data.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.folder: Path | None = None

    def _now(self) -> dict[str, int]:
        run = read_run(self.folder) if self.folder is not None else None
        return {name: pid for name, pid in run.parts.items() if pid is not None} if run is not None else {}


class PartsWatch:
    """Looks at the parts once a second, and at both ends of the block."""

    def __init__(self, parts: Mapping[str, int]) -> None:
        self._parts, self._stop = parts, threading.Event()
        self.looks: list[PartsSample] = []

    @contextmanager
    def running(self) -> Iterator["PartsWatch"]:
        """Watch while the block runs; `looks` are complete after it."""
        self.looks.append(self._look())
        thread = threading.Thread(target=self._go, name="parts", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            self.looks.append(self._look())

    def _go(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.looks.append(self._look())

    def _look(self) -> PartsSample:
        at, cpu, rss = time.time(), dict[str, float](), dict[str, float]()
        for name, pid in dict(self._parts).items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for each in (process, *process.children(recursive=True)):
                    with suppress(psutil.Error), each.oneshot():
                        times = each.cpu_times()
                        # The use of a child (such as an audit of the monitor) counts with its parent once it has ended.
                        spent = times.user + times.system + times.children_user + times.children_system
                        cpu[name] = cpu.get(name, 0.0) + spent
                        rss[name] = rss.get(name, 0.0) + each.memory_info().rss / _MB
        return PartsSample(at, cpu, rss)


def cost_figures(looks: list[PartsSample], *, begin_at: float, messages: int, readings: int) -> dict[str, float]:
    """Return processor time per message and per million readings, and the most memory, of each part.

    Args:
        looks: ascending; processor time counts from the last one before `begin_at` to the end.
        begin_at: when the load began.
        messages: that were sent from then on.
        readings: of each message.

    Returns:
        A sum over all parts is left out where one of them is not known.
    """
    first, last = _ends(looks, begin_at)
    spent = _spent(first, last)
    known = first.cpu_seconds.keys() | last.cpu_seconds.keys()
    millions = messages * readings / 1_000_000
    peaks = {name: max(look.rss_mb.get(name, 0.0) for look in looks) for name in last.rss_mb}
    return {
        **{f"cpu_us_per_message_{name}": round(seconds / messages * 1_000_000, 2) for name, seconds in spent.items()},
        **{f"cpu_seconds_per_million_{name}": round(seconds / millions, 2) for name, seconds in spent.items()},
        **({"cpu_seconds_per_million": round(sum(spent.values()) / millions, 2)} if len(spent) == len(known) else {}),
        **{f"peak_rss_mb_{name}": round(peak, 1) for name, peak in peaks.items()},
        "peak_rss_mb": round(max(sum(look.rss_mb.values()) for look in looks), 1),
    }


def busy_text(looks: list[PartsSample], *, begin_at: float, cores: int) -> str:
    """Return the part that used the processors, in words; empty if the parts together left most of them free."""
    first, last = _ends(looks, begin_at)
    used = {name: seconds / max(last.at - first.at, 1e-6) for name, seconds in _spent(first, last).items()}
    total = sum(used.values())
    if total < BUSY_SHARE * cores:
        return ""
    most = max(used, key=lambda name: used[name])
    return f"the parts used {total:.2g} of {cores} cores, {most} {used[most]:.2g}; publisher and reader used the rest"


def _ends(looks: list[PartsSample], begin_at: float) -> tuple[PartsSample, PartsSample]:
    return next((look for look in reversed(looks) if look.at <= begin_at), looks[0]), looks[-1]


def _spent(first: PartsSample, last: PartsSample) -> dict[str, float]:
    """Processor seconds by part; a part that started again in between has less than before, so its time is not known."""
    return {
        name: seconds - first.cpu_seconds[name]
        for name, seconds in last.cpu_seconds.items()
        if seconds >= first.cpu_seconds.get(name, math.inf)
    }
