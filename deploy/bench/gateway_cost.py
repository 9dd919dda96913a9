"""`bench gateway`: cost of one message in the gateway's process, and the time from receipt to PUBACK.

The processor time is that of the gateway's process with all its threads, from /proc, between the first and the last message of
a repeat. Each repeat waits until Kafka has every record. Afterwards each message is looked up in Kafka by device, boot and
number. Other work on the machine makes the figures larger, so the result includes the machine's load.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from deploy.bench.environment import hardware, hardware_line, versions
from deploy.bench.gateway_testbed import USER, BenchTestbed, gateway_testbed
from deploy.bench.load_publisher import LoadPlan
from ingest.contract.errors import FatalError, UnavailableError
from ingest.contract.reading import decode_record
from ingest.contract.topics import READINGS
from ingest.read.offset_range import read_range
from ingest.topics.offsets import end_offsets
from monitoring.scrape import Scrape, histogram_quantiles, scrape

__all__ = ["cpu_seconds", "measure_gateway", "render_gateway"]

SATURATION_MESSAGES: Final = 40_000
POLL_SECONDS: Final = 0.1
STALL_SECONDS: Final = 30.0
_FROM_RECEIPT: Final = "tidegate_gateway_produce_duration_seconds"


def measure_gateway(
    *, rate: float, seconds: float, repetitions: int = 3, protocol: str = "5", inflight: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the load; the result as it is printed with --json.

    Args:
        rate: messages per second, 0 for as many as the parts take.
        seconds: how long each repetition publishes at that rate; at saturation it is 40,000 messages.
        repetitions: of which the medians are the result; one more before them warms up and does not count.
        protocol: MQTT version of the gateway's session.
        inflight: not 0: a scripted broker sends at most so many unacknowledged messages, by MQTT 3.1.1.
        settings: further settings of the gateway.

    Raises:
        UnavailableError: a part did not start.
    """
    if not Path("/proc/self/stat").exists():
        message = "`bench gateway` reads processor times from /proc, which this system does not have. Run it on Linux."
        raise UnavailableError(message)
    machine = hardware()
    messages = int(rate * seconds) if rate else SATURATION_MESSAGES
    runs: list[dict[str, Any]] = []
    with gateway_testbed(protocol=protocol, inflight=inflight, settings=settings) as parts:
        boot = int(time.time())
        for number in range(repetitions + 1):
            count = messages if number else min(messages, 5000)
            runs.append(_repetition(parts, _plan(parts, count, rate, boot + number)))
    measured = runs[1:]
    names = (
        "messages_per_second",
        "cpu_us_per_message",
        "cpu_user_us",
        "cpu_system_us",
        "puback_p50_ms",
        "puback_p99_ms",
    )
    return {
        "rate": rate or None,
        "messages": sum(run["messages"] for run in measured),
        **{name: _median([run[name] for run in measured]) for name in names},
        "puback_of": "receipt to PUBACK, oldest message of each acknowledged batch, from the gateway's own histogram",
        "lost": sum(run["lost"] for run in runs),
        "duplicates": sum(run["duplicates"] for run in runs),
        "rss_mb": measured[-1]["rss_mb"],
        "protocol": "3.1.1" if inflight else protocol,
        "inflight": inflight or None,
        "repetitions": measured,
        "hardware": machine,
        "versions": versions(),
    }


def _plan(parts: BenchTestbed, messages: int, rate: float, boot: int) -> LoadPlan:
    return LoadPlan(
        host=parts.broker.host, port=parts.broker.port, username=USER, password=parts.password, messages=messages,
        rate=rate, boot=boot, name=f"load-{boot}",
    )  # fmt: skip


