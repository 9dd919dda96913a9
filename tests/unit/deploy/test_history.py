"""`tidegate correct` and `erase` up to the request: what is shown, refused and asked for; nothing here starts a JVM."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deploy import requests
from deploy.cli import run
from gateway.profiles.units import DIMENSIONS, conversion, conversions_to
from ingest.contract.errors import UnavailableError
from ingest.topics.describe import TopicState
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.requests import Request
from streaming.history.journal import CorrectionJournal, device_hash
from streaming.history.plan_erasure import erasable, selection_of
from streaming.history.receipt import remarks, topic_forgets
from streaming.history.selection import RowSelection, find_matches

DAY = datetime(2026, 5, 1, tzinfo=UTC)
SPAN = ("--from", "2026-05-01", "--to", "2026-05-02T00:00:00Z", "--reason", "the sensor lied")


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "the tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    stored = [("pump-7", "t", 98.6, "°F"), ("pump-7", "p", 988.6, "hPa"), ("pump-8", "t", 1.0, "K")]
    rows = [
        {
            "device": device, "metric": metric, "value": value, "unit": unit, "event_time": DAY + timedelta(hours=1),
            "time_source": "device", "received_at": DAY, "kafka_time": DAY, "landed_at": DAY, "index": 0, "date": DAY.date(),
        }
        for device, metric, value, unit in stored
    ]  # fmt: skip
    schema = pa.schema(DeltaTable(f"{root}/readings").schema().to_arrow())
    write_deltalake(f"{root}/readings", pa.Table.from_pylist(rows, schema=schema), mode="append")
    return root


@pytest.fixture
def command(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    config = tmp_path / "tidegate.toml"
    config.write_text(f'[lake]\nroot = "{root}"\n')

    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--config", str(config)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return invoke


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests that a command leaves; the answer is a writer that is away."""
    found: list[Request] = []

    def refuse(settings: Any, request: Request, **more: Any) -> dict[str, Any]:
        found.append(request)
        message = "The writer of the tables has not answered yet"
        raise UnavailableError(message)

    monkeypatch.setattr(requests, "run_request", refuse)
    return found


