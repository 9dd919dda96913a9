"""`bench e2e`: publish over MQTT at a fixed rate, time every message from due to queryable, and measure the backlog.

The clock starts when a message is due (its `ts`), so a delay of the publisher counts too. It stops when a reader, apart from
the writer, has read the row from the committed version. Every message of the measured span counts; there is no sampling. The
publisher has its own process and encodes its packets beforehand, because real devices would not use this machine's CPU.
"""

import bisect
import json
import math
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow.compute as pc

from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.load_publisher import LoadPlan, broker_fields
from deploy.bench.plan_process import run_child
from deploy.bench.waiting import await_arrivals
from deploy.settings import Settings
from gateway.gateway_settings import MqttSettings
from lakehouse.table_follower import FollowedCommit, TableFollower

__all__ = [
    "LandingTimes",
    "RowCount",
    "follow_rows",
    "load_plan",
    "measure_e2e",
    "percentile",
    "publish",
    "render_e2e",
    "schedule_delay_figures",
]

COLUMNS: Final = ("device", "boot", "seq", "event_time")
POLL_SECONDS: Final = 0.01
GIVE_UP_SECONDS: Final = 60.0

_PART: Final = 5
"""Compare the delay of the first fifth of the messages with that of the last fifth."""


def schedule_delay_figures(
    due: Sequence[float], seen: Sequence[float | None], *, earlier: Sequence[float] = ()
) -> dict[str, float]:
    """Return how far a pipeline fell behind an open loop; empty if no message was seen.

    Args:
        due: due times in seconds, ascending.
        seen: times in seconds at which the same messages were queryable; None for a message that never was.
        earlier: such times of messages that were due before these, as in a warm-up.

    Returns:
        - `messages_per_second`: messages seen per second, from the first due time to the last message seen. Messages of a
          warm-up count if they were seen in that span.
        - `backlog_at_end`: messages that were due but not seen when the last message was due.
        - `drain_seconds`: from then to the last message seen, at least 0.
        - `delay_growth_ms_per_second`: growth of the delay per second, about 0 if the pipeline keeps up. Missing if the run is
          too short.
    """
    came = sorted(at for at in seen if at is not None)
    if not came:
        return {}
    seconds = came[-1] - due[0]
    figures = {
        "backlog_at_end": float(len(due) - bisect.bisect_right(came, due[-1])),
        "drain_seconds": round(max(0.0, came[-1] - due[-1]), 3),
    }
    if seconds > 0:
        count = len(came) + sum(due[0] < at <= came[-1] for at in earlier)
        figures["messages_per_second"] = round(count / seconds, 1)
    delays = [(at, then - at) for at, then in zip(due, seen, strict=True) if then is not None]
    size = max(1, len(delays) // _PART)
    first, last = delays[:size], delays[-size:]
    between = statistics.median(at for at, _ in last) - statistics.median(at for at, _ in first)
    if between > 0:
        growth = statistics.median(delay for _, delay in last) - statistics.median(delay for _, delay in first)
        figures["delay_growth_ms_per_second"] = round(growth / between * 1000, 2)
    return figures


@dataclass
class LandingTimes:
    """Times, in epoch seconds, at which each message of this run was queryable with all its readings.

    One thread fills it; read it after that thread has ended.
    """

    boot: int
    readings: int = 1
    seen_at: dict[tuple[str, int], float] = field(default_factory=dict)
    committed_at: dict[tuple[str, int], float] = field(default_factory=dict)
    commits: int = 0
    _rows: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, commit: FollowedCommit) -> None:
        """Note the rows of one commit that belong to this run."""
        if commit.rows.num_rows == 0:
            return
        rows = commit.rows.filter(pc.equal(commit.rows.column("boot"), self.boot))
        self.commits += rows.num_rows > 0
        keys = list(zip(rows.column("device").to_pylist(), rows.column("seq").to_pylist(), strict=True))
        self._rows.update(keys)
        for key in keys:
            if self._rows[key] >= self.readings:
                self.seen_at.setdefault(key, commit.seen_at)
                self.committed_at.setdefault(key, commit.committed_at)


@dataclass
class RowCount:
    """Number of rows of this run, for a load that is not timed."""

    boot: int
    rows: int = 0

    def add(self, commit: FollowedCommit) -> None:
        """Count the rows of one commit that belong to this run."""
        self.rows += pc.sum(pc.equal(commit.rows.column("boot"), self.boot)).as_py() or 0