def _repetition(parts: BenchTestbed, plan: LoadPlan) -> dict[str, Any]:
    begin = end_offsets(parts.kafka, READINGS)
    command = [sys.executable, "-P", "-m", "deploy.bench.load_publisher"]
    load = parts.limited or subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if load.stdout is None or load.stdin is None:
            raise AssertionError
        # The plan holds a password, which has no place on a command line.
        load.stdin.write(json.dumps(asdict(plan)) + "\n")
        load.stdin.flush()
        if load.stdout.readline().strip() != "ready":
            message = "the benchmark's publisher did not start; see its output above"
            raise FatalError(message)
        before, began, cpu = _scrape(parts), time.monotonic(), cpu_seconds(parts.gateway_pid)
        load.stdin.write("go\n")
        load.stdin.flush()
        ended = _await_records(parts, sum(begin.values()) + plan.messages)
        cpu = [now - then for now, then in zip(cpu_seconds(parts.gateway_pid), cpu, strict=True)]
        after = _scrape(parts)
        published = json.loads(load.stdout.readline() or "{}")
    finally:
        if load is not parts.limited:
            load.kill()
            load.wait()
    found, records = _count(parts, begin, plan.boot)
    p50, p99 = histogram_quantiles(after, before, _FROM_RECEIPT, (0.5, 0.99)) or (float("nan"),) * 2
    return {
        "messages": plan.messages,
        "seconds": round(ended - began, 3),
        "messages_per_second": round(plan.messages / (ended - began)),
        "cpu_us_per_message": round(sum(cpu) / plan.messages * 1e6, 2),
        "cpu_user_us": round(cpu[0] / plan.messages * 1e6, 2),
        "cpu_system_us": round(cpu[1] / plan.messages * 1e6, 2),
        "puback_p50_ms": round(p50 * 1000, 1),
        "puback_p99_ms": round(p99 * 1000, 1),
        "lost": plan.messages - found,
        "duplicates": records - found,
        "rss_mb": _rss_mb(parts.gateway_pid),
        "publisher": published,
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _scrape(parts: BenchTestbed) -> Scrape:
    found = scrape(parts.metrics_url, timeout_seconds=10.0)
    if found is None:
        message = f"the gateway of the benchmark no longer answers at {parts.metrics_url}"
        raise FatalError(message)
    return found


def _await_records(parts: BenchTestbed, wanted: int) -> float:
    """Wait until Kafka has so many records, or none comes any more; when the last one was seen (monotonic)."""
    have, at = -1, time.monotonic()
    while have < wanted and time.monotonic() - at < STALL_SECONDS:
        now = sum(end_offsets(parts.kafka, READINGS).values())
        if now != have:
            have, at = now, time.monotonic()
        if have < wanted:
            time.sleep(POLL_SECONDS)
    return at


def _count(parts: BenchTestbed, begin: Mapping[int, int], boot: int) -> tuple[int, int]:
    """Messages of this boot in Kafka: different ones, and all."""
    seen: set[tuple[str, int | None]] = set()
    records = 0
    for batch in read_range(parts.kafka, READINGS, begin, end_offsets(parts.kafka, READINGS)):
        for record in batch:
            reading = decode_record(record.value or b"")
            if reading.boot == boot:
                records += 1
                seen.add((reading.device, reading.seq))
    return len(seen), records


def cpu_seconds(pid: int) -> list[float]:
    """User and system time of a process with all its threads, in seconds; the kernel counts in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]


def _rss_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // (1024 * 1024)


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)


def render_gateway(result: Mapping[str, Any]) -> str:
    """The result in a few lines for people."""
    how = "as fast as it goes" if result["rate"] is None else f"at {result['rate']:g} messages/s"
    limit = f", at most {result['inflight']} in flight" if result["inflight"] else ""
    return "\n".join(
        [
            f"Gateway process alone, {result['messages']} messages {how}{limit}, "
            f"medians of {len(result['repetitions'])}:",
            f"  {result['cpu_us_per_message']} µs of processor time per message ({result['cpu_user_us']} user, "
            f"{result['cpu_system_us']} system), {result['messages_per_second']:g} messages/s",
            f"  receipt to PUBACK p50 {result['puback_p50_ms']} ms, p99 {result['puback_p99_ms']} ms "
            "(oldest message of each batch)",
            f"  {result['lost']} lost, {result['duplicates']} twice, {result['rss_mb']} MB",
            hardware_line(result["hardware"]),
        ]
    )
