import pytest

from gateway.decoders.shape import RouteMatch
from gateway.routes import OWN, compile_routes
from gateway.settings import RouteSettings
from ingest.contract.errors import ConfigError


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
