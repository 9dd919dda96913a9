"""Rate, registry and profiles together, asked by the gate: what a message becomes, and what the settings say."""

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gateway.device_registry import DeviceRegistry, add_device
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.policy import ReadingPolicy
from gateway.profiles.policy import ProfilePolicy, make_policy
from gateway.profiles.profile_folder import ProfileFolder
from gateway.rate import DeviceRate
from gateway.routes import compile_routes
from ingest.contract.dead_letter import DeadLetterRecord, decode_dead_letter
from ingest.contract.errors import ConfigError
from ingest.contract.reading import ReadingRecord, decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from monitoring.metrics.gateway import GatewayMetrics

T0 = 1_790_000_000_000_000
PUMP = """
name = "pump"
version = {version}
devices = ["pump-*"]
policy = "{policy}"

[metrics.t]
max = {limit}
max_step = 50
"""


def pump(version: int = 1, *, policy: str = "salvage", limit: float = 10) -> str:
    return PUMP.format(version=version, policy=policy, limit=limit)


class Rig:
    """A gate with a policy over a folder and a registry."""

    def __init__(self, path: Path, *, rate: DeviceRate | None = None, unregistered: Any = "accept") -> None:
        self.profiles, self.devices = path / "profiles", path / "devices.jsonl"
        self.profiles.mkdir(exist_ok=True)
        self.devices.touch()
        self.policy = ProfilePolicy(
            ProfileFolder(self.profiles), DeviceRegistry(self.devices), rate, unregistered=unregistered
        )
        routes = (RouteSettings(filter="hall/+/state", decoder="json", profile=None),)
        self.gate = MessageProcessor(compile_routes(routes), GatewaySettings(), policy=self.policy)
        self.number = 0

    def send(self, values: Any, device: str = "pump-1", *, raw: bytes | None = None) -> Outcome:
        self.number += 1
        payload = json.dumps({"values": values}).encode() if raw is None else raw
        topic = f"tidegate/v1/{device}/readings".encode()
        return self.gate.decide(Message(self.number, 1, T0 + self.number, topic, payload))

    def tick(self) -> None:
        self.policy.tick()
        self.policy.tick()


def letters(outcome: Outcome) -> list[DeadLetterRecord]:
    return [decode_dead_letter(record.value) for record in outcome.records if record.topic == DEAD_LETTERS]


def stored(outcome: Outcome) -> ReadingRecord:
    [record] = [decode_record(record.value) for record in outcome.records if record.topic == READINGS]
    return record


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "pump.toml").write_text(pump())
    return Rig(tmp_path)


# Profiles.


def test_a_dead_letter_names_profile_path_got_and_wanted(rig: Rig) -> None:
    outcome = rig.send({"t": 12, "u": 1})
    assert (outcome.accepted, outcome.parts) == (True, [Reason.OUT_OF_RANGE])
    assert [one.metric for one in stored(outcome).readings] == ["u"]
    [letter] = letters(outcome)
    assert (letter.partial, letter.profile, letter.path, letter.got, letter.wanted) == (
        True, "pump@1", "$.values.t", "12", "a number of at most 10",
    )  # fmt: skip
    assert letters(rig.send({"t": 12}))[0].profile == "pump@1", "nothing left: the whole message is one"
    assert letters(rig.send({"u": None}))[0].profile is None, "refused by its format"


def test_reject_takes_the_whole_message_with_its_number(rig: Rig) -> None:
    (rig.profiles / "pump.toml").write_text(pump(2, policy="reject"))
    rig.tick()
    outcome = rig.send(None, raw=b'{"boot": 1, "seq": 7, "values": {"t": 12, "u": 1}}')
    assert (outcome.accepted, outcome.rejected) == (False, Reason.OUT_OF_RANGE)
    assert outcome.sequence == [(1, 7)], "the counter of a refused message is no gap"
    assert (letters(outcome)[0].partial, letters(outcome)[0].profile) == (False, "pump@2")


