"""Homie 4 and 5: values by the units and datatypes that other topics told, over restarts too."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.homie import HomieDecoder
from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.decoders.state import DecoderState
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject

Outcome = Decoded | Reject | Ignored
NOW_US = 1_750_000_000_000_000


class Host:
    """One gateway's decoder, with the state that it leaves."""

    def __init__(self, state: DecoderState | None = None, **limits: int) -> None:
        self.state = state or DecoderState()
        self.decoder, self.limits = HomieDecoder(self.state), GatewaySettings(**limits)

    def send(self, topic: str, payload: str | bytes) -> Any:
        match = RouteMatch("homie", topic.rpartition("/")[0], "", topic=topic)
        return self.decoder(payload.encode() if isinstance(payload, str) else payload, match, self.limits, NOW_US)


def describe(**properties: dict[str, str]) -> str:
    return json.dumps({"homie": "5.0", "version": 1, "nodes": {"n": {"name": "N", "properties": properties}}})


def reading(outcome: Outcome) -> tuple[str, str, float | None, str | None, str | None]:
    assert isinstance(outcome, Decoded), outcome
    [one] = outcome.readings
    return outcome.device, one.metric, one.value, one.text, one.unit


class TestValues:
    def test_until_told_a_value_is_plain_and_has_no_unit(self) -> None:
        host = Host()
        assert reading(host.send("homie/5/dev/n/t", "21.5")) == ("dev", "n/t", 21.5, None, None)
        assert reading(host.send("homie/dev/n/t", "21.5")) == ("dev", "n/t", 21.5, None, None)
        assert reading(host.send("homie/dev/n/c", "rgb,100,100,100")) == ("dev", "n/c", None, "rgb,100,100,100", None)

    def test_a_description_gives_units_and_datatypes(self) -> None:
        host = Host()
        told = host.send("homie/5/dev/$description", describe(t={"unit": "°C", "datatype": "float"}, x={"name": "X"}))
        assert told == Ignored("metadata", "dev")
        assert reading(host.send("homie/5/dev/n/t", "21.5")) == ("dev", "n/t", 21.5, None, "°C")
        assert reading(host.send("homie/5/dev/n/x", "7")) == ("dev", "n/x", 7.0, None, None)
        assert reading(host.send("homie/5/other/n/t", "21.5"))[4] is None, "another device"
        assert reading(host.send("homie/dev/n/t", "21.5"))[4] is None, "another version's device of that name"

    def test_attributes_of_a_property_give_them_in_any_order(self) -> None:
        for order in (("$unit", "$datatype"), ("$datatype", "$unit")):
            host = Host()
            for attribute in order:
                content = {"$unit": "%", "$datatype": "integer"}[attribute]
                assert host.send(f"homie/dev/n/h/{attribute}", content) == Ignored("metadata", "dev")
            assert reading(host.send("homie/dev/n/h", "44")) == ("dev", "n/h", 44.0, None, "%")
            assert host.send("homie/dev/n/h", "44.5").rejects[0].reason == "bad_number"
            host.send("homie/dev/n/h/$unit", "")
            assert reading(host.send("homie/dev/n/h", "44"))[4] is None, "taken away"

    @pytest.mark.parametrize(
        ("datatype", "text", "value"),
        [
            ("integer", "-7", (-7.0, None)),
            ("integer", "9007199254740993", (9007199254740992.0, "9007199254740993")),
            ("float", "1e3", (1000.0, None)),
            ("float", ".5", (0.5, None)),
            ("boolean", "false", (0.0, "false")),
            ("string", "100,5", (None, "100,5")),
            ("string", "unknown", (None, "unknown")),
            ("enum", "21.5", (None, "21.5")),
            ("color", "255,0,255", (None, "255,0,255")),
            ("datetime", "2026-11-28T12:00:00Z", (None, "2026-11-28T12:00:00Z")),
            ("duration", "PT5M", (None, "PT5M")),
            ("json", '{"a":1}', (None, '{"a":1}')),
            ("percent", "12.5", (12.5, None)),
            ("something new", "12.5", (12.5, None)),
        ],
    )
    def test_values_are_what_their_datatype_says(
        self, datatype: str, text: str, value: tuple[float | None, str | None]
    ) -> None:
        host = Host()
        host.send("homie/5/dev/$description", describe(p={"datatype": datatype}))
        assert reading(host.send("homie/5/dev/n/p", text))[2:4] == value

    @pytest.mark.parametrize(
        ("datatype", "payload", "reason"),
        [
            ("integer", b"1.5", "bad_number"),
            ("integer", b"0x10", "bad_number"),
            ("float", b"nan", "bad_number"),
            ("float", b"1e999", "bad_number"),
            ("float", b"12,5", "bad_number"),
            ("boolean", b"ON", "wrong_type"),
            ("string", b"\xff", "bad_encoding"),
        ],
    )
    def test_what_is_none_is_refused_for_its_device(self, datatype: str, payload: bytes, reason: str) -> None:
        host = Host()
        host.send("homie/5/dev/$description", describe(p={"datatype": datatype}))
        refused = host.send("homie/5/dev/n/p", payload)
        assert (refused.device, refused.readings, refused.rejects[0].reason) == ("dev", [], reason)

    @pytest.mark.parametrize("payload", [b"\0", b"unavailable", b"null"])
    def test_no_value_is_none(self, payload: bytes) -> None:
        assert Host().send("homie/5/dev/n/p", payload) == Ignored("no_value", "dev")