def measure_e2e(
    settings: Settings, *, rate: float, seconds: float, warmup_seconds: float, devices: int, readings: int = 1,
    fleet: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the load through a running pipeline; return the result as --json prints it.

    Args:
        settings: settings of the pipeline.
        rate: messages per second.
        seconds: measured span.
        warmup_seconds: span before that at the same rate.
        devices: number of devices, which publish in turn.
        readings: readings per message; each becomes a row.
        fleet: prefix of the devices' names; without it the devices are new.
    """
    machine = hardware()
    landing = LandingTimes(boot=int(time.time() * 1000), readings=readings)
    follower = TableFollower(settings.lake.root, "readings", columns=COLUMNS)
    plan = load_plan(
        settings.mqtt, landing.boot, rate=rate, messages=round(rate * (warmup_seconds + seconds)), devices=devices,
        readings=readings, fleet=fleet,
    )  # fmt: skip
    with follow_rows(follower, landing):
        acknowledged, publisher_cpu = publish(plan)
        sent = {_key(plan, number): plan.due_at(number) for number in range(plan.messages)}
        await_arrivals(lambda: len(landing.seen_at), len(sent), silent_seconds=GIVE_UP_SECONDS)
    measured = {key: at for key, at in sent.items() if at >= plan.begin_at + warmup_seconds}
    return {
        "rate": rate,
        "seconds": seconds,
        "sent_rate": round(len(measured) / seconds, 1),
        **_figures(measured, landing),
        **schedule_delay_figures(
            list(measured.values()),
            [landing.seen_at.get(key) for key in measured],
            earlier=[landing.seen_at[key] for key in sent.keys() - measured.keys() if key in landing.seen_at],
        ),
        "lost": len(sent.keys() - landing.seen_at.keys()),
        "unacknowledged": plan.messages - acknowledged,
        "commits": landing.commits,
        "warmup_seconds": warmup_seconds,
        "begin_at": round(plan.begin_at, 3),
        "publisher_cpu_seconds": round(publisher_cpu, 2),
        "hardware": machine,
        "versions": versions(),
    }


def load_plan(
    mqtt: MqttSettings,
    boot: int,
    *,
    rate: float,
    messages: int,
    devices: int,
    readings: int = 1,
    fleet: str | None = None,
) -> LoadPlan:
    """Plan a load that begins as soon as its publisher can have started and encoded the packets."""
    return LoadPlan(
        **broker_fields(mqtt),
        messages=messages, rate=rate, devices=devices, readings=readings, boot=boot,
        name=fleet or f"bench-{uuid.uuid4().hex[:6]}",
        begin_at=time.time() + 3.0 + messages / 50_000,
    )  # fmt: skip


def _key(plan: LoadPlan, number: int) -> tuple[str, int]:
    device, seq = plan.names(number)
    return f"{plan.name}-{device:04d}", seq


def publish(plan: LoadPlan) -> tuple[int, float]:
    """Run the publisher to its end; return the number of acknowledged messages, and its CPU seconds.

    Raises:
        FatalError: it could not connect, or the broker closed its connections.
    """
    otherwise = f"the publisher could not use the broker at {plan.host}:{plan.port}"
    result = json.loads(run_child("deploy.bench.load_publisher", asdict(plan), otherwise)[-1])
    return int(result["acknowledged"]), float(result["cpu_seconds"])


@contextmanager
def follow_rows(follower: TableFollower, landing: "LandingTimes | RowCount") -> Iterator[None]:
    """Note the rows of each commit while the block runs. An error of the reader is raised at its end: its figures are wrong."""
    done = threading.Event()
    faults: list[Exception] = []

    def follow() -> None:
        try:
            while not done.is_set():
                for commit in follower.poll():
                    landing.add(commit)
                done.wait(POLL_SECONDS)
        except Exception as error:
            faults.append(error)

    reader = threading.Thread(target=follow, name="reader", daemon=True)
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join()
        if faults:
            raise faults[0]


def _figures(measured: Mapping[tuple[str, int], float], landing: LandingTimes) -> dict[str, Any]:
    seen = sorted(landing.seen_at[key] - at for key, at in measured.items() if key in landing.seen_at)
    committed = sorted(landing.committed_at[key] - at for key, at in measured.items() if key in landing.committed_at)
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    return {
        "rows": len(seen) * landing.readings,
        **{name: percentile(seen, share) for name, share in shares.items()},
        "commit": {name: percentile(committed, share) for name, share in shares.items()},
    }


def percentile(ascending: Sequence[float], share: float) -> int | None:
    """Return the nearest-rank percentile of ascending seconds, in ms; None without values. `share` is from 0 to 1."""
    if not ascending:
        return None
    return round(ascending[max(0, math.ceil(share * len(ascending)) - 1)] * 1000)


def render_e2e(result: Mapping[str, Any]) -> str:
    """Return the result as a few lines for people."""
    return "\n".join(
        [
            f"Publish to queryable row at {result['sent_rate']:g} messages/s for {result['seconds']:g} s:",
            f"  p50 {result['p50_ms']} ms   p95 {result['p95_ms']} ms   p99 {result['p99_ms']} ms",
            f"  {result['rows']} rows in {result['commits']} commits, {result['lost']} lost",
            hardware_line(result["hardware"]),
        ]
    )
