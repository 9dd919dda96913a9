"""The running audit: never waited for, reaching back to what is proven, and said where it cannot."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.monitor import audit_probe as audits
from deploy.monitor.audit_probe import MOST_WINDOW_SECONDS, AuditProbe, AuditRun, AuditTimeoutError, audit_command
from ingest.contract.errors import UnavailableError
from monitoring.metrics.monitor import AUDIT, MonitorMetrics
from monitoring.probe import Probe, ProbeSet

Wait = Callable[..., Any]
REPORT = {"received": 50, "unaccounted": 3, "pending": 2, "duplicate_rows": 1, "order_violations": 0, "notes": ["a"]}
PROVEN = {**REPORT, "unaccounted": 0, "pending": 0, "duplicate_rows": 0}


class Scripted:
    """Starts audits that find what the test says: a report, an error, or nothing yet."""

    def __init__(self) -> None:
        self.windows: list[float] = []
        self.says: Mapping[str, Any] | Exception | None = PROVEN
        self.closed = 0
        self.seconds, self.began_at = 7.0, 0.0

    def __call__(self, window_seconds: float) -> Any:
        self.windows.append(round(window_seconds))
        self.began_at = audits.time.time()
        return self

    def poll(self) -> Mapping[str, Any] | None:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def close(self) -> None:
        self.closed += 1


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(audits, "time", found)
    return found


@pytest.fixture
def script() -> Scripted:
    return Scripted()


@pytest.fixture
def probe(clock: Clock, script: Scripted) -> AuditProbe:
    found = AuditProbe(Path("c.toml"), 600.0, start=script)
    clock.now += 60
    return found


def value(samples: Mapping[str, Any], name: str) -> float:
    ((labels, found),) = samples[f"tidegate_audit_{name}"]
    assert labels == ()
    return float(found)


def test_an_audit_tells_its_figures_and_waits_for_its_time(probe: AuditProbe, script: Scripted, clock: Clock) -> None:
    script.says = REPORT
    samples = probe.look()
    assert value(samples, "unaccounted_messages") == 1, "what has only not landed yet is no loss"
    assert value(samples, "duplicate_rows") == 1
    assert value(samples, "messages") == 50
    assert value(samples, "duration_seconds") == 7
    assert set(samples) == {family.name for family in AUDIT}
    assert probe.newest is not None
    assert (probe.newest["unaccounted"], probe.newest["notes"][0]) == (1, "a")
    clock.now += 599
    assert probe.look() is samples
    assert script.windows == [720]
    clock.now += 1
    probe.look()
    assert len(script.windows) == 2


def test_an_audit_of_nothing_is_soon_made_again_until_one_looked_at_messages(
    probe: AuditProbe, script: Scripted, clock: Clock
) -> None:
    script.says = {**PROVEN, "received": 0}
    probe.look()
    clock.now += 59
    probe.look()
    assert len(script.windows) == 1
    for count in (2, 3):
        clock.now += 61
        probe.look()
        assert len(script.windows) == count
    script.says = PROVEN
    clock.now += 61
    probe.look()
    script.says = {**PROVEN, "received": 0}
    clock.now += 300
    probe.look()
    assert len(script.windows) == 4, "from then on it is as usual"
    clock.now += 301
    probe.look()
    clock.now += 61
    probe.look()
    assert len(script.windows) == 5, "also where a quiet time follows"


def test_the_last_figures_are_told_while_the_next_audit_runs(probe: AuditProbe, script: Scripted, clock: Clock) -> None:
    samples = probe.look()
    script.says = None
    for _ in range(30):
        clock.now += 60
        assert probe.look() is samples
    assert len(script.windows) == 2, "one at a time"
    script.says = REPORT
    assert value(probe.look(), "unaccounted_messages") == 1


def test_an_audit_that_takes_long_keeps_its_figures_in_the_metrics(
    registry: CollectorRegistry, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.periodic_query.LEAST_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(audits, "FIRST_SECONDS", 0.0)
    script, looks = Scripted(), list[int]()
    audit = AuditProbe(Path("c.toml"), 0.05, start=script)

    def look() -> Any:
        found = audit.look()
        looks.append(1)
        return found

    probes = ProbeSet([Probe("audit", 0.05, look, audit.close)], MonitorMetrics(registry))
    probes.start()
    told = lambda: registry.get_sample_value("tidegate_audit_messages")  # noqa: E731
    wait_until(lambda: told() == 50)
    script.says = None
    wait_until(lambda: audit._run is not None)
    enough = len(looks) + 16
    wait_until(lambda: len(looks) > enough, what="looks for longer than the patience")
    probes.check()
    assert told() == 50
    assert probes.faults() == {"audit": ""}
    probes.close(seconds=10)
    assert script.closed == 1, "it ends with the monitor"


def test_one_that_cannot_be_made_says_why_once_and_keeps_the_last(
    probe: AuditProbe, script: Scripted, clock: Clock
) -> None:
    script.says = UnavailableError("Kafka does not answer.")
    with pytest.raises(UnavailableError, match="Kafka does not answer"):
        probe.look()
    assert (probe.newest, probe.look()) == (None, {})
    clock.now += 60  # not the ten minutes between two audits: until then nothing would be known
    script.says = PROVEN
    assert value(probe.look(), "messages") == 50


def test_after_an_outage_the_next_audit_reaches_back_to_what_is_proven(
    probe: AuditProbe, script: Scripted, clock: Clock
) -> None:
    probe.look()
    script.says = UnavailableError("Kafka does not answer.")
    for _ in range(6):
        clock.now += 600
        with pytest.raises(UnavailableError):
            probe.look()
    clock.now += 600
    script.says = PROVEN
    samples = probe.look()
    assert script.windows[-1] == 7 * 600 + 60
    assert value(samples, "skipped_seconds_total") == 0
    clock.now += 600
    probe.look()
    assert script.windows[-1] == 660


def test_what_had_not_landed_is_looked_at_again(probe: AuditProbe, script: Scripted, clock: Clock) -> None:
    """A stream that is down for an hour: what it lands afterwards, or never, came in long before the usual window."""
    probe.look()
    script.says = {**PROVEN, "unaccounted": 40, "pending": 40}
    for window in (660, 1260, 1860):
        clock.now += 600
        assert value(probe.look(), "unaccounted_messages") == 0
        assert script.windows[-1] == window
    script.says = PROVEN
    clock.now += 600
    assert value(probe.look(), "unaccounted_messages") == 0
    assert script.windows[-1] == 2460
    clock.now += 600
    probe.look()
    assert script.windows[-1] == 660


def test_a_gap_that_is_too_long_is_stated_and_counted(probe: AuditProbe, script: Scripted, clock: Clock) -> None:
    probe.look()
    clock.now += MOST_WINDOW_SECONDS + 1000
    samples = probe.look()
    assert script.windows[-1] == MOST_WINDOW_SECONDS
    assert value(samples, "skipped_seconds_total") == 1000
    assert probe.newest is not None
    assert probe.newest["notes"][-1] == (
        "Messages received in the 1000 s before were not audited: this audit reaches back 21600 s. "
        "To audit all of them, run `tidegate audit --since 22600s`."
    )
    clock.now += 600
    assert value(probe.look(), "skipped_seconds_total") == 1000
    assert probe.newest["notes"] == ["a"]


def test_one_that_was_broken_off_is_followed_by_a_usual_one(probe: AuditProbe, script: Scripted, clock: Clock) -> None:
    """Else every one after it would be longer still, and none would ever end."""
    probe.look()
    clock.now += 6000
    script.says = AuditTimeoutError("the audit took longer than 900 s and was stopped")
    with pytest.raises(UnavailableError, match="was stopped"):
        probe.look()
    script.says = PROVEN
    clock.now += 600
    samples = probe.look()
    assert script.windows[-2:] == [6060, 660]
    assert value(samples, "skipped_seconds_total") == 5940
    clock.now += 600
    probe.look()
    assert script.windows[-1] == 660


def test_a_clock_that_was_set_back_shortens_no_window_to_nothing(
    probe: AuditProbe, script: Scripted, clock: Clock
) -> None:
    probe.look()
    audits.time.monotonic = lambda: 5_000_000.0  # type: ignore[attr-defined]
    clock.now -= 3600
    probe.look()
    assert script.windows[-1] == 60


@pytest.fixture
def run() -> Iterator[Callable[..., AuditRun]]:
    made: list[AuditRun] = []

    def start(code: str, *, timeout_seconds: float = 60.0) -> AuditRun:
        made.append(AuditRun([sys.executable, "-c", code], timeout_seconds=timeout_seconds))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_run_is_looked_at_and_not_waited_for_however_much_it_says(
    run: Callable[..., AuditRun], wait_until: Wait
) -> None:
    """More than a pipe holds, on both of its outputs."""
    audit = run(
        "import json, sys; sys.stderr.write('w' * 2_000_000); "
        f"print(json.dumps({{**{REPORT!r}, 'offsets': ['x' * 100] * 20_000}}))"
    )
    found = wait_until(audit.poll)
    assert found["received"] == 50
    assert len(found["offsets"]) == 20_000


def test_a_run_that_finds_nothing_tells_its_last_words(run: Callable[..., AuditRun], wait_until: Wait) -> None:
    def fails(code: str, why: str) -> None:
        audit = run(code)
        wait_until(lambda: audit._process.poll() is not None)
        with pytest.raises(UnavailableError, match=why):
            audit.poll()

    fails("import sys; sys.exit('first\\nKafka does not answer.')", "the audit failed: Kafka does not answer.")
    fails("raise SystemExit(3)", "exit code 3")
    fails("print('[]')", "exit code 0")


def test_a_run_that_takes_too_long_is_ended(run: Callable[..., AuditRun], wait_until: Wait) -> None:
    audit = run("import time; time.sleep(600)", timeout_seconds=0.0)
    with pytest.raises(AuditTimeoutError, match="took longer than 0 s"):
        wait_until(audit.poll)
    assert audit._process.returncode is not None


def test_a_run_ends_when_the_monitor_does(run: Callable[..., AuditRun]) -> None:
    audit = run("import time; time.sleep(600)")
    assert audit.poll() is None
    audit.close()
    audit.close()
    assert audit._process.returncode is not None


def test_the_command_is_an_audit_with_low_priority() -> None:
    command = audit_command(Path("c.toml"), 660.4)
    assert " ".join(command[-9:]) == "deploy.cli audit --json --since 660s --wait 20 --config c.toml"
    if nice := audits._nice():
        assert command[: len(nice)] == nice
        done = subprocess.run([*nice, "nice"], capture_output=True, text=True, check=True)
        assert int(done.stdout) >= 10