class TestNotReadings:
    @pytest.mark.parametrize(
        ("topic", "reason"),
        [
            ("homie/5/dev/$state", "status"),
            ("homie/5/dev/$log/warn", "status"),
            ("homie/5/dev/$alert/low", "status"),
            ("homie/5/dev/n/p/set", "command"),
            ("homie/5/dev/n/p/$target", "metadata"),
            ("homie/5/dev/n/p/$description", "metadata"),
            ("homie/dev/$homie", "metadata"),
            ("homie/dev/$state", "status"),
            ("homie/dev/$stats/uptime", "status"),
            ("homie/dev/$fw/version", "metadata"),
            ("homie/dev/$unit", "metadata"),
            ("homie/dev/n/$properties", "metadata"),
            ("homie/dev/n/p/$settable", "metadata"),
            ("homie/dev/n/p/set", "command"),
            ("home/base/homie/5/dev/$state", "status"),
            ("devices/dev/$name", "metadata"),
        ],
    )
    def test_attributes_and_commands(self, topic: str, reason: str) -> None:
        host = Host()
        assert host.send(topic, "x") == Ignored(reason, "" if reason == "command" else "dev")
        assert host.state.take_changes() == []

    @pytest.mark.parametrize(
        "topic", ["homie", "homie/5", "homie/dev", "homie/dev/n", "homie/5/dev/n", "homie/5/d/n/p/q", "homie//n/p"]
    )
    def test_a_topic_that_is_none_is_named(self, topic: str) -> None:
        refused = Host().send(topic, "5")
        assert isinstance(refused, Reject)
        assert (refused.reason, refused.path) == ("undecoded", "topic")

    def test_other_base_topics(self) -> None:
        assert reading(Host().send("home/base/homie/5/dev/n/p", "5"))[:3] == ("dev", "n/p", 5.0)
        assert reading(Host().send("devices/dev/n/p", "5"))[:3] == ("dev", "n/p", 5.0)

    @pytest.mark.parametrize("payload", [b"no json", b"[]", b"5", b"\xff"])
    def test_a_description_that_is_none_is_refused_and_the_old_one_stays(self, payload: bytes) -> None:
        host = Host()
        host.send("homie/5/dev/$description", describe(t={"unit": "°C"}))
        assert isinstance(host.send("homie/5/dev/$description", payload), Decoded)
        assert reading(host.send("homie/5/dev/n/t", "5"))[4] == "°C"

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"nodes": None},
            {"nodes": {"n": 5}},
            {"nodes": {"n": {"properties": [1]}}},
            {"nodes": {"n": {"properties": {"t": 5}}}},
            {"nodes": {"n": {"properties": {"t": {"unit": 5, "datatype": "x" * 1000}}}}},
        ],
    )
    def test_odd_descriptions_tell_nothing(self, body: dict[str, Any]) -> None:
        host = Host()
        assert host.send("homie/5/dev/$description", json.dumps(body)) == Ignored("metadata", "dev")
        assert reading(host.send("homie/5/dev/n/t", "21.5 °F"))[4] == "°F", "as the text itself says"


