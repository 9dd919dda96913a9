"""`tidegate demo fail` on the whole pipeline: the alert comes and goes, nothing is lost, nothing hangs afterwards."""

from collections.abc import Callable
from typing import Any

import psutil


def test_a_kafka_that_hangs_is_told_healed_and_accounted_for(pipeline: Any, wait_until: Callable[..., Any]) -> None:
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    pid = pipeline.run.parts["kafka"]
    report = pipeline.json("demo", "fail", "kafka", "--seconds", "30", seconds=600)
    assert report["ok"] is True
    story = [change for change in report["changes"] if change["alert"] == "TidegateKafkaUnreachable"]
    assert [change["state"] for change in story[:3]] == ["pending", "firing", "resolved"]
    pending, firing, resolved = (change["after_seconds"] for change in story[:3])
    assert pending < firing < 30 <= resolved + 1
    assert story[1]["runbook"] == "/runbooks/TidegateKafkaUnreachable"
    assert report["audit"]["received"] > 0
    assert (report["audit"]["unaccounted"], report["audit"]["duplicate_rows"]) == (0, 0)
    # It was never started anew: it went on.
    assert pipeline.run.parts["kafka"] == pid
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
