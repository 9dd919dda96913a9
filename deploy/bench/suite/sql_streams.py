"""Cells of the shipped SQL streams: events come over MQTT, and the clock stops when a consumer has the derived record."""

import json
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from deploy.bench.kafka_load.derived import DerivedReader, reading_topics
from deploy.bench.load_publisher import GIVE_UP_SECONDS, LoadPlan, broker_fields
from deploy.bench.meetup import MeetupEvents
from deploy.bench.plan_process import run_child
from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.derived_figures import DerivedOutput, derived_figures
from deploy.bench.suite.parts_cost import RunParts
from deploy.bench.suite.scenario import Parameters, ScenarioTarget
from deploy.bench.target import own_run
from deploy.bench.temporary import own_folder
from deploy.bench.waiting import await_arrivals, await_condition
from deploy.local.runfile import read_run
from deploy.requests import run_request
from deploy.settings import Settings
from ingest.contract.errors import FatalError, TidegateError, UnavailableError
from ingest.contract.topics import stream_group, stream_topic
from ingest.groups.offset_mirror import group_lag
from ingest.topics.offsets import end_offsets
from lakehouse.requests import Request
from lakehouse.table_follower import TableFollower
from streaming.sql.applied_streams import load_applied
from streaming.sql.stream_folder import find_stream
from streaming.sql.stream_status import read_status

__all__ = ["full_disk", "in_realtime", "mapping_text", "streams_bed", "streams_cell"]

STREAMS: Final = ("events_in_country", "events_in_city")
"""The second reads the first."""
_PORT_OFFSET: Final = 2200
_READY_SECONDS: Final = 900
"""More than it takes by default: a benchmark waits for a busy machine rather than fail."""
_RUNNING_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 300.0
"""Time without a new record while records are missing: a stream that starts again, or a disk that was full."""
_FULL_SECONDS: Final = 15.0
_REALTIME_SLOTS: Final = "local[6]"
"""Slots of the executor: a task for each of three partitions read, and the two that the landing keeps; they mostly wait for
records.
"""
_LOOK_SECONDS: Final = 0.2


@contextmanager
def streams_bed(target: ScenarioTarget) -> Iterator[CellBed]:
    """An embedded run with the mapping of meetup events and both streams applied; stopped and removed afterwards.

    With `realtime` both streams are the shipped ones but for their header: real-time mode, and a topic alone.

    Raises:
        UnavailableError: the target wants a disk of its own, and this user may not mount one; or the streams do not run.
        FatalError: it does not start.
    """
    with ExitStack() as parts:
        folder = parts.enter_context(own_folder())
        data = folder / "data"
        data.mkdir()
        if target.disk_mb:
            parts.enter_context(_small_disk(data, target.disk_mb))
        config = folder / "meetup.toml"
        slots = f'[stream]\nmaster = "{_REALTIME_SLOTS}"\n' if target.realtime else ""
        ready = f"[embedded]\nready_timeout_seconds = {_READY_SECONDS}\n"
        config.write_text(f"{mapping_text()}\n{slots}{ready}", "utf-8")
        settings = parts.enter_context(own_run(data, port_offset=_PORT_OFFSET, config=config))
        for name in STREAMS:
            text = find_stream(folder, name).text
            text = in_realtime(text) if target.realtime else text
            run_request(settings, Request("streams.apply", {"name": name, "text": text}, author="bench"))
        await_condition(
            lambda: all(_state(settings, name) == "running" for name in STREAMS),
            "the streams are not running (see `tidegate streams ls`)", seconds=_RUNNING_SECONDS,
        )  # fmt: skip
        pids = RunParts()
        pids.folder = data
        yield CellBed(settings.kafka, brokers=pids, folder=data, pipeline=settings)


def mapping_text() -> str:
    """The shipped mapping of meetup events, which here keeps the description too: so Kafka holds whole events."""
    text = (files("streaming.sql") / "examples" / "meetup.toml").read_text("utf-8")
    return text.replace('keep = ["event_name"]', 'keep = ["event_name", "description"]')


def in_realtime(text: str) -> str:
    """A stream's file with the trigger `realtime`, and its topic as the only sink: that mode writes no table."""
    header = {"sink": "topic", "trigger": "realtime"}
    for key, value in header.items():
        text = re.sub(f"^-- {key}: .*$", f"-- {key}: {value}", text, flags=re.MULTILINE)
    return text


@contextmanager
def _small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tidegate-bench", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        message = "disturbance=disk_full mounts a small disk, which only root on Linux may do. Run it as root"
        raise UnavailableError(message)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def streams_cell(workload: Parameters, bed: CellBed) -> dict[str, float]:
    """One run: `messages` at `rate`, 0 as fast as Kafka gets them; the `disturbance` comes when half of them are due.

    Returns:
        See `derived_figures`; `produce_per_second`, `produce_megabytes_per_second`, `unacknowledged`.

    Raises:
        FatalError: the cell runs where there are no such streams, or nothing came out of them.
    """
    settings = bed.pipeline
    if settings is None or bed.folder is None:
        message = 'these events need a whole pipeline with its streams. Give the target `runs = "streams"`'
        raise FatalError(message)
    meetup = MeetupEvents(workload.messages, workload.message_bytes, f"m{time.time_ns():x}")
    topics = [stream_topic(name) for name in STREAMS]
    applied = load_applied(settings.lake.root)
    tables = {
        name: TableFollower(settings.lake.root, name, columns=("device",))
        for name in STREAMS
        if "table" in applied[name].shape.sinks
    }
    with reading_topics(settings.kafka, topics) as reader:
        plan = _plan(settings, bed.folder, workload)
        disturbance = threading.Thread(target=_disturb, args=(workload.disturbance, plan, bed.folder), daemon=True)
        disturbance.start()
        published = _publish(plan, meetup, settings.kafka.bootstrap_servers)
        disturbance.join()
        followed = [name for name in STREAMS if applied[name].shape.trigger_seconds is not None]
        _settle(settings, reader, meetup, followed=followed)
    outcome = DerivedOutput(
        {name: reader.records[stream_topic(name)] for name in STREAMS},
        {name: _devices(table) for name, table in tables.items()},
        plan.due_at if plan.rate else None,
        plan.begin_at + plan.messages / plan.rate / 2 if workload.disturbance != "none" else None,
    )
    found = derived_figures(meetup, outcome)
    acknowledged, seconds = published["acknowledged"], published["seconds"]
    return {
        **found,
        "unacknowledged": float(plan.messages - acknowledged),
        "produce_per_second": round(acknowledged / seconds, 1),
        "produce_megabytes_per_second": round(acknowledged * workload.message_bytes / seconds / 1e6, 3),
    }


