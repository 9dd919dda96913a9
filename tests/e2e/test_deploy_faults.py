"""Any part may be killed under load: it comes back by itself, and nothing that was acknowledged is lost or doubled."""

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.promise("P1")

SAVING_MS = 500
"""What mosquitto acknowledged this long before the time of its database is in it."""


def kill(pipeline: Any, part: str, wait_until: Callable[..., Any]) -> float:
    """kill -9 one part, and wait until a new process of it is ready; since when it is, in epoch seconds."""
    pid = pipeline.run.parts[part]
    os.kill(pid, signal.SIGKILL)

    def back() -> float | None:
        state = pipeline.status()["parts"][part]
        return float(state["since"]) if state["state"] == "ready" and state["pid"] not in (pid, None) else None

    return float(wait_until(back, seconds=300, what=f"{part} coming back after its kill"))


def test_each_part_killed_under_load_costs_nothing(
    pipeline: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    durable = not any("iotcore" in alert["text"] for alert in pipeline.status()["alerts"])
    fleet = start_fleet(pipeline, devices=50, rate=100)
    wait_until(lambda: len(fleet.acknowledged()) > 100, what="the load")
    for part in ("gateway", "kafka", "stream", "canary"):
        kill(pipeline, part, wait_until)
    unsaved_ms = range(0)
    if durable:
        saved_at = (pipeline.data / "mqtt" / "mosquitto.db").stat().st_mtime
        back_at = kill(pipeline, "broker", wait_until)
        unsaved_ms = range(int(saved_at * 1000) - SAVING_MS, int(back_at * 1000))
        wait_until(lambda: max(fleet.acknowledged().values()) > unsaved_ms.stop + 1000, what="the load after it")
    totals = fleet.finish()
    assert totals.acknowledged == totals.sent
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")

    report = pipeline.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    lost = set(fleet.acknowledged()) - pipeline.stored_messages(fleet.boot)
    in_the_brokers_memory = {message for message, at_ms in fleet.acknowledged().items() if at_ms in unsaved_ms}
    assert lost <= in_the_brokers_memory


def test_status_tells_what_happens_while_a_part_is_down(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    restarts = pipeline.status()["parts"]["gateway"]["restarts"]
    log = pipeline.data / "logs" / "supervisor.log"
    before = len(log.read_text("utf-8"))
    os.kill(pipeline.run.parts["gateway"], signal.SIGKILL)
    wait_until(lambda: pipeline.status()["parts"]["gateway"]["restarts"] > restarts, what="a restart being counted")
    words = r"gateway .*killed by SIGKILL"
    wait_until(lambda: re.search(words, log.read_text("utf-8")[before:]), what="the cause in the log")
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")
