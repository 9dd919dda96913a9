"""Sparkplug B: what a hostile or broken sender can send, and what that costs."""

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.shape import Decoded
from gateway.decoders.sparkplug.nodes import EdgeNodes
from gateway.decoders.state import DecoderState

Encode = Callable[..., bytes]
NewHost = Callable[..., Any]
T = 1_750_000_000_000
FLOAT, TEMPLATE = 9, 19


def values(decoded: Decoded) -> dict[str, Any]:
    return {one.metric: one.value if one.text is None else one.text for one in decoded.readings}


def reasons(decoded: Decoded) -> list[str]:
    return [fault.reason for fault in decoded.rejects]


class TestBounds:
    def test_a_hostile_birth_is_refused_with_a_reason(self, new_sparkplug_host: NewHost) -> None:
        host = new_sparkplug_host(max_readings_per_message=1000)
        many = host.send(
            "G/NBIRTH/n", [{"name": f"m{n}", "alias": n, "datatype": FLOAT, "float": 1} for n in range(1001)]
        )
        assert (many.readings, reasons(many), host.state.take_changes()) == ([], ["too_large"], [])
        large = host.raw("G/NBIRTH/n", bytes(300_000))
        assert isinstance(large, Decoded)
        assert reasons(large) == ["too_large"]

    def test_arrays_and_templates_count_too(self, new_sparkplug_host: NewHost) -> None:
        host = new_sparkplug_host(max_readings_per_message=100)
        wide = host.send("G/NBIRTH/n", [{"name": "a", "datatype": 22, "bytes": bytes(101)}])
        assert (wide.readings, reasons(wide)) == ([], ["too_large"])
        nested: dict[str, Any] = {"name": "x", "datatype": FLOAT, "float": 1}
        for _ in range(12):
            nested = {"name": "t", "datatype": TEMPLATE, "template": {"metrics": [nested]}}
        deep = host.send("G/NBIRTH/n", [nested])
        assert (deep.readings, reasons(deep)) == ([], ["undecoded"])

    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(bytes([0x30, 1]) * 120_000, id="fields of the message"),
            pytest.param(b"\x12\x80\xa9\x0e" + bytes([0x38, 1]) * 117_312, id="fields of a metric"),
            pytest.param(
                b"\x12\x8c\xa9\x0e\x0a\x01x\x65\0\0\0\0\x4a" + b"\x80\xa9\x0e" + bytes([0x0A, 0]) * 117_312,
                id="properties",
            ),
        ],
    )
    def test_no_sender_writes_thousands_of_such_fields(self, sparkplug_host: Any, payload: bytes) -> None:
        refused = sparkplug_host.raw("G/NBIRTH/n", payload)
        assert isinstance(refused, Decoded)
        assert (refused.readings, reasons(refused)) == ([], ["undecoded"])
        assert "fields" in (refused.rejects[0].got or "")

    def test_where_there_is_no_room_the_births_values_are_kept_and_its_aliases_told_as_refused(
        self, new_sparkplug_host: NewHost
    ) -> None:
        host = new_sparkplug_host(DecoderState(max_bytes=600))
        for name in ("n1", "n2", "n3"):
            birth = host.send(f"G/NBIRTH/{name}", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
            assert values(birth) == {"a": 1.0}
        assert reasons(birth) == ["too_large"]
        assert reasons(host.send("G/NDATA/n3", [{"alias": 1, "float": 2}], seq=1)) == ["alias_unknown"]
        assert values(host.send("G/NDATA/n1", [{"alias": 1, "float": 2}], seq=1)) == {"a": 2.0}


class TestNodes:
    def test_invented_names_forget_no_node_with_a_birth(self) -> None:
        nodes = EdgeNodes()
        nodes.node("g/real", 0).born(0, 1, None, 0)
        nodes.node("g/found", 0, is_known=True).asked_us = 5
        for number in range(20_100):
            nodes.node(f"g/x{number}", 0)
        assert nodes.node("g/real", 0).is_certain(None)
        assert nodes.node("g/found", 0).asked_us == 5

    def test_of_too_many_births_those_at_work_stay(self) -> None:
        nodes = EdgeNodes()
        nodes.node("g/real", 0).born(0, 1, None, 0)
        for number in range(40_100):
            nodes.node(f"g/x{number}", 0).born(0, 1, None, 0)
            if number % 1000 == 0:
                nodes.node("g/real", 0)
        assert nodes.node("g/real", 0).is_certain(None)
        assert not nodes.node("g/x0", 0).is_certain(None)

    def test_names_of_any_length_are_told_apart_at_the_cost_of_a_short_one(self) -> None:
        nodes, long = EdgeNodes(), "." * 60_000
        nodes.node(f"g/{long}1", 0).born(0, 1, None, 0)
        assert nodes.node(f"g/{long}1", 0).is_certain(None)
        assert not nodes.node(f"g/{long}2", 0).is_certain(None)
        tracemalloc.start()
        for number in range(500):
            nodes.node(f"g/{long}{number}", 0)
        used, _peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 500 * 3000


KINDS = st.sampled_from(["NBIRTH/n", "NDATA/n", "NDEATH/n", "DBIRTH/n/d", "DDATA/n/d", "DDEATH/n/d", "NCMD/n"])


def test_random_and_bent_payloads_have_an_outcome(sparkplug: Encode, new_sparkplug_host: NewHost) -> None:
    good = sparkplug(
        [
            {"name": "a", "alias": 1, "datatype": FLOAT, "float": 1, "properties": {"engUnit": "V", "Quality": 0}},
            {"name": "m", "alias": 2, "datatype": TEMPLATE, "template": {"metrics": [{"name": "b", "int": 5}]}},
            {"alias": 1, "float": 2, "time_ms": T},
        ],
        time_ms=T,
        seq=3,
    )

    @given(
        st.lists(st.tuples(KINDS, st.binary(max_size=200), st.integers(0, len(good)), st.integers(0, 255)), max_size=8)
    )
    def run(messages: list[tuple[str, bytes, int, int]]) -> None:
        host = new_sparkplug_host()
        for kind, noise, place, byte in messages:
            host.raw(f"G/{kind}", noise)
            host.raw(f"G/{kind}", good[:place] + bytes([byte]) + good[place + 1 :])
            host.raw(f"G/{kind}", good[:place] + noise + good[place:])
            decoded = host.raw(f"G/{kind}", good[:place])
            if isinstance(decoded, Decoded):
                assert all(one.value is None or math.isfinite(one.value) for one in decoded.readings)

    run()
