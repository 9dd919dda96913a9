"""Routes that change under a running gateway: taken between two messages, refused when bad, nothing lost or held up."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.settings_reload import SettingsFile
from gateway.message_processor import MessageProcessor
from gateway.profiles.policy import make_policy
from gateway.redrive import DeadLetter, judge_dead_letters
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, READINGS
from tests.support.gateway import GatewayRig

PUBACK = 4
TOPIC, PAYLOAD = b"kiln/k4/state", b'{"at": 1795890000000, "temp_c": 812.5, "fw": "1.2.0"}'
ROUTE = """
[[routes]]
filter = "kiln/{device}/state"
device = "{device}"
[routes.mapping]
time = ["at"]
keep = ["temp_c"]
"""
HEAD = '[gateway]\nprofiles = "profiles"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gateway.service.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("gateway.service.TICK_SECONDS", 0.02)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "my.toml").write_text(HEAD, "utf-8")
    return tmp_path / "my.toml"


@pytest.fixture
def rig(scripted_broker: Any, registry: CollectorRegistry, file: Path) -> Iterator[GatewayRig]:
    source = SettingsFile(file)
    made = GatewayRig(
        scripted_broker, registry, read_routes=source.new_routes, policy=make_policy(source.settings.gateway)
    )
    yield made
    made.service._session.drop("end of test")


def replace(file: Path, text: str) -> None:
    part = file.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(file)


def letters(rig: GatewayRig) -> list[DeadLetter]:
    """As Spark lands them and `dlq` finds them."""
    records = [decode_dead_letter(record.value) for record in rig.log.records(DEAD_LETTERS) if record.value]
    return [
        DeadLetter(
            f"0-{n}", DEAD_LETTERS, 0, n, "gateway", one.reason.value, one.path, one.partial, one.gateway, one.epoch,
            one.number, one.received_us, one.topic, PAYLOAD, one.payload_bytes, one.device, one.message_id, one.retain, one.trace,
        )
        for n, one in enumerate(records)
    ]  # fmt: skip


def test_an_unknown_format_is_read_and_redriven_without_a_restart(
    scripted_broker: Any, rig: GatewayRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    link = scripted_broker.accept()
    link.handshake()
    link.publish(TOPIC, PAYLOAD, 1)
    assert link.packet(PUBACK).mid == 1
    rig.log.hold()
    link.publish(TOPIC, PAYLOAD, 2)
    rig.until(lambda: rig.service._chain.in_flight == 1, "the message is received")
    replace(file, HEAD + ROUTE)
    rig.until(lambda: ": 1 now apply, before" in caplog.text, "the new routes apply")
    link.publish(TOPIC, PAYLOAD, 3)
    rig.until(lambda: rig.service._chain.in_flight == 2, "the next message is received")
    rig.log.release()
    assert [link.packet(PUBACK).mid for _ in range(2)] == [2, 3], "in receive order, each once"
    assert rig.reasons() == ["no_route", "no_route"], "what was received before keeps what was made of it"
    [record] = [decode_record(record.value) for record in rig.log.records(READINGS) if record.value]
    assert (record.device, record.number, record.readings[0].value) == ("k4", 3, 812.5)
    settings = SettingsFile(file).settings
    gate = MessageProcessor(compile_routes(settings.routes, settings.gateway), settings.gateway)
    redriven = [judge_dead_letters([letter], gate) for letter in letters(rig)]
    assert [(one.ending, one.readings) for one in redriven] == [("accepted", 1), ("accepted", 1)]
    rig.service._own._save_at = 0.0
    key = b"tidegate/gw-1/left_out"
    rig.until(lambda: any(one.key == key for one in rig.log.records(GATEWAY_STATE)), "what is left out is told")
    [told] = [one.value or b"" for one in rig.log.records(GATEWAY_STATE) if one.key == key]
    assert json.loads(told)["routes"] == {"[[routes]] number 1 (kiln/{device}/state)": {"fw": 1}}


BAD: dict[str, tuple[str, str]] = {
    "no TOML": (HEAD + "[[routes", "not valid TOML"),
    "unknown key": (HEAD + ROUTE + 'kepp = ["x"]\n', "kepp"),
    "unknown mapping": (HEAD + '[[routes]]\nfilter = "kiln/#"\nmapping = "owntrack"\n', "did you mean 'owntracks'"),
    "unknown decoder": (HEAD + '[[routes]]\nfilter = "kiln/#"\ndecoder = "kiln"\n', "decoder 'kiln' is unknown"),
    "bad filter": (HEAD + '[[routes]]\nfilter = "kiln/#/x"\n', "invalid topic filter"),
    "unknown profile": (HEAD + '[[routes]]\nfilter = "kiln/#"\nprofile = "kiln"\n', "profile 'kiln'"),
    "unknown vendor": (HEAD + ROUTE + '[vendors.a]\nextends = "b"\n', "no vendor has that name"),
}


def test_a_bad_file_is_refused_by_name_and_the_old_routes_stay(
    scripted_broker: Any, rig: GatewayRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    link = scripted_broker.accept()
    link.handshake()
    replace(file, HEAD + ROUTE)
    rig.until(lambda: ": 1 now apply, before" in caplog.text, "the first routes apply")
    for mid, (name, (text, fault)) in enumerate(BAD.items(), start=1):
        caplog.clear()
        replace(file, text)
        rig.until(lambda: "The previous routes stay in use" in caplog.text, f"{name} is refused")
        assert fault in caplog.text
        link.publish(TOPIC, PAYLOAD, mid)
        assert link.packet(PUBACK).mid == mid
        assert len(rig.log.records(READINGS)) == mid, "the old routes read it"
    caplog.clear()
    file.unlink()
    replace(file, HEAD.replace("profiles =", 'zone = "Europe/Berlin"\nprofiles =') + ROUTE)
    rig.until(lambda: "[gateway] changed in" in caplog.text, "what needs a start is told")
    assert "The previous routes stay in use" not in caplog.text


def test_a_route_goes_and_the_short_way_follows(
    scripted_broker: Any, rig: GatewayRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    link = scripted_broker.accept()
    link.handshake()
    link.publish(b"tidegate/v1/a/readings", b'{"values": {"t": 1}}', 1)
    link.publish(b"site/x/t", b"1.5", 2)
    assert [link.packet(PUBACK).mid for _ in range(2)] == [1, 2]
    replace(file, HEAD + ROUTE)
    rig.until(lambda: ": 1 now apply, before" in caplog.text, "the routes of the file apply")
    link.publish(b"tidegate/v1/a/readings", b'{"values": {"t": 2}}', 3)
    link.publish(b"site/x/t", b"1.5", 4)
    assert [link.packet(PUBACK).mid for _ in range(2)] == [3, 4]
    assert [decode_record(one.value or b"").device for one in rig.log.records(READINGS)].count("a") == 2
    assert rig.reasons() == ["no_route"], "the route that is gone takes nothing"
