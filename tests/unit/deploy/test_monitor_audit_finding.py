"""What an audit found wrong is told until one that reaches back to it finds nothing, or a person accepts it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.monitor import audit_probe as audits
from deploy.monitor.audit_finding import (
    AuditFinding,
    BalanceFaults,
    FinishedAudit,
    accept_finding,
    finding_after,
    finding_file,
    state_folder,
)
from deploy.monitor.audit_probe import AuditProbe, AuditTimeoutError
from deploy.settings import load_settings
from monitoring.monitoring_settings import MonitoringSettings

WELL: Mapping[str, Any] = {
    "received": 50, "unaccounted": 0, "pending": 0, "duplicate_rows": 0, "order_violations": 0, "notes": [],
}  # fmt: skip
LOST_7 = {**WELL, "unaccounted": 7}
BEGAN = 1_000_020.0


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = BEGAN

    def time(self) -> float:
        return self.now

    monotonic = time


class Audits:
    """Plays audits over what is lost when: each finds what lies in its window, as far as Kafka still has it.

    A record comes in each second, and its offset is that second; `oldest` is the first one that is still there.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.lost, self.oldest = clock, list[float](), 0.0
        self.more: Mapping[str, Any] = {}
        self.windows: list[float] = []
        self.seconds, self.began_at = 7.0, 0.0
        self.fails: Exception | None = None
        self.closed = 0

    def __call__(self, window_seconds: float) -> Any:
        self.windows.append(window_seconds)
        self.began_at = self.clock.now
        return self

    def poll(self) -> Mapping[str, Any] | None:
        if self.fails:
            raise self.fails
        since = self.began_at - self.windows[-1]
        found = sum(max(since, self.oldest) <= at <= self.began_at for at in self.lost)
        return {
            **WELL,
            "unaccounted": found,
            "since": datetime.fromtimestamp(since, UTC).isoformat(),
            "offsets": {"t": {"0": [max(since, self.oldest), self.began_at]}},
            "oldest": {"t": {"0": self.oldest}},
            **self.more,
        }

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(audits, "time", found)
    return found