def test_a_route_may_name_a_profile_and_the_registry_wins(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    for name, limit in (("hall", 1), ("own", 2)):
        (profiles / f"{name}.toml").write_text(f'name = "{name}"\nversion = 1\n[metrics.t]\nmax = {limit}\n')
    add_device(tmp_path / "devices.jsonl", "h2", profile="own", tags={"site": "berlin", "room": "1"})
    limits = GatewaySettings(profiles=str(profiles), device_registry=str(tmp_path / "devices.jsonl"), presets=())
    routes = (
        RouteSettings(filter="hall/{id}/state", device="{id}", decoder="json", profile="hall", tags={"room": "{id}"}),
    )
    gate = MessageProcessor(compile_routes(routes), limits, policy=make_policy(limits, routes))

    def send(device: str) -> Outcome:
        return gate.decide(Message(1, 1, T0, f"hall/{device}/state".encode(), b'{"t": 9, "u": 1}'))

    assert letters(send("h1"))[0].profile == "hall@1"
    assert letters(send("h2"))[0].profile == "own@1"
    assert stored(send("h2")).tags == {"site": "berlin", "room": "h2"}, "the route's tags win over the registry's"


def test_what_comes_again_after_a_reconnect_is_judged_as_the_first_time(rig: Rig) -> None:
    (rig.profiles / "pump.toml").write_text(pump(2, limit=1000))
    rig.tick()
    rig.send({"t": 20})
    rig.gate.acknowledged(rig.number, [])
    first = [rig.send({"t": value}).rejected for value in (90, 20, 85)]
    assert first == [Reason.STEP_EXCEEDED, None, Reason.STEP_EXCEEDED]
    rig.gate.roll_back()
    assert [rig.send({"t": value}).rejected for value in (90, 20, 85)] == first


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["send", "better", "bad", "gone", "tick", "registry", "torn"]), max_size=30))
def test_reload_at_any_moment_loses_nothing(tmp_path_factory: pytest.TempPathFactory, events: list[str]) -> None:
    rig = Rig(tmp_path_factory.mktemp("run"))
    logging.getLogger("tidegate.gateway").setLevel(logging.CRITICAL)
    file = rig.profiles / "pump.toml"
    for count, event in enumerate(events):
        match event:
            case "send":
                outcome = rig.send({"t": 12.0, "u": 1.0})
                kept = len(stored(outcome).readings) if outcome.accepted else 0
                assert kept + len(letters(outcome)) == 2, "each value is stored or dead-lettered, whatever applies"
                assert outcome.rejected is not Reason.INTERNAL_ERROR
            case "better":
                file.write_text(pump(count + 1, limit=count))
            case "bad":
                file.write_text("name = [" + " " * count)
            case "gone":
                file.unlink(missing_ok=True)
            case "tick":
                rig.policy.tick()
            case "registry":
                with contextlib.suppress(ConfigError):  # torn: the command says so
                    add_device(rig.devices, "pump-1", tags={"n": str(count)})
            case "torn":
                rig.devices.write_text('{"device": ' + " " * count)
    logging.getLogger("tidegate.gateway").setLevel(logging.NOTSET)


# Registry.


@pytest.mark.parametrize(("unregistered", "keeps"), [("quarantine", True), ("refuse", False)])
def test_unregistered_devices(tmp_path: Path, unregistered: str, keeps: bool) -> None:
    rig = Rig(tmp_path, unregistered=unregistered)
    outcome = rig.send({"t": 1}, "stranger")
    [letter] = letters(outcome)
    assert (letter.reason, letter.device, letter.partial) == (Reason.UNKNOWN_DEVICE, "stranger", False)
    assert letter.payload_bytes == 20
    assert (len(letter.payload_base64) > 0, letter.payload_sha256 is None) == (keeps, keeps)
    assert letters(rig.send(None, "stranger", raw=b"{nope"))[0].reason is Reason.UNKNOWN_DEVICE
    assert rig.send(None, "stranger", raw=b"").ignored is IgnoredReason.EMPTY_PAYLOAD
    add_device(rig.devices, "stranger")
    rig.tick()
    assert rig.send({"t": 1}, "stranger").accepted, "without a restart"


