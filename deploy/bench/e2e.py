"""`bench e2e`: publish over MQTT at a rate, and time every message from its publish to its queryable row.

The clock starts when a message is due (its own `ts`; the load is an open loop, so what holds the publisher up counts too)
and stops when a reader apart from the writer has read the row from the committed version. Every message of the measured
span counts, none is sampled. The publisher is a process of its own whose packets are encoded beforehand, as the devices
of a real fleet cost this machine nothing.

Backlog above capacity: how far a pipeline falls behind an open loop, from due times and arrival times. Pure.
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
from deploy.bench.load_publisher import LoadPlan
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
"""The delay of the first fifth of the messages is compared with that of the last fifth."""


def schedule_delay_figures(
    due: Sequence[float], seen: Sequence[float | None], *, earlier: Sequence[float] = ()
) -> dict[str, float]:
    """Figures of one run; nothing where no message was seen.

    Args:
        due: seconds, ascending.
        seen: seconds, of the same messages; None of one that never came.
        earlier: when messages that were due before these were seen, such as those of a warm-up.

    Returns:
        `messages_per_second` of all that were seen from the first due message to the last one of them that was seen (a warm-up
        may have left a backlog, which comes first); `backlog_at_end`: messages that were due
        and not seen when the last one was due; `drain_seconds` from then to the last one seen, at least 0;
        `delay_growth_ms_per_second`: how much longer a message takes each second (about 0 where the pipeline keeps up, and
        nothing of so short a run that the fifths are one moment).
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
    """Time at which each message of this run was queryable with all readings; filled by one thread, read after it ended.

    Times are in epoch seconds.
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
    """Number of rows of this run that came; for a load that is not timed."""

    boot: int
    rows: int = 0

    def add(self, commit: FollowedCommit) -> None:
        """Count the rows of one commit that belong to this run."""
        self.rows += pc.sum(pc.equal(commit.rows.column("boot"), self.boot)).as_py() or 0


def measure_e2e(
    settings: Settings, *, rate: float, seconds: float, warmup_seconds: float, devices: int, readings: int = 1,
    fleet: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the load through a running pipeline; the result as it is printed with --json.

    Args:
        settings: of the pipeline.
        rate: messages a second.
        seconds: of the measured span.
        warmup_seconds: before that, at the same rate.
        devices: they publish in turn.
        readings: of each message, each a row.
        fleet: begin of the devices' names; without it they are new.
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
    """A load that begins as soon as its publisher can have started and encoded the packets."""
    return LoadPlan(
        host=mqtt.host, port=mqtt.port, username=mqtt.username or "",
        password="" if mqtt.password is None else mqtt.password.get_secret_value(),
        tls=mqtt.tls, ca_file=mqtt.ca_file,
        messages=messages, rate=rate, devices=devices, readings=readings, boot=boot,
        name=fleet or f"bench-{uuid.uuid4().hex[:6]}",
        begin_at=time.time() + 3.0 + messages / 50_000,
    )  # fmt: skip


def _key(plan: LoadPlan, number: int) -> tuple[str, int]:
    device, seq = plan.names(number)
    return f"{plan.name}-{device:04d}", seq


def publish(plan: LoadPlan) -> tuple[int, float]:
    """Run the publisher to its end; returns how many were acknowledged, and its CPU seconds.

    Raises:
        FatalError: it could not connect, or the broker closed its connections.
    """
    otherwise = f"the publisher could not use the broker at {plan.host}:{plan.port}"
    result = json.loads(run_child("deploy.bench.load_publisher", asdict(plan), otherwise)[-1])
    return int(result["acknowledged"]), float(result["cpu_seconds"])


@contextmanager
def follow_rows(follower: TableFollower, landing: "LandingTimes | RowCount") -> Iterator[None]:
    """Note the rows of each commit while the block runs."""
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            for commit in follower.poll():
                landing.add(commit)
            done.wait(POLL_SECONDS)

    reader = threading.Thread(target=follow, name="reader", daemon=True)
    reader.start()
    try:
        yield
    finally:
        done.set()
        reader.join()


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
    """The nearest-rank percentile of ascending seconds, in ms; None of nothing."""
    if not ascending:
        return None
    return round(ascending[max(0, math.ceil(share * len(ascending)) - 1)] * 1000)


def render_e2e(result: Mapping[str, Any]) -> str:
    """The result in a few lines for people."""
    return "\n".join(
        [
            f"Publish to queryable row at {result['sent_rate']:g} messages/s for {result['seconds']:g} s:",
            f"  p50 {result['p50_ms']} ms   p95 {result['p95_ms']} ms   p99 {result['p99_ms']} ms",
            f"  {result['rows']} rows in {result['commits']} commits, {result['lost']} lost",
            hardware_line(result["hardware"]),
        ]
    )
