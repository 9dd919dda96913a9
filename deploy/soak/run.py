"""`tidegate soak`: start the pipeline, load it, break its parts by a plan, sample it every ten seconds, and audit it."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from deploy.balance_audit import audit
from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.target import own_run
from deploy.demo.part_faults import crash_part, hang_part
from deploy.local.budget import spark_jvm_mb
from deploy.local.runfile import read_run, read_state, require_run
from deploy.settings import Settings
from deploy.soak.figures import RestartSafeCounter, SoakSample, as_rows, judge_soak, slopes_of, take_figures
from deploy.soak.soak_load import SoakLoad
from ingest.contract.errors import UnavailableError

__all__ = ["SoakFault", "SoakOptions", "kills_of", "plan_faults", "render_soak", "run_soak"]

PORT_OFFSET: Final = 3000
LOOK_SECONDS: Final = 10.0
TELL_SECONDS: Final = 60.0
READY_SECONDS: Final = 300.0
AUDIT_SECONDS: Final = 180.0
PARTS: Final = ("gateway", "broker", "kafka", "stream")
EVERY_SECONDS: Final = 60.0
"""Time from the start of one fault to the start of the next one."""
CALM_SECONDS: Final = 120.0
"""Time without a fault at the beginning and at the end."""
LONGEST_SECONDS: Final = {"kill": 8.0, "hang": 40.0}
WAYS: Final = {"kill": "is killed", "hang": "hangs"}

Tell = Callable[[str], object]


@dataclass(frozen=True)
class SoakFault:
    """One fault; `at` is seconds since the load began."""

    at: float
    part: str
    way: str
    seconds: float


def plan_faults(seed: int, *, seconds: float) -> list[SoakFault]:
    """Plan one fault per minute for a load of this duration; none if it is too short. The same seed gives the same plan."""
    chance, faults, at = random.Random(seed), [], CALM_SECONDS  # noqa: S311 - must repeat
    while at + LONGEST_SECONDS["hang"] <= seconds - CALM_SECONDS:
        way = chance.choice(sorted(LONGEST_SECONDS))
        part, lasts = chance.choice(PARTS), round(chance.uniform(1.0, LONGEST_SECONDS[way]), 1)
        faults.append(SoakFault(at, part, way, lasts))
        at += EVERY_SECONDS
    return faults


def kills_of(faults: Sequence[SoakFault]) -> Counter[str]:
    """Return the most kills of each part: while a fault lasts, each restarted process is killed again."""
    starts = {fault: 2 + int(fault.seconds) for fault in faults if fault.way == "kill"}
    killed: Counter[str] = Counter()
    for fault, count in starts.items():
        killed[fault.part] += count
    return killed


def _break_part(data: Path, fault: SoakFault, run_id: str) -> AbstractContextManager[None]:
    """Break the part while the block runs.

    Raises:
        UnavailableError: the part does not run at this moment.
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


@dataclass(frozen=True, kw_only=True)
class SoakOptions:
    """Duration, messages per second, and seed of a soak, and whether parts break."""

    minutes: float
    rate: float
    faults: bool
    seed: int


@dataclass
class _Watched:
    """Observations so far."""

    began: float = field(default_factory=time.monotonic)
    samples: list[SoakSample] = field(default_factory=list)
    landing: RestartSafeCounter = field(default_factory=RestartSafeCounter)
    injected: list[SoakFault] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def run_soak(options: SoakOptions, folder: Path, *, tell: Tell) -> dict[str, Any]:
    """Run one soak in this folder; return the result as `--json` prints it.

    Args:
        options: duration, load and faults.
        folder: folder for the run's data; another run must not use it.
        tell: gets a sentence about each event.

    Raises:
        FatalError: the pipeline does not start.
    """
    machine, began_at = hardware(), datetime.now(UTC)
    tell(f"Starting a pipeline in {folder}.")
    with own_run(folder, port_offset=PORT_OFFSET) as settings:
        watched, load = _Watched(), SoakLoad(settings.mqtt, rate=options.rate, seconds=options.minutes * 60)
        _load_and_look(options, folder, settings, watched, load, tell)
        ready = _wait_until_ready(folder, READY_SECONDS)
        watched.samples.append(SoakSample(watched.seconds, take_figures(folder, settings, watched.landing)))
        tell("The load has ended; the audit now reads everything.")
        report = audit(settings.kafka, settings.lake.root, None, wait_seconds=AUDIT_SECONDS).to_dict()
        restarts = {name: part["restarts"] for name, part in read_state(folder).get("parts", {}).items()}
    slopes = slopes_of(watched.samples)
    verdict = judge_soak(
        slopes,
        report,
        acknowledged=load.acknowledged,
        ceilings={"memory_mb.stream/java": spark_jvm_mb(settings)},
        restarts=restarts,
        kills=kills_of(watched.injected),
        landing_failures=int(watched.landing.total),
        landing_faults=sum(fault.part == "kafka" for fault in watched.injected),
        ready=ready,
    )
    return {
        "passed": verdict.passed,
        "wrong": list(verdict.wrong),
        "minutes": options.minutes,
        "rate": options.rate,
        "seed": options.seed if options.faults else None,
        "began_at": began_at.isoformat(timespec="seconds"),
        "sent": load.sent,
        "acknowledged": load.acknowledged,
        "minutes_broken_off": load.broken,
        "audit": report,
        "restarts": restarts,
        "landing_failures": int(watched.landing.total),
        "faults": [asdict(fault) for fault in watched.injected],
        "slopes": as_rows(slopes),
        "samples": [{"at": round(sample.at, 1), **_rounded(sample)} for sample in watched.samples],
        "hardware": machine,
        "versions": versions(),
    }


