"""Plan of faults: which part breaks when, for how long and in which way. All of it follows from the seed."""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from deploy.demo.part_faults import crash_part, hang_part
from deploy.local.runfile import read_run
from ingest.contract.errors import UnavailableError

__all__ = ["SoakFault", "break_part", "kills_of", "plan_faults"]

PARTS: Final = ("gateway", "broker", "kafka", "stream")
EVERY_SECONDS: Final = 60.0
CALM_SECONDS: Final = 120.0
"""Without a fault at the beginning and at the end."""
LONGEST_SECONDS: Final = {"kill": 8.0, "hang": 40.0}


@dataclass(frozen=True)
class SoakFault:
    """One fault; `at` is seconds since the load began."""

    at: float
    part: str
    way: str
    seconds: float


def plan_faults(seed: int, *, seconds: float) -> list[SoakFault]:
    """A fault a minute, for as long as the load lasts; none where it is too short."""
    chance, faults, at = random.Random(seed), [], CALM_SECONDS  # noqa: S311 - must repeat
    while at + LONGEST_SECONDS["hang"] <= seconds - CALM_SECONDS:
        way = chance.choice(sorted(LONGEST_SECONDS))
        part, lasts = chance.choice(PARTS), round(chance.uniform(1.0, LONGEST_SECONDS[way]), 1)
        faults.append(SoakFault(at, part, way, lasts))
        at += EVERY_SECONDS
    return faults


def kills_of(faults: Sequence[SoakFault]) -> Counter[str]:
    """Return how often each part was killed at most: while a fault lasts, each new start is killed again."""
    starts = {fault: 2 + int(fault.seconds) for fault in faults if fault.way == "kill"}
    killed: Counter[str] = Counter()
    for fault, count in starts.items():
        killed[fault.part] += count
    return killed


def break_part(data: Path, fault: SoakFault, run_id: str) -> AbstractContextManager[None]:
    """The part is broken while the block runs.

    Raises:
        UnavailableError: it does not run at this moment.
    """
    if fault.way == "kill":
        return crash_part(partial(_pid, data, fault.part), run_id)
    if (pid := _pid(data, fault.part)) is None:
        msg = f"{fault.part} is not running"
        raise UnavailableError(msg)
    return hang_part(pid, run_id)


def _pid(data: Path, part: str) -> int | None:
    run = read_run(data)
    return run.parts.get(part) if run is not None else None
