"""The command line: exit codes, one sentence per fault, data to stdout and words to stderr."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy import cli
from deploy.cli import run
from deploy.commands.options import parse_span, parse_time
from ingest.contract.errors import RetryableError

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_DATA", raising=False)


def test_help_names_every_command_and_the_exit_codes(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in (
        "up",
        "down",
        "status",
        "logs",
        "doctor",
        "config",
        "gateway",
        "stream",
        "decode",
        "audit",
        "dlq",
        "device",
        "bench",
    ):
        assert f"\n  {command} " in text
    assert "78 configuration" in text
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status"], 69, "Nothing runs on"),
        (["down"], 69, "Nothing runs on"),
        (["audit"], 69, "Nothing runs on"),
        (["device", "simulate"], 69, "Nothing runs on"),
        (["logs"], 69, "journalctl -u UNIT"),
        (["stat"], 2, "No such command"),
        (["up", "--port-offset", "-1"], 2, "port-offset"),
        (["audit", "--since", "yesterday"], 2, "10m"),
        (["config", "show", "--config", "none.toml"], 78, "no such file"),
        (["gateway", "--config", "none.toml"], 78, "no such file"),
        (["decode", "none.jsonl"], 69, "none.jsonl cannot be read"),
    ],
)
def test_a_fault_is_one_sentence_on_stderr_and_an_exit_code(
    arguments: list[str], code: int, words: str, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "tidegate-data").mkdir()
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_data_that_is_a_file_is_refused(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run(["status", "--data", "file"]) == 78
    assert "is a file, not a folder" in capsys.readouterr().err


def test_an_unforeseen_fault_is_one_sentence_and_a_file(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**options: object) -> None:
        msg = "line one\nline two"
        raise ValueError(msg)

    monkeypatch.setattr(cli, "app", broken)
    assert run([]) == 1
    text = capsys.readouterr().err
    assert text.startswith("Unexpected error: ValueError: line one line two. The traceback is in ")
    file = Path(text.split(" is in ")[1].split(";")[0])
    assert "ValueError" in file.read_text()
    file.unlink()


def test_what_may_pass_is_unavailable_to_a_command_that_ends(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**options: object) -> None:
        msg = "Kafka does not answer"
        raise RetryableError(msg)

    monkeypatch.setattr(cli, "app", away)
    assert run([]) == 69
    assert capsys.readouterr().err == "Kafka does not answer\n"


def test_config_show_masks_and_schema_describes(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_MQTT__PASSWORD", "hunter2")
    assert run(["config", "show"]) == 0
    assert run(["config", "show", "--json"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert text.count("**********") == 2
    assert run(["config", "schema"]) == 0
    assert "mqtt" in json.loads(capsys.readouterr().out)["properties"]


def test_config_validate_also_compiles_the_routes(capsys: Captured, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[[routes]]\nfilter = "site/#"\n')
    bad.write_text('[[routes]]\nfilter = "site/#/more"\n')
    assert run(["config", "validate", "--config", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True
    assert run(["config", "validate", "--config", str(bad)]) == 78
    assert "site/#/more" in capsys.readouterr().err


def test_decode_needs_no_server(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    lines = [
        {"id": "a", "topic": "tidegate/v1/d1/readings", "payload": '{"values":{"t":21.5}}'},
        {"id": "b", "topic": "elsewhere", "payload": "1"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert run(["decode", str(file)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["id"], line["outcome"], line["reason"]) for line in found] == [
        ("a", "reading", None),
        ("b", "dead_letter", "no_route"),
    ]
    assert found[0]["readings"][0]["metric"] == "t"


def test_times_and_spans_of_flags() -> None:
    assert parse_span("90s") == timedelta(minutes=1.5)
    assert parse_time("2026-01-02 03:04:05") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert parse_time("2026-01-02T04:04:05+01:00") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert abs(datetime.now(UTC) - timedelta(minutes=10) - parse_time("10m-ago")) < timedelta(seconds=5)


def test_sql_on_a_stopped_run_needs_its_folder_and_one_way_of_time_travel(capsys: Captured) -> None:
    assert run(["sql", "select 1"]) == 69
    assert "No embedded run has written to" in capsys.readouterr().err
    assert run(["sql", "select 1", "--at", "10m-ago", "--version", "3"]) == 2
    assert run(["sql", "select 1", "--at", "noon"]) == 2


def test_doctor_finds_and_reports_unreachable_servers(capsys: Captured, tmp_path: Path) -> None:
    config = tmp_path / "prod.toml"
    config.write_text('[mqtt]\nhost = "127.0.0.1"\nport = 1\n[kafka]\nbootstrap_servers = "127.0.0.1:1,127.0.0.1:2"\n')
    assert run(["doctor", "--config", str(config), "--json", "--timeout", "1"]) == 1
    found = json.loads(capsys.readouterr().out)
    failed = [check for check in found["checks"] if check["name"] in ("mqtt", "kafka")]
    assert [check["state"] for check in failed] == ["fail"] * 3
    assert all(check["fix"] for check in failed)
    memory = next(check for check in found["checks"] if check["name"] == "memory")
    assert "needs up to" in memory["text"]
