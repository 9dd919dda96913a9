"""Two runs that start at the same moment never choose the same port."""

import os
import subprocess
import sys
from pathlib import Path

from deploy.local.ports import PortClaims, choose_port

ROOT = Path(__file__).parents[3]


def test_a_port_that_another_run_was_promised_is_passed_over(tmp_path: Path) -> None:
    first, second = PortClaims(tmp_path), PortClaims(tmp_path)
    port, _ = choose_port(0, claim=first.claim)
    other, note = choose_port(port, claim=second.claim)
    assert other > port
    assert f"port {port} is taken (another starting run)" in note
    first.release()
    assert second.claim(port)
    second.release()
    assert not tmp_path.exists()


def test_a_run_may_ask_for_its_own_port_again(tmp_path: Path) -> None:
    claims = PortClaims(tmp_path)
    assert claims.claim(5)
    assert claims.claim(5)
    claims.release()


def test_a_killed_run_holds_no_port(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from deploy.local.ports import PortClaims\n"
        "claims = PortClaims(Path(sys.argv[1])); print(claims.claim(5), flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    claims = PortClaims(tmp_path)
    assert not claims.claim(5)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert claims.claim(5)
    claims.release()


def test_a_machine_without_a_place_for_locks_has_no_claims() -> None:
    claims = PortClaims(Path("/proc/nothing/here"))
    assert claims.claim(5)
    claims.release()