def _rounded(sample: SoakSample) -> dict[str, float]:
    return {name: round(value, 3) for name, value in sample.figures.items()}


def _load_and_look(
    options: SoakOptions, folder: Path, settings: Settings, watched: _Watched, load: SoakLoad, tell: Tell
) -> None:
    seconds, done = options.minutes * 60, threading.Event()
    breaking = threading.Thread(target=_break, args=(options, folder, watched, done, tell), name="faults", daemon=True)
    load.start()
    breaking.start()
    told = 0.0
    try:
        while watched.seconds < seconds:
            figures = take_figures(folder, settings, watched.landing)
            watched.samples.append(SoakSample(watched.seconds, figures))
            if watched.seconds - told >= TELL_SECONDS:
                told = watched.seconds
                tell(_progress(watched, figures))
            done.wait(max(0.5, LOOK_SECONDS - watched.seconds % LOOK_SECONDS))
    finally:
        done.set()
        breaking.join()
        load.stop()


def _progress(watched: _Watched, figures: dict[str, float]) -> str:
    memory = sum(value for name, value in figures.items() if name.startswith("memory_mb."))
    latency = ", ".join(
        f"{name} {figures[f'latency_ms.{name}']:.0f} ms" for name in ("p50", "p99") if f"latency_ms.{name}" in figures
    )
    return f"{watched.seconds / 60:6.1f} min  {memory:.0f} MB, {figures['files']:.0f} files, {latency or 'latency unknown'}"


def _break(options: SoakOptions, folder: Path, watched: _Watched, done: threading.Event, tell: Tell) -> None:
    if not options.faults:
        return
    run_id = require_run(folder).run_id
    for fault in plan_faults(options.seed, seconds=options.minutes * 60):
        if done.wait(max(0.0, fault.at - watched.seconds)):
            return
        # A part that has not restarted since the last fault cannot hang.
        with suppress(UnavailableError), _break_part(folder, fault, run_id):
            watched.injected.append(fault)
            tell(f"{watched.seconds / 60:6.1f} min  {fault.part} {WAYS[fault.way]} for {fault.seconds:g} s")
            done.wait(fault.seconds)


def _wait_until_ready(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (ready := bool(read_state(folder).get("ready"))) and time.monotonic() < deadline:
        time.sleep(1.0)
    return ready


def render_soak(result: dict[str, Any]) -> str:
    """Return the result as a few lines for people."""
    lines = [f"{result['minutes']:g} minutes at {result['rate']:g} messages/s, {len(result['faults'])} faults"]
    lines.append(f"{'':<34}{'first':>10} {'last':>10} {'most':>10} {'an hour':>10} {'bound':>10}")
    for slope in result["slopes"]:
        figures = (slope["first"], slope["last"], slope["most"], slope["per_hour"], slope["bound"])
        shown = " ".join(f"{'-' if figure is None else format(figure, 'g'):>10}" for figure in figures)
        lines.append(f"{slope['name']:<34}{shown}{'  above its bound' if slope['above'] else ''}")
    found = result["audit"]
    names = ("received", "unaccounted", "duplicate_rows", "order_violations")
    lines.append("Audit: " + ", ".join(f"{name.replace('_', ' ')} {found[name]:,}" for name in names))
    lines.append(hardware_line(result["hardware"]))
    return "\n".join([*lines, _verdict(result["wrong"])])


def _verdict(wrong: Sequence[str]) -> str:
    return "Passed." if not wrong else "\n".join(["NOT passed:", *(f"  {each}" for each in wrong)])
