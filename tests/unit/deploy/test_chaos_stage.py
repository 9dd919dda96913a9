"""A process that is held stands still with all of its threads before the next step is taken; silence is no figure."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.chaos.testbed import GatewayProcess
from deploy.local.ports import choose_port
from deploy.settings import Settings
from deploy.testbed.server_process import stop_child
from monitoring.exporter import Exporter

BUSY = """
import threading, time
for _ in range(8):
    threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux tells the states of threads")
def test_no_thread_of_a_held_process_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            for _ in range(10):
                stop_child(process.pid)
                assert states(process.pid) == ["T"] * 9
                os.kill(process.pid, signal.SIGCONT)
        finally:
            process.kill()
        stop_child(process.pid)
        assert process.wait(60) == -signal.SIGKILL, "one that has ended is left to who waits for it"


def states(pid: int) -> list[str]:
    """T for each thread that stands still."""
    found = (Path(f"/proc/{pid}/task/{each}/stat").read_text() for each in os.listdir(f"/proc/{pid}/task"))
    return [text.rsplit(")", 1)[1].split()[0] for text in found]


def test_a_gateway_that_does_not_answer_has_no_figure(tmp_path: Path, registry: CollectorRegistry) -> None:
    """A test that awaits 0 in flight must not be content with a gateway that is away."""
    port, _ = choose_port(0)
    gateway = GatewayProcess(tmp_path, Settings.model_validate({"monitoring": {"gateway_port": port}}))
    assert math.isnan(gateway.metric("tidegate_gateway_inflight_messages"))
    exporter = Exporter(registry, port=port, healthy=lambda: (True, ""))
    assert gateway.metric("tidegate_gateway_inflight_messages") == 0
    exporter.close()