def test_whom_a_payload_names_must_be_the_topic_s_device(rig: Rig) -> None:
    assert rig.send(None, raw=b'{"device": "pump-1", "values": {"t": 1}}').accepted
    outcome = rig.send(None, raw=b'{"device": "pump-2", "values": {"t": 1}}')
    [letter] = letters(outcome)
    assert (letter.reason, letter.device, letter.path) == (Reason.IDENTITY_MISMATCH, "pump-1", "$.device")
    assert (letter.got, letter.wanted) == ("pump-2", "pump-1, the device of the topic")
    batch = rig.send(
        None, raw=b'[{"values": {"t": 1}}, {"device": "x", "values": {"t": 1}}, {"device": 7, "values": {}}]'
    )
    assert (batch.accepted, batch.parts) == (True, [Reason.IDENTITY_MISMATCH] * 2)
    assert letters(rig.send(None, raw=b'{"device": ["pump-1"], "values": {"t": 1}}'))[0].reason is Reason.WRONG_TYPE


def test_a_mapping_may_ask_that_the_payload_names_the_topic_s_device() -> None:
    route = RouteSettings.model_validate(
        {"filter": "hall/{id}", "device": "{id}", "mapping": {"same_device": ["{.dev.eui}", "{.serial}"]}}
    )
    gate = MessageProcessor(compile_routes((route,)), GatewaySettings(presets=()))

    def send(payload: bytes) -> Outcome:
        return gate.decide(Message(1, 1, T0, b"hall/h1", payload))

    for payload in (b'{"dev": {"eui": "h1"}, "t": 1}', b'{"serial": "h1", "t": 1}', b'{"t": 1}'):
        assert [one.metric for one in stored(send(payload)).readings] == ["t"], "an id is no reading"
    outcome = send(b'{"dev": {"eui": "h2"}, "serial": "h1", "t": 1}')
    assert (outcome.rejected, outcome.device) == (Reason.IDENTITY_MISMATCH, "h1")
    assert letters(outcome)[0].got == "h2"


# Rate.


def test_a_flood_becomes_dead_letters_that_keep_little(tmp_path: Path) -> None:
    rig = Rig(tmp_path, rate=DeviceRate(1, 3, catch_up_seconds=0, now_us=lambda: T0))
    large = json.dumps({"values": {"t": 1, "text": "x" * 5000}}).encode()
    outcomes = [rig.send(None, "flood", raw=large) for _ in range(10)]
    assert [one.accepted for one in outcomes] == [True] * 3 + [False] * 7
    [letter] = letters(outcomes[-1])
    assert (letter.reason, letter.payload_bytes, len(letter.payload_base64)) == (Reason.RATE_LIMITED, len(large), 1368)
    assert letter.payload_sha256 is not None
    assert rig.send({"t": 1}, "good").accepted
    small = letters(rig.send({"t": 1}, "flood"))[0]
    assert small.payload_sha256 is None, "a usual reading is kept whole, to be redriven"
    assert letters(rig.send(None, "flood", raw=b"{" * 2000))[0].reason is Reason.RATE_LIMITED, "garbage counts too"


# Nothing to check.


def test_plain_is_true_only_where_nothing_is_asked_and_follows_each_reload(rig: Rig) -> None:
    assert ReadingPolicy().plain("anything")
    assert (rig.policy.plain("pump-1"), rig.policy.plain("other")) == (False, True)
    (rig.profiles / "all.toml").write_text('name = "all"\nversion = 1\ndevices = ["*"]\n[metrics.t]\n')
    rig.tick()
    assert not rig.policy.plain("other")
    (rig.profiles / "all.toml").unlink()
    (rig.profiles / "pump.toml").unlink()
    rig.tick()
    assert (rig.policy.plain("pump-1"), rig.policy.plain("other")) == (True, True)
    add_device(rig.devices, "other", tags={"site": "x"})
    rig.tick()
    assert not rig.policy.plain("other"), "its tags go onto its readings"


def test_plain_is_never_true_for_strangers_or_under_a_rate(tmp_path: Path) -> None:
    rig = Rig(tmp_path, unregistered="quarantine")
    assert not rig.policy.plain("stranger")
    add_device(rig.devices, "stranger")
    rig.tick()
    assert rig.policy.plain("stranger")
    assert not Rig(tmp_path, rate=DeviceRate(1, 1, catch_up_seconds=0)).policy.plain("anything")


