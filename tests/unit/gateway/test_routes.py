from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import ValidationError

from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import Decoded, RouteMatch
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.policy import ReadingPolicy
from gateway.presets.loader import load_presets
from gateway.routes import OWN, RouteTable, compile_routes
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError
from ingest.contract.reading import decode_record
from ingest.contract.reasons import IgnoredReason


def test_the_native_route_is_built_in_and_our_own_topics_are_never_read() -> None:
    table = compile_routes((RouteSettings(filter="#"), RouteSettings(filter="$SYS/#")))
    native = table.match("tidegate/v1/dev-1/readings")
    assert isinstance(native, RouteMatch)
    assert (native.decoder, native.device) == ("native", "dev-1")
    assert table.match("tidegate/receipts/dev-1") == OWN
    assert table.match("$SYS/broker/uptime") == OWN


def test_the_first_route_in_the_settings_wins() -> None:
    table = compile_routes((RouteSettings(filter="a/b", decoder="plain"), RouteSettings(filter="a/#", decoder="json")))
    first, second = table.match("a/b"), table.match("a/c")
    assert isinstance(first, RouteMatch)
    assert isinstance(second, RouteMatch)
    assert (first.decoder, second.decoder) == ("plain", "json")
    assert table.match("b") is None


def test_device_and_tags_come_from_named_segments_or_the_topic() -> None:
    route = RouteSettings(
        filter="site/{site}/{dev}/state",
        device="{site}-{dev}",
        tags={"site": "{site}", "kind": "demo"},
        zone="Europe/Berlin",
    )
    found = compile_routes((route, RouteSettings(filter="site/#"))).match("site/x/y/state")
    assert isinstance(found, RouteMatch)
    assert (found.device, found.metric, found.tags) == ("x-y", "state", {"site": "x", "kind": "demo"})
    other = compile_routes((RouteSettings(filter="site/#"),)).match("site/room1/temperature")
    assert isinstance(other, RouteMatch)
    assert (other.device, other.metric) == ("site/room1", "temperature")


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"filter": "a/#", "decoder": "jsno"}, ["number 2 (a/#)", "decoder 'jsno'", "did you mean 'json'?"]),
        ({"filter": "a/#", "zone": "Europe/Berln"}, ["number 2", "zone", "did you mean 'Europe/Berlin'?"]),
        ({"filter": "a#"}, ["number 2", "filter", "site/+/state"]),
        ({"filter": "a/{site}", "device": "{sit}"}, ["device names {sit}", "did you mean 'site'?"]),
        ({"filter": "a/+", "tags": {"t": "{x}"}}, ["tags.t names {x}", "none"]),
    ],
)
def test_a_wrong_route_is_one_sentence_with_number_key_and_suggestion(
    route: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_routes((RouteSettings(filter="ok/#"), RouteSettings.model_validate(route)))
    assert caught.value.exit_code == 78
    for word in words:
        assert word in str(caught.value)


def test_the_cache_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.routes._CACHED_TOPICS", 10)
    table = compile_routes((RouteSettings(filter="#"),))
    for number in range(100):
        table.match(f"a/{number}")
    assert len(table._known) <= 10


def test_topics_of_any_length_are_not_remembered() -> None:
    table = compile_routes((RouteSettings(filter="#"),))
    for topic in ("a/" + "x" * 65_000, "a/b"):
        assert isinstance(table.match(topic), RouteMatch)
    assert list(table._known) == ["a/b"]


PRESETS = GatewaySettings(zone="Europe/Berlin")


def match_of(table: RouteTable, topic: str) -> RouteMatch:
    found = table.match(topic)
    assert isinstance(found, RouteMatch)
    return found


def test_presets_stand_behind_the_settings_and_can_be_left_out() -> None:
    topic = "zigbee2mqtt/bedroom"
    assert match_of(compile_routes((), PRESETS), topic).route.startswith("preset zigbee2mqtt")
    own = compile_routes((RouteSettings(filter="zigbee2mqtt/#", decoder="json"),), PRESETS)
    assert match_of(own, topic).route == "[[routes]] number 1 (zigbee2mqtt/#)"
    for presets in ((), ("tasmota",), ("shelly*", "tasmota")):
        table = compile_routes((), GatewaySettings(presets=presets))
        assert table.match(topic) is None
        assert (table.match("tele/x/SENSOR") is None) is (presets == ())


def test_a_preset_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no shipped format matches 'tasmoto'; did you mean 'tasmota'"):
        compile_routes((), GatewaySettings(presets=("tasmoto",)))


@pytest.mark.parametrize(
    "topic",
    [
        "home/kitchen/temperature", "a/b/c", "sensors/1/state", "state", "a/status", "a/online/x", "x/events",
        "application/1/device/2", "v3/x", "devices/1", "gateway/1/up", "N", "spBv2.0/g/NDATA/n", "tele/x", "stat",
        "a/b/BTtoMQTTx/c", "a/status/switch", "rtl_433", "shelly-blu/other", "company/tele/x/SENSOR",
    ],
)  # fmt: skip
def test_topics_of_others_are_left_to_them(topic: str) -> None:
    found = compile_routes((), PRESETS).match(topic)
    # Where a filter cannot say enough, the payload decides; these payloads are nobody's.
    for payload in (b"21.5", b"{}", b'{"temp":1}', b"on"):
        outcome = MessageProcessor(compile_routes((), PRESETS), PRESETS).decide(
            Message(1, 0, 0, topic.encode(), payload)
        )
        assert outcome.rejected == "no_route", (topic, payload, found)


def test_a_segment_can_be_asked_for_more_than_to_be_there() -> None:
    routes = (
        RouteSettings(filter="x/{kind}", only={"kind": ("temp*", "hum")}, decoder="plain"),
        RouteSettings(filter="x/{kind}", ignore=IgnoredReason.STATUS),
    )
    table = compile_routes(routes)
    assert [match_of(table, f"x/{kind}").decoder for kind in ("temp1", "hum", "humid")] == ["plain", "plain", "ignore"]


def test_the_payload_decides_between_routes_of_one_topic() -> None:
    routes = (
        RouteSettings(filter="x/{dev}", payload=("on*", "of?"), ignore=IgnoredReason.STATUS),
        RouteSettings(filter="x/{dev}", mapping=MappingSettings(when={"a": True}, prefix="a."), device="A"),
        RouteSettings(filter="x/{dev}", mapping=MappingSettings(when={"b": True}, prefix="b."), device="B"),
    )
    gate = MessageProcessor(compile_routes(routes), PRESETS)

    def decide(payload: bytes) -> Outcome:
        return gate.decide(Message(1, 0, 1_764_331_200_000_000, b"x/y", payload))

    assert decide(b" online\n").ignored == "status"
    assert decide(b"off").ignored == "status"
    assert decide(b'{"a":1}').device == "A"
    assert decide(b'{"b":1}').device == "B"
    assert decide(b'{"a":1,"b":1}').device == "A"
    assert decide(b'{"c":1}').rejected == "no_route"
    assert decide(b"{").rejected == "bad_json"
    last = MessageProcessor(compile_routes((*routes, RouteSettings(filter="x/#", decoder="plain"))), PRESETS)
    assert last.decide(Message(1, 0, 0, b"x/y", b"21.5")).accepted


def test_the_rest_of_a_topic_names_a_bare_value_and_its_unit() -> None:
    route = RouteSettings(filter="s/{dev}/{rest#}", device="{dev}", metric="{rest}", units={"*/power": "W", "p": "Pa"})
    table = compile_routes((route,))
    found = match_of(table, "s/d/relay/0/power")
    assert (found.device, found.metric, found.units.get("relay/0/power")) == ("d", "relay/0/power", "W")
    assert match_of(table, "s/d/x/p").units.get("x/p") is None
    assert match_of(table, "s/d/p").units.get("p") == "Pa"
    assert match_of(table, "s/d").names == {"dev": "d", "rest": ""}, "as # does: the level above too"


def test_a_zone_of_the_gateway_stands_in_where_a_route_names_none() -> None:
    routes = (RouteSettings(filter="a", zone="Asia/Tokyo"), RouteSettings(filter="b"))
    table = compile_routes(routes, PRESETS)
    assert [str(match_of(table, topic).zone) for topic in ("a", "b", "tele/x/SENSOR")] == [
        "Asia/Tokyo",
        "Europe/Berlin",
        "Europe/Berlin",
    ]
    with pytest.raises(ConfigError, match=r"\[gateway\]: zone 'Europe/Berln'.*did you mean 'Europe/Berlin'"):
        compile_routes((), GatewaySettings(zone="Europe/Berln"))


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"filter": "a", "mapping": "tasmoto"}, ["mapping 'tasmoto' is unknown", "did you mean 'tasmota'?"]),
        ({"filter": "a", "mapping": {"device": "{x}"}}, ["number 1 (a)", "segment {x}"]),
        ({"filter": "a/{b}", "only": {"c": "x"}}, ["only names c", "it names: {b}"]),
        ({"filter": "a/{b}", "metric": "{c}"}, ["metric names {c}"]),
        ({"filter": "a/{b#}/c"}, ["invalid topic filter"]),
    ],
)
def test_wrong_mappings_and_conditions_are_told(route: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_routes((RouteSettings.model_validate(route),))
    for word in words:
        assert word in str(caught.value)


def test_a_route_has_one_reader() -> None:
    with pytest.raises(ValidationError, match="set only one of them"):
        RouteSettings.model_validate({"filter": "a", "decoder": "plain", "ignore": "status"})


def test_routes_that_name_a_table_of_the_settings_get_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[mappings.tasmota]\nprefix = "mine."\n[[mappings.tasmota.cases]]\nwhen = { x = true }\nskip = "x"\n'
        '[[routes]]\nfilter = "r/a"\nmapping = "tasmota"\n[[routes]]\nfilter = "b"\nmapping = "zigbee2mqtt"\n'
    )
    settings = load_settings(file, environ={})
    for again in (settings, load_settings(_written(tmp_path, settings), environ={})):
        gate = MessageProcessor(compile_routes(again.routes, again.gateway), again.gateway)
        [record] = gate.decide(Message(1, 0, 0, b"r/a", b'{"x":1,"y":2}')).records
        assert [reading.metric for reading in decode_record(record.value).readings] == ["mine.y"]
        assert again.routes[1].mapping == "zigbee2mqtt"