def test_a_dry_run_converts_and_changes_nothing(command: Any, root: str) -> None:
    code, out, _ = command("correct", "-d", "pump-7", "-m", "t", "--unit", "degC", *SPAN, "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["rows"], told["files"], told["dry_run"]) == (0, 1, 1, True)
    assert (told["before"], told["after"]) == ({"min": 98.6, "max": 98.6}, {"min": 37.0, "max": 37.0})
    assert told["example"]["after"]["unit"] == "°C"
    code, out, _ = command("correct", "-d", "pump-7", "--delete", *SPAN, "--dry-run")
    assert out.splitlines()[0] == "2 rows would be corrected in 1 files: t (1), p (1)"
    assert DeltaTable(f"{root}/readings").version() == 1
    code, out, _ = command("erase", "-d", "pump-7", "--reason", "asked to", "--dry-run", "--json")
    assert json.loads(out)["tables"]["readings"] == {"rows": 2, "files": 1}


def test_what_is_asked_for_names_who_why_and_what(command: Any, asked: list[Request]) -> None:
    code, _, err = command("correct", "-d", "pump-7", "--metric", "t", "--factor", "0.5", *SPAN, "--author", "ada")
    assert (code, err) == (69, "The writer of the tables has not answered yet\n")
    assert command("erase", "-d", "pump-7", "--reason", "asked to", "--yes")[0] == 69
    first, second = asked
    assert first.arguments == {
        "device": "pump-7", "metric": "t", "from": "2026-05-01T00:00:00+00:00", "to": "2026-05-02T00:00:00+00:00", "factor": 0.5,
    }  # fmt: skip
    assert (first.kind, first.author, first.reason, first.private) == ("correct", "ada", "the sensor lied", False)
    assert (second.kind, second.arguments, second.private) == ("erase", {"device": "pump-7"}, True)
    assert second.author
    assert second.kept()["arguments"] == {}, "its answer names no device"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("correct", "-d", "pump7", "--delete", *SPAN), 1, "Did you mean pump-"),
        (("correct", "-d", "pump-7", *SPAN), 1, "exactly one"),
        (("correct", "-d", "pump-7", "--relabel", "--delete", *SPAN), 2, "--relabel needs --unit"),
        (("correct", "-d", "pump-7", "--unit", "furlong", *SPAN), 1, "add --relabel"),
        (("correct", "-d", "pump-7", "--unit", "°C", *SPAN), 1, "have 'hPa', which cannot be converted to °C"),
        (("correct", "-d", "pump-7", "--delete", *SPAN[:-1], " "), 2, "--reason is empty"),
        (("erase", "-d", "pump-7", "--reason", "x"), 2, "add --yes"),
        (("erase", "-d", "pump-9", "--reason", "x", "--yes"), 1, "No table has a device pump-9"),
    ],
)
def test_refusals_come_before_any_request(
    command: Any, asked: list[Request], arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = command(*arguments)
    assert (found, out, asked) == (code, "", [])
    assert words in " ".join(err.replace("│", " ").split())


def test_conversions_are_those_of_the_profiles() -> None:
    for units in DIMENSIONS.values():
        for wanted in units:
            made = conversions_to(wanted, [*units, "foo"])
            assert made.keys() == units.keys()
            for given, (factor, divisor, shift) in made.items():
                exact = conversion(given, wanted)
                assert exact is not None
                for value in (98.6, 988.6, -3.0):
                    assert math.isclose(value * factor / divisor + shift, exact(value), rel_tol=1e-14, abs_tol=1e-10)
    assert conversions_to("Pa", ["hPa", "mbar"]) == {"hPa": (100.0, 1.0, 0.0), "mbar": (100.0, 1.0, 0.0)}
    assert conversions_to("foo", ["°C"]) == {}


def test_the_journal_outlives_a_torn_line_and_forgets_a_device(tmp_path: Path) -> None:
    journal = CorrectionJournal(str(tmp_path))
    journal.add(
        {"id": "1", "state": "done", "device": "pump-7", "rows": 3, "example": {"before": {"device": "pump-7"}}}
    )
    with journal.path.open("a") as file:
        file.write('{"id": "2", "sta')
    journal.add({"id": "3", "state": "done", "device": "pump-8"})
    assert [entry["id"] for entry in journal.entries()] == ["1", "3"]
    assert journal.forget("pump-7") == 1
    assert journal.entries()[0] == {"id": "1", "state": "done", "rows": 3, "device_sha256": device_hash("pump-7")}
    assert "pump-7" not in journal.path.read_text()


def test_kafka_forgets_a_record_when_its_segment_has_ended_and_expired() -> None:
    day = 24 * 3600 * 1000
    bounded = topic_forgets(TopicState(1, {"retention.ms": str(day), "segment.ms": str(day)}), DAY)
    assert bounded["forgotten_at"] == "2026-05-03T00:05:00+00:00"
    for config in ({}, {"cleanup.policy": "compact"}, {"retention.ms": "-1"}):
        told = topic_forgets(TopicState(1, config), DAY)
        assert told["forgotten_at"] is None
        assert told["why"]
    compacted = {"cleanup.policy": "compact", "max.compaction.lag.ms": str(day), "delete.retention.ms": str(day)}
    assert topic_forgets(TopicState(1, compacted), DAY)["forgotten_at"] == "2026-05-04T00:05:00+00:00"


def test_a_receipt_says_first_what_is_left_to_do() -> None:
    said = remarks({}, 5, {"by_city": 3}, ["per_hour"])
    words = ("holds 5 records that have not landed yet", "by_city (3 records)", "keep rows for windows or joins")
    assert all(word in line for word, line in zip(words, said, strict=False))
    assert remarks({}, None, {}, [])[0].startswith("Kafka may hold records that have not landed yet")
    assert remarks({}, 0, {}, [])[0] == "If the device sends again, its messages are stored again."


@pytest.mark.parametrize("device", ["pump-7", "Küche/Öfen (1)", "a.b", "$p^", "pump 7"])
def test_a_table_without_devices_is_searched_in_its_texts(root: str, device: str) -> None:
    texts = [None, device, f"hall/{device}", f"{device}:temp", f"{device}7", f"x{device}", "axb", "pump-8"]
    table = pa.table({"at": ["2026"] * len(texts), "label": texts, "n": range(len(texts))})
    write_deltalake(f"{root}/by_label", table)
    write_deltalake(f"{root}/numbers", pa.table({"n": [1]}))
    hot, searched, nameless = erasable(root)
    assert "readings" in hot
    assert ("by_label" in searched, "numbers" in searched) == (True, False)
    assert nameless == ["by_label", "numbers"]
    assert find_matches(root, "by_label", selection_of(root, "by_label", device)).row_count == 3
    assert selection_of(root, "readings", device) == RowSelection(device)
