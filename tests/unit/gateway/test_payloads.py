"""The example payloads, line by line, under tests/payloads.toml and the shipped presets."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from deploy.settings import load_settings
from gateway.devtools.decode_file import BadLine, decode_lines
from gateway.gateway_settings import GatewaySettings

TESTS = Path(__file__).parents[2]
PAYLOADS = TESTS / "data" / "payloads.jsonl"
RECEIVED = datetime(2026, 11, 28, 12, tzinfo=UTC)
# Lines without a reading: what becomes of them instead.
NO_READING = {
    "tasmota-lwt": ("ignored", "status"),
    "tasmota-corrupt-bytes": ("dead_letter", "bad_encoding"),
    "z2m-availability-plain": ("ignored", "status"),
    "z2m-bridge-devices": ("ignored", "metadata"),
    "shelly1-online": ("ignored", "status"),
    "shelly2-notifyevent-button": ("ignored", "status"),
    "esphome-sensor-nan": ("ignored", "no_value"),
    "esphome-status": ("ignored", "status"),
    "esphome-debug-log": ("ignored", "status"),
    "ha-statestream-unit-attribute": ("ignored", "metadata"),
    "ha-statestream-unavailable": ("ignored", "no_value"),
    "chirpstack4-up-no-object": ("dead_letter", "undecoded"),
    "chirpstack4-join": ("ignored", "status"),
    "tts3-join-accept": ("ignored", "status"),
    "sparkplug-state": ("ignored", "status"),
    "sparkplug-ddata-unknown-alias": ("dead_letter", "alias_unknown"),
    "sparkplug-ndeath": ("ignored", "status"),
    "owntracks-lwt": ("ignored", "status"),
    "victron-null": ("ignored", "no_value"),
    "victron-empty-payload": ("ignored", "empty_payload"),
    "homie5-description": ("ignored", "metadata"),
    "homie5-state-lost": ("ignored", "status"),
    "omg-433-code": ("ignored", "status"),
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
# Where our documented naming differs from the line's.
OUR_METRIC = {("senml-json-single", ""): "value"}
# "me" stands for the MQTT login; the settings say who that is.
NOBODY = {"thingsboard-simple", "thingsboard-ts-values"}
LINES = [json.loads(line) for line in PAYLOADS.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """All lines in file order through one gateway: some formats remember."""
    settings = load_settings(TESTS / "payloads.toml", environ={})
    received_us = round(RECEIVED.timestamp()) * 1_000_000
    decoded = decode_lines(map(json.dumps, LINES), settings.routes, settings.gateway, received_us=received_us)
    return {outcome["id"]: outcome for outcome in decoded}


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text.startswith("receive-"):
        return RECEIVED - timedelta(seconds=int(text.removeprefix("receive-").removesuffix("s")))
    at = datetime.fromisoformat(text)
    # To UTC first: times in a repeated hour never compare equal across zones.
    return (at if at.tzinfo else at.replace(tzinfo=ZoneInfo("Europe/Berlin"))).astimezone(UTC)


def same_value(reading: dict[str, Any], value: Any) -> bool:
    found = (reading["value"], reading["text"])
    if isinstance(value, bool):
        return found == (float(value), str(value).lower())
    if isinstance(value, int) and abs(value) > 2**53:
        return found == (float(value), str(value))
    return found == ((None, value) if isinstance(value, str) else (value, None))


def same(line: dict[str, Any], reading: dict[str, Any], wanted: dict[str, Any]) -> bool:
    device = reading["device"] != "me" if line["id"] in NOBODY else reading["device"] == wanted["device"]
    metric = OUR_METRIC.get((line["id"], wanted["metric"]), wanted["metric"])
    named = (reading["metric"], reading["unit"]) == (metric, wanted["unit"])
    return (
        device
        and named
        and same_value(reading, wanted["value"])
        and instant(reading["time"]) == instant(wanted["time"])
    )


def faults(line: dict[str, Any], outcome: dict[str, Any]) -> list[Any]:
    """What of the line's expectation does not hold."""
    if not line["expect"]:
        found = (outcome["outcome"], outcome["reason"])
        return [] if found == NO_READING[line["id"]] and not outcome["readings"] else [found]
    return [w for w in line["expect"] if not any(same(line, reading, w) for reading in outcome["readings"])]


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["id"]))
def test_a_line_gives_its_readings_or_its_non_reading(
    line: dict[str, Any], outcomes: dict[str, dict[str, Any]]
) -> None:
    found = faults(line, outcomes[line["id"]])
    assert not found, (found, outcomes[line["id"]])


def test_each_reading_of_a_message_has_a_place_of_its_own(outcomes: dict[str, dict[str, Any]]) -> None:
    """Two readings of one message may be equal in device, metric and time only where an index tells them apart."""
    for outcome in outcomes.values():
        keys = [(r["device"], r["metric"], r["time"]) for r in outcome["readings"]]
        assert len(keys) == len(set(keys)), outcome["id"]


def test_a_refused_part_is_told_beside_the_readings(outcomes: dict[str, dict[str, Any]]) -> None:
    [refused] = outcomes["json-nan"]["rejected"]
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
        list(decode_lines(["", line], (), GatewaySettings()))
