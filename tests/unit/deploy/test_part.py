"""The life of a part: start, readiness, restart with back-off, stop; and nothing left when its supervisor is gone."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.demo.part_faults import belongs_to_run
from deploy.local import part as part_module
from deploy.local.guard import RUN_ID, find_marked_processes, kill_marked
from deploy.local.part import SILENT_SINCE, Part, PartSpec, backoff_seconds
from deploy.local.run_plan import reports_hang
from deploy.testbed.server_process import stop_child
from monitoring.scrape import SILENT
from tests.support.processes import runs

Wait = Callable[..., Any]

ROOT = Path(__file__).parents[3]

FOREVER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
WITH_CHILD = [
    sys.executable, "-S", "-c",
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']); "
    "print('up', flush=True); time.sleep(600)",
]  # fmt: skip


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_module, "LOOK_SECONDS", 0.05)


@pytest.fixture
def make_part(tmp_path: Path) -> Iterator[Callable[..., Part]]:
    made: list[Part] = []

    def make(command: Sequence[str], **options: Any) -> Part:
        defaults: dict[str, Any] = {"name": "part", "command": lambda: command, "ready": lambda: (True, "up")}
        spec = PartSpec(**{**defaults, **options})
        part = Part(spec, environment=dict(os.environ), log=tmp_path / "part.log", cwd=tmp_path)
        made.append(part)
        return part

    yield make
    for part in made:
        part.stop()


def started(part: Part, others: dict[str, Part] | None = None) -> Part:
    part.start(others or {}, lambda: None)
    return part


def followed(part: Part) -> list[tuple[str, str]]:
    """Start it; each state it enters, with its words, however short it lasts and however seldom a test may look."""
    entered: list[tuple[str, str]] = []
    part.start({}, lambda: entered.append((part.state, part.detail)))
    return entered


def back_offs(entered: list[tuple[str, str]]) -> list[str]:
    """Why it was started again, and when."""
    return [detail for state, detail in entered if state == "restarting"]


def test_becomes_ready_and_stops(make_part: Callable[..., Part], wait_until: Wait) -> None:
    part = started(make_part(FOREVER))
    wait_until(lambda: part.state == "ready", what="the part being ready")
    pid = part.pid
    assert pid is not None
    part.stop()
    assert part.state == "stopped"
    assert not psutil.pid_exists(pid)


def test_a_killed_part_starts_again(make_part: Callable[..., Part], wait_until: Wait) -> None:
    part = started(make_part(FOREVER))
    first = wait_until(lambda: part.state == "ready" and part.pid, what="the first process")
    os.kill(first, signal.SIGKILL)
    second = wait_until(lambda: part.pid != first and part.state == "ready" and part.pid, what="a new process")
    assert second != first
    assert part.restarts == 1


def test_the_cause_of_a_restart_is_told_and_the_wait_doubles(make_part: Callable[..., Part], wait_until: Wait) -> None:
    code = "import sys; print('no room left'); sys.exit(3)"
    part = make_part([sys.executable, "-S", "-c", code], ready=lambda: (False, ""))
    entered = followed(part)
    wait_until(lambda: len(back_offs(entered)) >= 2, what="the second back-off")
    cause = "ended with exit code 3 (no room left); starts again"
    assert back_offs(entered)[:2] == [f"{cause} in 0.5 s", f"{cause} in 1 s"]
    assert part.last_end == (2, f"{cause} in 1 s")


def test_a_part_that_is_never_ready_keeps_the_longest_back_off() -> None:
    assert [backoff_seconds(vain) for vain in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 15.0, 15.0, 15.0]


def test_living_long_without_serving_does_not_bring_the_first_back_off_again(
    make_part: Callable[..., Part], wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_module, "STABLE_SECONDS", 0.0)
    monkeypatch.setattr(part_module, "BACKOFF_SECONDS", (0.01, 0.02, 0.04, 0.08))
    code = "import time; time.sleep(0.2); raise SystemExit(1)"
    entered = followed(make_part([sys.executable, "-S", "-c", code], ready=lambda: (False, "")))
    wait_until(lambda: len(back_offs(entered)) >= 3, what="the third back-off")
    assert back_offs(entered)[2].endswith("in 0.04 s")


def test_a_part_that_served_for_long_starts_again_with_the_first_back_off(
    make_part: Callable[..., Part], wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_module, "STABLE_SECONDS", 0.0)
    monkeypatch.setattr(part_module, "BACKOFF_SECONDS", (0.2, 0.3, 0.4, 0.5))
    part = make_part(FOREVER)
    entered = followed(part)
    for count in range(3):
        pid = wait_until(lambda: part.state == "ready" and part._stable and part.pid, what="the part being ready")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: part.restarts == count + 1, what="the restart")  # noqa: B023
    assert [words.endswith("in 0.2 s") for words in back_offs(entered)] == [True] * 3, entered


def test_wrong_settings_are_final_and_the_sentence_is_shown(make_part: Callable[..., Part], wait_until: Wait) -> None:
    code = "import sys; print('x.toml:2: unknown key'); sys.exit(78)"
    part = started(make_part([sys.executable, "-S", "-c", code], ready=lambda: (False, "")))
    wait_until(lambda: part.state == "failed", what="the part being given up")
    assert part.detail == "ended with exit code 78 (x.toml:2: unknown key)"
    part.stop()
    assert (part.state, part.restarts) == ("failed", 0)


@pytest.mark.parametrize(
    ("detail", "hung"),
    [
        (SILENT, True),
        ("the gateway's loop has not turned for 150 s", True),
        ("stalled: no batch for 61 s", True),
        ("waiting for Kafka to acknowledge 5 messages", False),
        ("Kafka at 127.0.0.1:9092 does not answer", False),
        ("no reading read back for 90 s", False),
        ("starting Spark", False),
    ],
)
def test_waiting_for_another_part_is_no_hang(detail: str, hung: bool) -> None:
    assert reports_hang(detail) is hung


def test_a_part_that_hangs_after_it_served_is_started_anew(
    make_part: Callable[..., Part], wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_module, "STALLED_SECONDS", 0.2)
    answers = {"now": (True, "up")}
    part = make_part(FOREVER, ready=lambda: answers["now"], stalled=reports_hang)
    entered = followed(part)
    first = wait_until(lambda: part.state == "ready" and part.pid, what="the part being ready")
    answers["now"] = (False, SILENT)
    wait_until(lambda: back_offs(entered), what="the restart")
    assert back_offs(entered)[0].startswith("hung for ")
    assert SILENT_SINCE in back_offs(entered)[0]
    assert not psutil.pid_exists(first)
    # A life that never served is starting, however long it takes.
    wait_until(lambda: part.pid, what="the next process")
    assert part._stalled_at is None


def test_a_part_that_was_ready_and_is_silent_is_down_since_then(
    make_part: Callable[..., Part], wait_until: Wait
) -> None:
    answers = {"now": (False, SILENT)}
    looks: list[str] = []

    def ready() -> tuple[bool, str]:
        looks.append(answers["now"][1])
        return answers["now"]

    part = started(make_part(FOREVER, ready=ready, stalled=reports_hang))
    wait_until(lambda: looks.count(SILENT) > 2, what="looks at one that never served")
    assert (part.state, part.detail) == ("starting", SILENT)
    answers["now"] = (True, "up")
    wait_until(lambda: part.state == "ready", what="the part being ready")
    answers["now"] = (False, SILENT)
    wait_until(lambda: part.state == "down", what="the silence")
    since, seen = part.since, len(looks)
    wait_until(lambda: len(looks) > seen + 3, what="more looks")
    assert (part.state, part.detail, part.since, part.restarts) == ("down", "does not answer", since, 0)
    answers["now"] = (False, "waiting for Kafka")
    wait_until(lambda: part.detail == "waiting for Kafka", what="its words")
    assert part.state == "starting"
    answers["now"] = (True, "up")
    wait_until(lambda: part.state == "ready", what="the part being ready again")


def test_a_part_that_waits_or_lacks_kafka_is_left_alone(
    make_part: Callable[..., Part], wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_module, "STALLED_SECONDS", 0.0)
    answers = {"now": (True, "up")}
    looks: list[str] = []

    def ready() -> tuple[bool, str]:
        looks.append(answers["now"][1])
        return answers["now"]

    kafka = make_part(FOREVER, name="kafka")
    part = make_part(FOREVER, name="gateway", ready=ready, stalled=reports_hang, stalls_with=("kafka",))
    started(part, {"kafka": kafka, "gateway": part})
    pid = wait_until(lambda: part.state == "ready" and part.pid, what="the part being ready")
    for words in (SILENT, "waiting for Kafka"):
        answers["now"] = (False, words)
        wait_until(lambda: looks.count(words) > 3, what="some looks")  # noqa: B023
        assert part.pid == pid
    answers["now"] = (True, "up")
    wait_until(lambda: part.state == "ready", what="the part being ready again")
    kafka.state = "ready"
    answers["now"] = (False, SILENT)
    wait_until(lambda: part.restarts == 1, what="the restart beside a Kafka that is ready")


def test_a_command_that_cannot_start_is_tried_again(make_part: Callable[..., Part], wait_until: Wait) -> None:
    part = started(make_part([str(Path("/nowhere/program"))]))
    wait_until(lambda: part.state == "restarting" and "/nowhere/program" in part.detail, what="the failed start")


def test_waits_for_the_parts_it_needs_and_a_step_is_done_once(make_part: Callable[..., Part], wait_until: Wait) -> None:
    step = make_part([sys.executable, "-S", "-c", "pass"], name="step", one_shot=True, ready=lambda: (False, ""))
    part = make_part(FOREVER, name="after", after=("step",))
    parts = {"step": step, "after": part}
    started(part, parts)
    assert part.state == "waiting"
    started(step, parts)
    wait_until(lambda: part.state == "ready", what="the part after the step")
    assert step.state == "done"


def test_a_child_of_a_killed_part_does_not_live_on(make_part: Callable[..., Part], wait_until: Wait) -> None:
    part = started(make_part(WITH_CHILD))
    leader = wait_until(lambda: part.pid, what="the process")
    child = wait_until(lambda: psutil.Process(leader).children(), what="its child")[0]
    os.kill(leader, signal.SIGKILL)
    wait_until(lambda: not runs(child), what="the child's end")


def test_a_part_that_does_not_stop_when_asked_is_killed(make_part: Callable[..., Part], wait_until: Wait) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    part = started(make_part([sys.executable, "-S", "-c", deaf], stop_seconds=0.3))
    wait_until(lambda: part.log.exists() and part.log.read_text() == "up\n", what="the deaf part")
    pid = part.pid
    assert pid is not None
    part.stop()
    assert not psutil.pid_exists(pid)


def test_the_guard_clears_up_after_a_killed_supervisor(wait_until: Wait) -> None:
    run_id = uuid.uuid4().hex
    supervisor = subprocess.Popen(
        [
            sys.executable, "-c",
            "import os, subprocess, sys, time\n"
            "from deploy.local.guard import Guard\n"
            "run_id = sys.argv[1]\n"
            "guard = Guard(run_id)\n"
            "code = 'import time; time.sleep(600)'\n"
            "subprocess.Popen([sys.executable, '-S', '-c', code], env={**os.environ, 'TIDEGATE_RUN_ID': run_id},"
            " start_new_session=True)\n"
            "time.sleep(600)",
            run_id,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    wait_until(lambda: find_marked_processes(run_id), what="the child of the run")
    supervisor.kill()
    supervisor.wait()
    wait_until(lambda: not find_marked_processes(run_id), what="the end of the run's processes")


def test_processes_of_another_run_are_spared(wait_until: Wait) -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    children = [subprocess.Popen(FOREVER, env={**os.environ, RUN_ID: run_id}) for run_id in (mine, other)]
    try:
        for child, run_id in zip(children, (mine, other), strict=True):
            wait_until(lambda child=child, run_id=run_id: belongs_to_run(child.pid, run_id), what="the mark")
        assert kill_marked(mine) == 1
        children[0].wait(10)
        # What was sent to it before is delivered first.
        stop_child(children[1].pid)
        assert children[1].poll() is None
    finally:
        for child in children:
            child.kill()
            child.wait()