def _plan(settings: Settings, folder: Path, workload: Parameters) -> LoadPlan:
    mqtt, run = settings.mqtt, read_run(folder)
    return LoadPlan(
        **{**broker_fields(mqtt), "port": run.ports["mqtt"] if run else mqtt.port},
        messages=workload.messages, rate=workload.rate, devices=workload.messages, name="bench-meetup",
        begin_at=time.time() + 3.0,
    )  # fmt: skip


def _publish(plan: LoadPlan, meetup: MeetupEvents, bootstrap_servers: str) -> dict[str, Any]:
    otherwise = f"the publisher could not use the broker at {plan.host}:{plan.port}"
    events = {
        "load": asdict(plan), "event_bytes": meetup.event_bytes, "run": meetup.run,
        "bootstrap_servers": bootstrap_servers,
    }  # fmt: skip
    return dict(json.loads(run_child("deploy.bench.meetup", events, otherwise)[-1]))


def _disturb(kind: str, plan: LoadPlan, folder: Path) -> None:
    """Disturb the middle of the run: kill the process of the streams, or take all of the disk for a while."""
    if kind == "none":
        return
    time.sleep(max(0.0, plan.begin_at + plan.messages / plan.rate / 2 - time.time()))
    if kind == "stream_killed":
        run = read_run(folder)
        pid = run.parts.get("stream") if run is not None else None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    else:
        with full_disk(folder):
            time.sleep(_FULL_SECONDS)


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """All that is left of a file system is taken, and given back at the end of the block."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as out:
            for size in (1024 * 1024, 4096):
                _write_until_full(out, b"\0" * size)
        yield
    finally:
        filler.unlink(missing_ok=True)


def _write_until_full(out: Any, block: bytes) -> None:
    while True:
        try:
            out.write(block)
        except OSError:
            return


def _settle(settings: Settings, reader: DerivedReader, meetup: MeetupEvents, *, followed: Sequence[str]) -> None:
    """Wait until both topics have what they must, and the streams have read all that there is, as long as any record comes.

    `followed` are the streams whose consumer groups say how far they are. In real-time mode they do so once in minutes; and what
    such a stream repeats after a start comes before anything newer.

    Raises:
        FatalError: a stream has not read all: what is missing may still come, and is not lost.
    """
    wanted = [{meetup.event_id(one.number) for one in each} for each in (meetup.of_country(), meetup.of_city())]
    records = [reader.records[stream_topic(name)] for name in STREAMS]
    count, since = -1, time.monotonic()
    while time.monotonic() - since < _SETTLE_SECONDS:
        if all(keys <= {one.key for one in list(have)} for keys, have in zip(wanted, records, strict=True)):
            break
        if reader.count() != count:
            count, since = reader.count(), time.monotonic()
        time.sleep(_LOOK_SECONDS)
    # Records that a stream has not read yet may still come out of it, doubled.
    if behind := [name for name in followed if not _reads_all(settings, name)]:
        states = ", ".join(f"{name} ({_state(settings, name)})" for name in behind)
        message = (
            f"a stream had not read everything {GIVE_UP_SECONDS:g} s after the last record: {states}. "
            "The missing records are therefore not proof of a loss"
        )
        raise FatalError(message)
    await_arrivals(reader.count, math.inf, silent_seconds=1.0)


def _reads_all(settings: Settings, name: str) -> bool:
    """Wait until a stream has read all present records of its topics: the canary goes on, so their ends are never reached."""
    ends: dict[str, dict[int, int]] = {}
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < give_up:
        with suppress(TidegateError):
            if not ends:
                ends = {
                    source: end_offsets(settings.kafka, source)
                    for source in load_applied(settings.lake.root)[name].start
                }
            if has_read(group_lag(settings.kafka, stream_group(name), list(ends)), ends):
                return True
        time.sleep(_LOOK_SECONDS)
    return False


def has_read(lag: Mapping[str, Mapping[int, tuple[int, int]]], ends: Mapping[str, Mapping[int, int]]) -> bool:
    """Return whether a group committed these offsets or later ones, whatever came since; see `group_lag`."""
    return all(
        lag.get(topic, {}).get(part, (0, 0))[0] >= end for topic, parts in ends.items() for part, end in parts.items()
    )


def _state(settings: Settings, name: str) -> str:
    return str(read_status(settings.lake.root)[1].get(name, {}).get("state", ""))


def _devices(table: TableFollower) -> list[str]:
    found: list[str] = []
    for commit in table.poll():
        if commit.rows.num_rows:
            found += commit.rows.column("device").to_pylist()
    return found
