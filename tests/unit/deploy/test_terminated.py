"""What a command started ends with it, also where SIGTERM or SIGHUP ends the command: `kill`, or a shell that closes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["bench", "e2e"], "deploy.bench.target.bench_target"),
        (["bench", "gateway"], "deploy.bench.gateway_cost.measure_gateway"),
        (["bench", "run", "dsbs"], "deploy.bench.suite.command.run_scenarios"),
        (["chaos", "run"], "deploy.chaos.run.run_faults"),
        (["soak"], "deploy.soak.run.run_soak"),
    ],
)
def test_a_signal_that_ends_a_command_lets_it_clean_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], starts: str, number: signal.Signals
) -> None:
    before, cleaned = signal.getsignal(number), list[str]()

    @contextmanager
    def servers(*_: Any, **__: Any) -> Iterator[None]:
        try:
            # To this very thread: a signal to the process may be heard by another one, and later.
            signal.raise_signal(number)
            pytest.fail("the signal was not heard")
            yield
        finally:
            cleaned.append(command[0])

    def enter(*arguments: Any, **options: Any) -> None:
        with servers(*arguments, **options):
            pass

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(starts, servers if starts.endswith("bench_target") else enter)

    def ignore(*_: Any) -> None:
        pass

    signal.signal(number, ignore)
    try:
        found = CliRunner().invoke(app, command)
        assert signal.getsignal(number) is ignore
    finally:
        signal.signal(number, before)
    assert cleaned == [command[0]]
    assert found.exit_code == 130, found.output
    assert list(tmp_path.iterdir()) == []