class Running:
    """A monitor's audits, ten minutes apart, in a folder."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        self.clock, self.folder, self.audits = clock, folder, Audits(clock)
        self.start()

    def start(self) -> None:
        keep = finding_file(self.folder)
        self.probe = AuditProbe(self.folder / "c.toml", 600.0, keep=keep, start=self.audits)

    def after(self, seconds: float = 600.0) -> float:
        """What the alert sees then."""
        self.clock.now += seconds
        return self.seen()

    def seen(self, name: str = "unaccounted_messages") -> float:
        ((_, found),) = self.probe.look()[f"tidegate_audit_{name}"]
        return float(found)

    @property
    def notes(self) -> str:
        assert self.probe.newest is not None
        return " ".join(self.probe.newest["notes"])


@pytest.fixture
def running(clock: Clock, tmp_path: Path) -> Running:
    return Running(clock, tmp_path)


def test_a_loss_is_told_as_long_as_it_is_one(running: Running) -> None:
    assert running.after(60) == 0
    running.audits.lost = [running.clock.now + 300] * 7
    assert running.after() == 7
    for _ in range(100):
        assert running.after() == 7
    assert running.audits.windows[-1] > 16 * 3600, "also past what an audit reaches back else"
    assert running.notes.startswith("Faults are in messages received from 1970-01-12 13:47 UTC to 1970-01-13 06:38")
    running.audits.lost = []
    assert running.after() == 0, "its files were put back"
    assert running.notes == ""
    running.after()
    assert running.audits.windows[-1] == 660
    assert list(running.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["duplicate_rows", "order_violations"])
def test_so_are_rows_that_are_stored_twice_and_readings_out_of_order(running: Running, name: str) -> None:
    running.audits.more = {name: 3}
    running.after(60)
    assert running.seen(name) == 3
    running.audits.more = {name: 0}
    running.audits.oldest = running.clock.now
    for _ in range(10):
        running.after()
        assert running.seen(name) == 3
        assert running.seen() == 0


def test_a_loss_whose_proof_retention_took_does_not_become_well(running: Running) -> None:
    """Audits find nothing then, for they begin where Kafka does."""
    running.audits.lost = [running.clock.now] * 7
    assert running.after(60) == 7
    running.after()
    assert "stays until an audit of this time finds nothing" in running.notes
    running.audits.oldest = running.clock.now
    for _ in range(20):
        assert running.after() == 7
    assert "no audit can clear the finding: accept it with `tidegate audit --accept`" in running.notes
    assert running.audits.windows[-1] == 660, "and none is made in vain"


def test_a_monitor_that_starts_anew_knows_it(running: Running) -> None:
    running.audits.lost = [running.clock.now] * 7
    assert running.after(60) == 7
    running.after(5000)
    running.clock.now += 3600
    running.start()
    assert running.seen() == 7, "before its first audit too"
    assert set(running.probe.look()) == {
        f"tidegate_audit_{name}" for name in ("unaccounted_messages", "duplicate_rows", "order_violations")
    }, "but nobody says that one was made"
    assert running.after(60) == 7
    assert running.audits.windows[-1] > 8600, "that one reaches back to it"
    running.audits.lost = []
    running.start()
    assert running.after(60) == 0


def test_what_a_person_accepted_is_told_no_more(running: Running) -> None:
    running.audits.lost = [running.clock.now] * 7
    assert running.after(60) == 7
    running.after()
    assert run(["audit", "--accept", "--author", "ann", "--data", str(running.folder)]) == 0
    running.audits.closed = 0
    running.probe.look()
    running.probe.look()
    assert running.after(60) == 0, "soon, and not after ten minutes"
    for _ in range(3):
        assert running.after() == 0, "it is not found again"
    running.start()
    assert running.after(60) == 0
    (report,) = running.folder.iterdir()
    told = json.loads(report.read_text())
    assert (told["author"], told["faults"]) == ("ann", [7, 0, 0])
    running.audits.lost.append(running.clock.now + 300)
    assert running.after() == 1, "what is lost after that is another one"


def test_one_under_way_does_not_find_again_what_was_accepted_meanwhile(running: Running) -> None:
    running.audits.lost = [running.clock.now - 400] * 7
    assert running.after(60) == 7
    slow = running.audits
    poll, slow.poll = slow.poll, lambda: None  # type: ignore[method-assign]
    running.after()
    running.after()
    accept_finding(running.folder, "")
    running.probe.look()
    slow.poll = poll  # type: ignore[method-assign]
    assert slow.closed == 1
    assert running.after(5) == 0


def test_a_finding_in_a_folder_of_its_own_is_accepted_by_the_settings(running: Running, tmp_path: Path) -> None:
    """Under systemd and in a container the folder of the settings cannot be written."""
    config = tmp_path / "etc" / "c.toml"
    config.parent.mkdir()
    config.write_text(f'[monitoring]\nstate_dir = "{running.folder}"\n', encoding="utf-8")
    running.audits.lost = [running.clock.now] * 7
    assert running.after(60) == 7
    assert finding_file(state_folder(load_settings(config, environ={}).monitoring, config)).is_file()
    assert run(["audit", "--accept", "--config", str(config)]) == 0
    assert list(config.parent.iterdir()) == [config]
    assert not finding_file(running.folder).exists()
    assert state_folder(MonitoringSettings(), config) == config.parent


def test_nothing_to_accept_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").touch()
    assert run(["audit", "--accept", "--config", str(tmp_path / "c.toml")]) != 0
    assert f"the monitor's audit has left no finding in {tmp_path}" in capsys.readouterr().err.replace("\n", " ")


def test_looks_back_never_take_more_than_their_share_and_new_time_is_looked_at_between_them(running: Running) -> None:
    running.audits.lost = [running.clock.now] * 7
    running.audits.seconds = 120.0
    assert running.after(60) == 7
    for _ in range(5):
        assert running.after() == 7
    assert [round(window) > 660 for window in running.audits.windows] == [True, True, False, False, False, True]
    running.after()
    running.audits.lost.append(running.clock.now + 300)
    assert running.after() == 8, "one of those between found it"
    assert running.audits.windows[-1] == 660


def test_a_look_back_that_is_broken_off_costs_the_usual_ones_nothing(running: Running) -> None:
    running.audits.lost = [running.clock.now] * 7
    assert running.after(60) == 7
    running.audits.fails, running.audits.seconds = AuditTimeoutError("the audit took longer than 900 s"), 900.0
    running.clock.now += 600
    with pytest.raises(AuditTimeoutError):
        running.probe.look()
    running.audits.fails, running.audits.seconds = None, 7.0
    assert running.after(1500) == 7
    assert running.audits.windows[-1] == 2160, "back to what is proven, not the shortest possible"
    assert running.seen("skipped_seconds_total") == 0


def test_a_folder_that_cannot_be_written_is_said_and_ends_nothing(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    running = Running(clock, tmp_path / "file")
    running.audits.lost = [clock.now] * 7
    assert running.after(60) == 7
    assert "a restart of the monitor loses the finding" in running.notes
    assert running.after() == 7
    running.audits.lost = []
    assert running.after() == 0


def test_a_file_that_is_damaged_is_said_and_nothing_more(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    finding_file(running.folder).write_text("{")
    running.start()
    assert "cannot be read" in caplog.text
    assert running.after(60) == 0


READ = {"a/0": (10, 20), "b/0": (5, 5)}
HELD = AuditFinding(1000.0, 2000.0, BalanceFaults(7), READ)
BACK = {"a/0": (8, 30), "b/0": (5, 5)}
NEWER = {"a/0": (20, 30)}


def audited(
    since: float, *faults: int, pending: int = 0, read: Mapping[str, tuple[int, int]] = BACK, oldest: int = 10
) -> FinishedAudit:
    return FinishedAudit(since, 3000.0, pending, BalanceFaults(*faults), read, {"a/0": oldest, "b/0": 99})


@pytest.mark.parametrize(
    ("audit", "after"),
    [
        (audited(1000), None),
        (audited(1000, pending=2), HELD),
        (audited(1000, 3), AuditFinding(1000.0, 3000.0, BalanceFaults(3), BACK)),
        (audited(1060, read=NEWER), HELD),
        (audited(1060, 5, 1, read=NEWER), AuditFinding(1000.0, 3000.0, BalanceFaults(7, 1), READ)),
        (audited(2000, 5, 1, read=NEWER), AuditFinding(1000.0, 3000.0, BalanceFaults(12, 1), READ)),
        (audited(900, oldest=11), replace(HELD, provable=False)),
        (audited(2000, 1, read=NEWER, oldest=11), AuditFinding(1000.0, 3000.0, BalanceFaults(8), READ, provable=False)),
        (audited(900, read={"a/0": (0, 4)}, oldest=0), replace(HELD, provable=False)),
        (audited(900, read={}, oldest=0), replace(HELD, provable=False)),
    ],
    ids=[
        "well", "some not landed", "some put back", "too short", "overlaps", "new time", "proof is gone", "gone and more",
        "a topic made anew", "a topic that is gone",
    ],
)  # fmt: skip
def test_what_is_held_after_one_more_audit(audit: FinishedAudit, after: AuditFinding | None) -> None:
    assert finding_after(HELD, audit) == after


def test_what_was_never_proven_again_stays_so() -> None:
    lost = replace(HELD, provable=False)
    assert finding_after(lost, audited(1000)) == lost
