"""The shared example payloads, line by line, under the routes of tests/payloads.toml."""

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.decode_file import BadLine, decode_lines
from gateway.settings import GatewaySettings, RouteSettings

TESTS = Path(__file__).parents[1]
PAYLOADS = TESTS.parent.parent / "shared" / "data" / "payloads.jsonl"
DECODED_NOW = {"plain", "json-edge"}
NO_READING = {
    "plain-question-marks": ("dead_letter", "no_route"),
    "plain-infinity": ("dead_letter", "bad_number"),
    "plain-empty": ("ignored", "empty_payload"),
    "plain-huge-exponent": ("dead_letter", "bad_number"),
    "json-latin1-name": ("dead_letter", "bad_encoding"),
    "gzip-binary": ("dead_letter", "no_route"),
    "json-future-time": ("dead_letter", "ts_too_far_future"),
    "json-deep-nesting": ("dead_letter", "too_deep"),
    "json-empty-object": ("ignored", "no_value"),
}
LINES = [json.loads(line) for line in PAYLOADS.read_text("utf-8").splitlines()] if PAYLOADS.exists() else []

pytestmark = pytest.mark.skipif(not LINES, reason=f"the example payloads are not at {PAYLOADS}")


def routes() -> tuple[RouteSettings, ...]:
    settings = tomllib.loads((TESTS / "payloads.toml").read_text("utf-8"))
    return tuple(RouteSettings.model_validate(route) for route in settings["routes"])


def decode(line: dict[str, Any]) -> dict[str, Any]:
    [outcome] = decode_lines([json.dumps(line)], routes(), GatewaySettings())
    assert outcome["id"] == line["id"]
    return outcome


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    # To UTC first: times in a repeated hour never compare equal across zones.
    return (at if at.tzinfo else at.replace(tzinfo=ZoneInfo("Europe/Berlin"))).astimezone(UTC)


def same(reading: dict[str, Any], wanted: dict[str, Any]) -> bool:
    value = wanted["value"]
    if isinstance(value, bool):
        holds = (reading["value"], reading["text"]) == (float(value), str(value).lower())
    elif isinstance(value, int) and abs(value) > 2**53:
        holds = (reading["value"], reading["text"]) == (float(value), str(value))
    elif isinstance(value, str):
        holds = reading["text"] == value
    else:
        holds = (reading["value"], reading["text"]) == (value, None)
    named = (reading["device"], reading["metric"], reading["unit"]) == (
        wanted["device"],
        wanted["metric"],
        wanted["unit"],
    )
    return holds and named and instant(reading["time"]) == instant(wanted["time"])


@pytest.mark.parametrize(
    "line", [line for line in LINES if line["format"] in DECODED_NOW], ids=lambda line: str(line["id"])
)
def test_plain_and_generic_json_lines_give_their_readings(line: dict[str, Any]) -> None:
    outcome = decode(line)
    if not line["expect"]:
        assert (outcome["outcome"], outcome["reason"]) == NO_READING[line["id"]]
        assert outcome["readings"] == []
        return
    assert outcome["outcome"] == "reading"
    for wanted in line["expect"]:
        assert any(same(reading, wanted) for reading in outcome["readings"]), (wanted, outcome)


@pytest.mark.parametrize(
    "line", [line for line in LINES if line["format"] not in DECODED_NOW], ids=lambda line: str(line["id"])
)
def test_formats_without_a_decoder_are_dead_letters_and_never_rows(line: dict[str, Any]) -> None:
    outcome = decode(line)
    assert (outcome["outcome"], outcome["reason"], outcome["readings"]) == ("dead_letter", "no_route", [])


def test_a_refused_part_is_told_beside_the_readings() -> None:
    [line] = [line for line in LINES if line["id"] == "json-nan"]
    [refused] = decode(line)["rejected"]
    assert (refused["path"], refused["reason"]) == ("$.sun_azimuth", "bad_number")


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"topic":"a"}',
        '{"topic":"a","payload":5}',
        '{"payload_base64":"*"}',
        '{"topic":5,"payload_base64":"YQ=="}',
        '{"topic":null,"payload":"a"}',
        '{"topic":"a\\ud800","payload":"a"}',
        '{"topic":"a\\ud800","payload_base64":"YQ=="}',
        '{"topic":"a","payload":"\\ud800"}',
        "[" * 100_000,
    ],
    ids=lambda line: line[:40],
)
def test_a_line_that_is_no_message_is_named(line: str) -> None:
    with pytest.raises(BadLine, match="line 2"):
        list(decode_lines(["", line], routes(), GatewaySettings()))