class TestRestart:
    def restarted(self, host: Host, log: dict[str, bytes]) -> Host:
        log |= dict(host.state.take_changes())
        return Host(DecoderState(log.items()))

    @pytest.mark.parametrize(
        ("tellings", "topic"),
        [
            ([("homie/5/dev/$description", describe(t={"unit": "°C", "datatype": "float"}))], "homie/5/dev/n/t"),
            ([("homie/dev/n/t/$datatype", "float"), ("homie/dev/n/t/$unit", "°C")], "homie/dev/n/t"),
        ],
    )
    def test_units_survive_a_restart(self, tellings: list[tuple[str, str]], topic: str) -> None:
        host = Host()
        for telling, content in tellings:
            host.send(telling, content)
        host.state.acknowledged(host.state.take_changes())
        for _ in range(host.state.window_messages + 1):
            host.state.take_changes()
        host.send(topic, "1")
        log = {key: host.state.get(key) or b"" for key in ("homie/homie/5/dev", "homie/homie/dev/n/t")}
        again = self.restarted(host, log)
        assert reading(again.send(topic, "21.5")) == ("dev", "n/t", 21.5, None, "°C")

    def test_a_change_of_unit_that_a_restart_falls_into_leaves_no_wrong_unit(self) -> None:
        host, log = Host(), {}
        host.send("homie/5/dev/$description", describe(t={"unit": "°C", "datatype": "float"}, h={"unit": "%"}))
        host.send("homie/5/dev/$description", describe(t={"unit": "°F", "datatype": "float"}, h={"unit": "%"}))
        again = self.restarted(host, log)
        uncertain = again.send("homie/5/dev/n/t", "21.5")
        assert (reading(uncertain)[4], uncertain.flags) == (None, ["unit_uncertain"])
        certain = again.send("homie/5/dev/n/h", "50")
        assert (reading(certain)[4], certain.flags) == ("%", None), "both say the same of it"
        again.send("homie/5/dev/$description", describe(t={"unit": "°F", "datatype": "float"}, h={"unit": "%"}))
        told = again.send("homie/5/dev/n/t", "70")
        assert (reading(told)[4], told.flags) == ("°F", None)

    def test_what_was_not_acknowledged_is_forgotten_with_its_connection(self) -> None:
        host = Host()
        host.send("homie/5/dev/$description", describe(t={"unit": "°C"}))
        host.state.acknowledged(host.state.take_changes())
        host.send("homie/5/dev/$description", describe(t={"unit": "°F"}))
        assert reading(host.send("homie/5/dev/n/t", "70"))[4] == "°F"
        host.state.roll_back()
        assert reading(host.send("homie/5/dev/n/t", "21"))[4] == "°C", "sent again: it came before the change"
        host.send("homie/5/dev/$description", describe(t={"unit": "°F"}))
        assert reading(host.send("homie/5/dev/n/t", "70"))[4] == "°F"


class TestBounds:
    def test_a_description_of_too_many_properties_is_refused(self) -> None:
        host = Host(max_readings_per_message=100)
        many = describe(**{f"p{n}": {"unit": "V"} for n in range(101)})
        assert host.send("homie/5/dev/$description", many).rejects[0].reason == "too_large"
        assert host.send("homie/5/dev/$description", b" " * 300_000).rejects[0].reason == "too_large"
        assert host.state.take_changes() == []

    def test_a_flood_of_invented_devices_is_refused_and_real_ones_live(self) -> None:
        host = Host(DecoderState(max_bytes=5000))
        host.send("homie/5/real/$description", describe(t={"unit": "°C"}))
        told = [host.send(f"homie/dev{n}/n/t/$unit", "°C") for n in range(100)]
        refused = [one for one in told if isinstance(one, Decoded)]
        assert 50 < len(refused) < 100
        assert {one.rejects[0].reason for one in refused} == {"too_large"}
        assert reading(host.send("homie/5/real/n/t", "21"))[4] == "°C"

    def test_a_unit_of_a_megabyte_is_none(self) -> None:
        assert Host().send("homie/dev/n/t/$unit", "x" * 65).rejects[0].reason == "out_of_range"


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.sampled_from(["homie", "5", "dev", "n", "t", "$unit", "$description", "$state", "set", "", "$"]),
                max_size=7,
            ),
            st.one_of(
                st.binary(max_size=50), st.sampled_from([b"float", describe(t={"unit": "V"}).encode(), b"21.5", b"\0"])
            ),
        ),
        max_size=12,
    )
)
def test_random_topics_and_payloads_have_an_outcome(messages: list[tuple[list[str], bytes]]) -> None:
    host = Host()
    for parts, payload in messages:
        outcome = host.send("/".join(parts), payload)
        assert isinstance(outcome, Decoded | Reject | Ignored)
        if isinstance(outcome, Decoded):
            assert len(outcome.readings) + len(outcome.rejects) == 1
