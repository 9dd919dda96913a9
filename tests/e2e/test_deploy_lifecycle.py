"""Beside a first run, twice in a row, refused on the same data, killed without warning, stopped without a trace."""

import os
import signal
from collections.abc import Callable
from typing import Any


def test_a_second_instance_lives_and_ends_beside_the_first(
    pipeline: Any, new_pipeline: Callable[[], Any], wait_until: Callable[..., Any]
) -> None:
    second = new_pipeline()
    started = second.up("--wait", "--no-fleet", "--json")
    assert '"ready": true' in started.stdout
    assert not set(second.run.ports.values()) & set(pipeline.run.ports.values())

    refused = second.tidegate("up", "--data", str(second.data), ok=(1,))
    assert f"pid {second.run.pid}" in refused.stderr
    assert "tidegate down" in refused.stderr

    killed = second.run
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: second.left_behind(killed) == ["run.json"], seconds=60, what="the end of all its processes")
    assert "Nothing runs on" in second.tidegate("status", ok=(69,)).stderr

    # Twice in a row on the same data, over what the killed run left.
    second.up("--no-fleet")
    wait_until(
        lambda: second.status()["parts"]["gateway"]["state"] == "ready",
        seconds=300,
        what="the gateway of the second start",
    )
    again = second.run
    assert again.run_id != killed.run_id
    second.tidegate("down")
    assert second.left_behind(again) == []
    assert pipeline.run.pid > 0