def _written(folder: Path, settings: Settings) -> Path:
    file = folder / "written.toml"
    file.write_text(to_toml(settings))
    return file


def test_every_preset_compiles_and_says_where_its_rules_come_from() -> None:
    table = compile_routes((), PRESETS)
    assert {route.name.split()[1] for route in table.routes} == {
        name for name, preset in load_presets().items() if preset.routes
    }
    for name in load_presets():
        text = (files("gateway.presets") / f"{name}.toml").read_text("utf-8")
        assert text.startswith("# "), f"{name}: begin with a comment: source, readings, device, time, units"


@pytest.mark.parametrize(
    ("topic", "payload", "device"),
    [
        (b"cmnd/plug/POWER", b"ON", None),
        (b"zigbee2mqtt/bridge/devices", b"[]", None),
        (b"someone/rpc", b'{"id":1,"src":"x"}', None),
        (b"tele/plug/LWT", b"Online", "plug"),
        (b"x/events/rpc", b'{"method":"NotifyEvent","params":{}}', "x"),
    ],
)
def test_what_is_ignored_shows_that_a_device_lives_where_the_topic_names_it(
    topic: bytes, payload: bytes, device: str | None
) -> None:
    outcome = MessageProcessor(compile_routes((), PRESETS), PRESETS).decide(Message(1, 0, 0, topic, payload))
    assert outcome.ignored is not None
    assert outcome.device == device


def test_the_route_that_the_payload_decides_for_names_device_and_profile() -> None:
    seen: list[tuple[str, str | None]] = []

    class Asking(ReadingPolicy):
        def check(self, decoded: Decoded, match: RouteMatch, received_us: int, number: int) -> Reject | None:
            seen.append((match.device, match.profile))
            return None

    routes = (
        RouteSettings(filter="x/{dev}", mapping=MappingSettings(when={"a": True}), device="A", profile="pa"),
        RouteSettings(filter="x/{dev}", mapping=MappingSettings(when={"b": True}), device="B", profile="pb"),
    )
    gate = MessageProcessor(compile_routes(routes), PRESETS, policy=Asking())
    for payload in (b'{"b":1}', b'{"a":1}'):
        assert gate.decide(Message(1, 0, 0, b"x/y", payload)).accepted
    assert seen == [("B", "pb"), ("A", "pa")]


def test_a_mapping_finds_the_device_where_the_topic_has_none() -> None:
    gate = MessageProcessor(
        compile_routes((RouteSettings(filter="events", mapping=MappingSettings(device=("{.id}",))),)), PRESETS
    )
    assert gate.decide(Message(1, 0, 0, b"events", b'{"id":"d7","a":1}')).device == "d7"