def test_ranges_alone_are_no_all_that_is_asked_under_a_rate_of_strangers_or_with_tags(tmp_path: Path) -> None:
    text = 'name = "p"\nversion = 1\ndevices = ["*"]\n[metrics.t]\nmax = 1\n'
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "p.toml").write_text(text)
    open_to_all = Rig(tmp_path)
    assert open_to_all.policy.number_limits("pump-1") is not None
    assert Rig(tmp_path, rate=DeviceRate(1, 1, catch_up_seconds=0)).policy.number_limits("pump-1") is None
    assert Rig(tmp_path, unregistered="refuse").policy.number_limits("pump-1") is None
    add_device(tmp_path / "devices.jsonl", "pump-1")
    assert Rig(tmp_path, unregistered="refuse").policy.number_limits("pump-1") is not None
    add_device(tmp_path / "devices.jsonl", "pump-1", tags={"site": "x"})
    assert Rig(tmp_path).policy.number_limits("pump-1") is None
    assert ReadingPolicy().number_limits("pump-1") is None


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["profile", "unprofile", "register", "tick"]), max_size=15))
def test_plain_says_what_a_message_meets(tmp_path_factory: pytest.TempPathFactory, events: list[str]) -> None:
    rig = Rig(tmp_path_factory.mktemp("run"), unregistered="quarantine")
    file = rig.profiles / "pump.toml"
    for count, event in enumerate(events):
        if event == "profile":
            file.write_text(pump(count + 1, limit=-1))
        elif event == "unprofile":
            file.unlink(missing_ok=True)
        elif event == "register":
            add_device(rig.devices, "pump-1")
        else:
            rig.policy.tick()
        is_untouched = rig.send({"t": 1.0}).accepted
        assert rig.policy.plain("pump-1") is is_untouched


# From settings.


def test_without_settings_nothing_is_asked() -> None:
    assert type(make_policy(GatewaySettings())) is ReadingPolicy


@pytest.mark.parametrize(
    ("values", "routes", "told"),
    [
        (
            {},
            [RouteSettings(filter="a", profile="p")],
            "a route names profile 'p', but gateway.profiles is not set to a folder",
        ),
        ({"unregistered": "refuse"}, [], 'gateway.unregistered = "refuse" needs gateway.device_registry'),
        ({"profiles": "nowhere"}, [], "nowhere: cannot read the folder of profiles"),
        ({"device_registry": "nowhere"}, [], "nowhere: cannot read the device registry"),
    ],
)
def test_settings_that_contradict_are_told(values: dict[str, Any], routes: list[RouteSettings], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_policy(GatewaySettings(**values), routes)


def test_a_registered_device_whose_profile_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "devices.jsonl"
    add_device(file, "a", profile="p")
    with pytest.raises(ConfigError, match="device a names profile p, but no file of the folder has that profile"):
        make_policy(GatewaySettings(device_registry=str(file)))


def test_the_burst_is_ten_seconds_worth_unless_said_otherwise() -> None:
    def burst(**values: Any) -> float:
        policy = make_policy(GatewaySettings(**values))
        assert isinstance(policy, ProfilePolicy)
        assert policy._rate is not None
        return policy._rate.burst

    assert (burst(device_rate=5), burst(device_rate=0.1), burst(device_rate=5, device_burst=2)) == (50, 10, 2)
    assert type(make_policy(GatewaySettings(device_rate=5), live=False)) is ReadingPolicy, (
        "a file of messages has no rate"
    )


def test_reloads_and_refused_files_are_metrics(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=IgnoredReason)
    policy = make_policy(GatewaySettings(profiles=str(tmp_path)), metrics=metrics)

    def look() -> tuple[float | None, float | None]:
        policy.tick()
        policy.tick()
        names = ("tidegate_gateway_profile_reloads_total", "tidegate_gateway_profile_files_refused")
        return registry.get_sample_value(names[0]), registry.get_sample_value(names[1])

    assert look() == (0, 0)
    (tmp_path / "pump.toml").write_text(pump())
    assert look() == (1, 0)
    (tmp_path / "pump.toml").write_text("bad")
    assert look() == (1, 1)
    (tmp_path / "pump.toml").write_text(pump(2))
    assert look() == (2, 0)
