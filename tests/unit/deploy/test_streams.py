"""`tidegate streams`: what it says without Spark, and what it asks of the writer."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from streaming.sql.applied_streams import AppliedStream
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.golden import read_golden
from streaming.sql.stream_status import StreamStatus, write_status

TEXT = "-- sink: table\nSELECT device FROM readings\n"
SHAPE = CheckpointShape(
    "SELECT device FROM readings",
    ("readings",),
    (),
    (),
    (("device", "string"),),
    ("table",),
    None,
    None,
    "drop",
    1.0,
    2,
)


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    (tmp_path / "streams").mkdir()
    file = tmp_path / "config.toml"
    stream = f'[stream]\nstreams_dir = "{tmp_path}/streams"\n'
    file.write_text(f'[lake]\nroot = "{tmp_path}/tables"\n{stream}[gateway]\nmax_future_seconds = 3600\n')
    return ["--config", str(file)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Requests that the command sends; each is answered by `answers`."""
    seen: list[Any] = []

    def answer(settings: Any, request: Any, **_: Any) -> dict[str, Any]:
        seen.append(request)
        common = {"name": request.arguments["name"], "changed": True, "sinks": ["table x"], "incarnation": "i"}
        plan = {"checkpoint": "rewind", "columns": [], "sources": [], "tables": [], "state": ["s"], "partitions": 1}
        changes = {"changes": [{"what": "state", "verdict": "rewind", "why": "because"}]}
        diff = {"same": 1, "only_live": 0, "only_shadow": 1, "only_live_examples": [], "only_shadow_examples": ["{}"]}
        told = {
            "from_kafka": {"t": {0: [3, 9]}},
            "from_delta": {"t": {0: "offsets before 3"}},
            "diff": diff,
            "shadow": "x__shadow",
        }
        return {**common, **plan, **changes, **told, "swapped": True, "dropped": True, "gone": ["table x"]}

    monkeypatch.setattr("deploy.requests.run_request", answer)
    return seen


def test_ls_tells_applied_streams_files_that_differ_and_examples(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "tables")
    AppliedStream("x", TEXT, "i1", "{}", SHAPE, {}).save(root)
    write_status(root, [StreamStatus("x", "running", behind=7, late=2, errors=1, rows=5)])
    (tmp_path / "streams" / "x.sql").write_text(TEXT + "WHERE value > 1")
    (tmp_path / "streams" / "y.sql").write_text(TEXT)
    assert run(["streams", "ls", "--json", *config]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: each["state"] for name, each in found.items()} == {
        "events_in_city": "example", "events_in_country": "example", "x": "stopped", "y": "not applied",
    }  # fmt: skip
    assert (found["x"]["behind"], found["x"]["late"], found["x"]["group"]) == (7, 2, "tidegate-stream-x")
    assert "streams plan x" in found["x"]["detail"]
    assert run(["streams", "ls", *config]) == 0
    told = capsys.readouterr()
    assert "No stream process writes now" in told.err
    assert told.out.splitlines()[0].split()[:2] == ["name", "state"]


def test_requests_carry_the_files_text_and_a_plan_that_needs_more_is_exit_1(
    config: list[str], tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "streams" / "x.sql").write_text(TEXT)
    assert run(["streams", "plan", "x", *config]) == 1
    assert "its checkpoint does not survive" in capsys.readouterr().out
    assert run(["streams", "apply", "x", "--reason", "wanted", *config]) == 0
    assert run(["streams", "rewind", "x", "--since", "2 days ago", "--into", "shadow", *config]) == 0
    told = capsys.readouterr()
    assert "from Delta  readings, t partition 0: offsets before 3" in told.out
    assert "same 1, only live 0, only shadow 1\n+ {}" in told.out
    assert run(["streams", "rewind", "x", "--swap", *config]) == 0
    assert run(["streams", "drop", "x", "--keep-table", *config]) == 0
    kinds = [request.kind.removeprefix("streams.") for request in asked]
    assert kinds == ["plan", "apply", "rewind", "swap", "drop"]
    assert asked[0].arguments["text"] == TEXT
    assert asked[1].reason == "wanted"
    assert asked[2].arguments["ahead_seconds"] == 3600
    assert asked[4].arguments["keep_table"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["plan"], 2, "Name one stream, or use --all"),
        (["rewind", "x"], 2, "Use --since TIME --into shadow, or --swap"),
        (["rewind", "x", "--swap", "--since", "1h-ago"], 2, "Use --swap alone"),
        (["rewind", "x", "--since", "someday", "--into", "shadow"], 2, "Invalid time 'someday'"),
        (["rewind", "x", "--since", "1 month ago", "--into", "shadow"], 2, "Invalid duration '1 month'"),
        (["apply", "nothing"], 69, "The streams here are: events_in_city, events_in_country, x."),
        (["test", "x"], 69, "no x.test.jsonl"),
    ],
)
def test_what_is_asked_wrongly(
    arguments: list[str], code: int, says: str, config: list[str], tmp_path: Path, asked: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "streams" / "x.sql").write_text(TEXT)
    assert run(["streams", *arguments, *config]) == code
    assert says in capsys.readouterr().err.replace("\n", " ")
    assert not asked


def test_the_landings_own_plan(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["streams", "plan", "land", *config]) == 0
    assert "stream.checkpoint" in capsys.readouterr().out


def test_a_plan_of_all_is_a_list_also_of_one_stream(
    config: list[str], tmp_path: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "streams" / "x.sql").write_text(TEXT)
    assert run(["streams", "plan", "--all", "--json", *config]) == 1
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["x"]
    assert run(["streams", "plan", "x", "--json", *config]) == 1
    assert json.loads(capsys.readouterr().out)["name"] == "x"


def test_without_golden_data_no_spark_is_started(
    config: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_spark(*_: Any, **__: Any) -> None:
        pytest.fail("Spark is started")

    monkeypatch.setattr("lakehouse.session.open_session", no_spark)
    (tmp_path / "streams" / "x.sql").write_text(TEXT)
    assert run(["streams", "test", "--json", *config]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert "No stream has golden data" in told.err


def test_the_lines_of_golden_data_in_the_help_are_such_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["streams", "test", "--help"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("{")]
    golden = read_golden(lines, "help")
    assert (len(golden.given["readings"]), len(golden.expected)) == (1, 1)
