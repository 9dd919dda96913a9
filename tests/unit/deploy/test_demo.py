"""A demonstration without servers: what is told, in which order, and when it counts as shown."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import deploy.balance_audit
from deploy.cli import run as tidegate
from deploy.demo import demonstration as run
from deploy.demo.demonstration import AlertTimeline
from deploy.demo.faults import FAULTS, MOST_SECONDS
from deploy.local.part import STALLED_SECONDS
from deploy.local.runfile import DataLock, RunFile
from deploy.settings import Settings
from deploy.settings_file import to_toml, write_private
from monitoring.alerts.catalog import ALERTS

NAME = "TidegateKafkaUnreachable"
FIGURES = {name: 7 for name in run.BALANCE}


def alert(state: str, since: float, name: str = NAME, **labels: str) -> dict[str, Any]:
    return {
        "name": name, "state": state, "since": since, "severity": "critical", "labels": labels, "source": "builtin",
        "text": "Kafka does not answer.", "runbook": f"/runbooks/{name}",
    }  # fmt: skip


def at(seconds: float, *alerts: dict[str, Any]) -> dict[str, Any]:
    return {"at": seconds, "alerts": list(alerts)}


def test_an_alert_is_followed_from_pending_to_resolved() -> None:
    story = AlertTimeline(at(100, alert("firing", 50, "Old")), began_at=100)
    assert story.look(at(101, alert("firing", 50, "Old"))) == []
    (pending,) = story.look(at(103, alert("firing", 50, "Old"), alert("pending", 102.5)))
    assert (pending.state, pending.after_seconds) == ("pending", 2.5)
    assert (story.unfinished, story.still_firing) == ([NAME], [])
    story.look(at(113, alert("firing", 50, "Old"), alert("firing", 112.5)))
    story.look(at(140, alert("firing", 50, "Old"), alert("resolved", 139)))
    assert [change.state for change in story.changes] == ["pending", "firing", "resolved"]
    assert story.went(NAME, "pending", "firing", "resolved")
    assert not story.went(NAME, "resolved", "firing")
    assert story.unfinished == []


def test_what_vanishes_is_over_and_label_sets_are_apart() -> None:
    story = AlertTimeline(at(0), began_at=0)
    story.look(at(1, alert("pending", 1, topic="a"), alert("firing", 1, topic="b")))
    assert {(change.state) for change in story.look(at(2))} == {"over", "resolved"}
    assert story.unfinished == []


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.part)
def test_each_fault_lasts_long_enough_for_its_alert_and_not_until_the_supervisor_acts(fault: Any) -> None:
    (expected,) = [one for one in ALERTS if one.name == fault.alert]
    assert expected.builtin
    assert expected.for_seconds + 5 <= fault.least_seconds <= fault.seconds <= MOST_SECONDS < STALLED_SECONDS


class Scene:
    """A run whose monitor tells one snapshot after the other, by a clock that a demonstration's sleeps turn."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.clock, self.lines = data, 1000.0, list[str]()
        self.balanced, self.heals, self.fires = True, True, True
        self.state, self.watcher_began = {"ready": True}, 0.0
        write_private(data / "config.toml", to_toml(Settings()))
        RunFile(run_id="r", pid=1, started_at=0.0, ports={"page": 9470}, parts={"kafka": 5}).write(data)
        self.held: list[str] = []
        monkeypatch.setattr(run, "time", self)
        monkeypatch.setattr(run, "ask_monitor", lambda settings: self.snapshot())
        monkeypatch.setattr(run, "read_state", lambda data: self.state)
        monkeypatch.setattr(run, "started_at", lambda pid: self.watcher_began)
        monkeypatch.setattr(run, "hang_part", lambda pid, run_id: nullcontext(self.held.append(f"hang {pid} {run_id}")))
        monkeypatch.setattr(run, "crash_part", lambda pid, run_id: nullcontext(self.held.append(f"crash {pid()}")))
        monkeypatch.setattr(deploy.balance_audit, "audit", self.audit)

    def time(self) -> float:
        return self.clock

    def monotonic(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def snapshot(self) -> dict[str, Any]:
        after = self.clock - 1000.0
        if not self.fires or after < 3 or (self.heals and after > 60):
            return at(self.clock)
        return at(self.clock, alert("pending", 1003.0) if after < 13 else alert("firing", 1013.0))

    def audit(self, *given: Any, **named: Any) -> Any:
        class Found:
            balanced = self.balanced

            def to_dict(self) -> dict[str, Any]:
                return FIGURES

        return Found()

    def play(self, *, kill: bool = False) -> run.DemoReport:
        demo = run.Demo(self.data, FAULTS["kafka"], seconds=30.0, kill=kill, tell=self.lines.append)
        return demo.run()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    lock = DataLock(tmp_path)
    yield Scene(tmp_path, monkeypatch)
    lock.release()


def test_a_demonstration_tells_its_story(scene: Scene) -> None:
    report = scene.play()
    assert report.ok
    assert scene.held == ["hang 5 r"]
    told = "\n".join(scene.lines)
    order = [
        "kafka hangs for 30 s",
        "pending ",
        "firing ",
        f"9470/runbooks/{NAME}",
        "fault ended",
        "resolved",
        "are ready",
    ]
    assert sorted(order, key=told.index) == order
    assert "   3.0 s  pending" in told
    assert report.verdict() == f"{NAME} fired and resolved, the run is ready, and the audit balances."
    assert report.balance().startswith("Audit: received 7, stored 7")
    as_data = json.loads(json.dumps(report.as_dict()))
    assert (as_data["ok"], as_data["way"], as_data["audit"]) == (True, "hang", FIGURES)
    assert [change["state"] for change in as_data["changes"]] == ["pending", "firing", "resolved"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fires": False}, "did not fire"),
        ({"heals": False}, "did not resolve"),
        ({"balanced": False}, "the audit does NOT balance"),
    ],
)
def test_it_is_shown_only_if_all_of_it_happened(scene: Scene, change: dict[str, bool], words: str) -> None:
    vars(scene).update(change)
    report = scene.play(kill=True)
    assert not report.ok
    assert words in report.verdict()
    assert scene.held == ["crash 5"]


def test_it_waits_until_the_alert_may_fire(scene: Scene) -> None:
    scene.fires = False
    scene.watcher_began = 990.0
    scene.play()
    assert scene.lines[0] == f"waiting: {NAME} does not fire until the monitor has run for 60 s"
    scene.state["ready"] = False
    with pytest.raises(run.UnavailableError, match="not all parts are ready"):
        scene.play()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["moon"], "Unknown part 'moon': use one of kafka, broker"), (["kafka", "--seconds", "5"], "does not fire"),
     (["kafka", "--seconds", "500"], "the supervisor restarts the hanging part")],
)  # fmt: skip
def test_a_fault_that_cannot_be_shown_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tidegate(["demo", "fail", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_the_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert tidegate(["demo", "ls", "--json"]) == 0
    assert [row["part"] for row in json.loads(capsys.readouterr().out)] == list(FAULTS)
    assert tidegate(["demo", "ls"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 110
