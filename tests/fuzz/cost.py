"""`python -m tests.fuzz.cost`: what each bomb costs each decoder and preset, in milliseconds and memory.

A bomb may cost 50 ms of CPU time. One that holds thousands of values, each to be stored or rejected with a reason, may cost 10 µs
for each of them, up to as many as a message may hold.
"""

import argparse
import json
import sys
import time
import tracemalloc
from typing import Any, Final

from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message
from tests.fuzz.bombs import BOMBS, make_bomb
from tests.fuzz.checks import faults_of
from tests.fuzz.seeds import FuzzTarget, targets

__all__ = ["main", "measure_bomb"]

MAX_SECONDS: Final = 0.05
MAX_SECONDS_PER_VALUE: Final = 10e-6
MAX_PEAK_BYTES: Final = 64 << 20
NOW_US: Final = 1_796_000_000_000_000
LOOKS: Final = 5
"""The cheapest counts: a look may have been disturbed, and none is faster than the code."""


def measure_bomb(target: FuzzTarget, name: str, limits: GatewaySettings) -> dict[str, Any]:
    """One bomb on one target: `{target, bomb, bytes, outcome, readings, ms, allowed_ms, peak_mb, faults}`."""
    payload = make_bomb(name)
    gate, message = target.gate(limits), Message(1, 1, NOW_US, target.topics[0].encode(), payload)
    took = float("inf")
    for _ in range(LOOKS):
        started = time.thread_time()
        outcome = gate.decide(message)
        took = min(took, time.thread_time() - started)
    tracemalloc.start()
    gate.decide(message)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    values = min(limits.max_readings_per_message, payload.count(b",") + payload.count(b"\n"))
    allowed = max(MAX_SECONDS, MAX_SECONDS_PER_VALUE * values)
    return {
        "target": target.name,
        "bomb": name,
        "bytes": len(payload),
        "outcome": str(outcome.rejected or outcome.ignored or "accepted"),
        "readings": outcome.readings,
        "ms": round(took * 1000, 1),
        "allowed_ms": round(allowed * 1000, 1),
        "peak_mb": round(peak_bytes / 2**20, 1),
        "faults": faults_of(message, outcome, limits),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print every bomb that cost too much, and the dearest twenty; 1 where one did."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.cost", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="DECODER", help="a decoder, or 'preset NAME'; default: all")
    given = parser.parse_args(arguments)
    limits = GatewaySettings()
    chosen = [target for target in targets() if not given.targets or target.name in given.targets]
    runs = [measure_bomb(target, name, limits) for target in chosen for name in BOMBS]
    over = [
        run for run in runs if run["ms"] > run["allowed_ms"] or run["peak_mb"] * 2**20 > MAX_PEAK_BYTES or run["faults"]
    ]
    dearest = sorted(runs, key=lambda run: run["ms"], reverse=True)[:20]
    sys.stdout.write(json.dumps({"runs": len(runs), "over": over, "dearest": dearest}, indent=1) + "\n")
    sys.stderr.write(f"{len(runs)} bombs, {len(over)} above the limit\n")
    return 1 if over or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
