"""Any part may be killed under load: it comes back by itself, and nothing that was acknowledged is lost or doubled."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

SAVED_MS = 2_500
"""What mosquitto acknowledged this long before its kill was saved (it saves every second)."""


def kill(pipeline: Any, part: str, wait_until: Callable[..., Any]) -> None:
    """kill -9 one part, and wait until a new process of it is ready."""
    pid = pipeline.run.parts[part]
    os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        state = pipeline.status()["parts"][part]
        return state["state"] == "ready" and state["pid"] not in (pid, None)

    wait_until(back, seconds=300, what=f"{part} coming back after its kill")


def test_each_part_killed_under_load_costs_nothing(
    pipeline: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    durable = not any("iotcore" in alert["text"] for alert in pipeline.status()["alerts"])
    fleet = start_fleet(pipeline, devices=50, rate=100)
    wait_until(lambda: len(fleet.acknowledged()) > 100, what="the load")
    for part in ("gateway", "kafka", "stream", "canary"):
        kill(pipeline, part, wait_until)
    broker_killed_ms = None
    if durable:
        broker_killed_ms = time.time_ns() // 1_000_000
        kill(pipeline, "broker", wait_until)
        wait_until(lambda: max(fleet.acknowledged().values()) > broker_killed_ms + 1000, what="the load after it")
    totals = fleet.finish()
    assert totals.acknowledged == totals.sent
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")

    report = pipeline.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    lost = set(fleet.acknowledged()) - pipeline.stored_messages(fleet.boot)
    in_the_brokers_memory = {
        message
        for message, at_ms in fleet.acknowledged().items()
        if broker_killed_ms is not None and broker_killed_ms - SAVED_MS < at_ms <= broker_killed_ms + 500
    }
    assert lost <= in_the_brokers_memory


def test_status_tells_what_happens_while_a_part_is_down(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    restarts = pipeline.status()["parts"]["gateway"]["restarts"]
    os.kill(pipeline.run.parts["gateway"], signal.SIGKILL)
    wait_until(lambda: pipeline.status()["parts"]["gateway"]["restarts"] > restarts, what="a restart being counted")
    assert "killed by SIGKILL" in (pipeline.data / "logs" / "supervisor.log").read_text("utf-8")
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")
