"""Sparkplug B: what births define, what data means by them, and what is asked for where that is not known."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from gateway.decoders.protobuf import as_bytes, as_text, read_fields
from gateway.decoders.shape import Decoded, Ignored, RouteMatch
from gateway.gateway_settings import GatewaySettings
from ingest.contract.dead_letter import Reject

Encode = Callable[..., bytes]
T = 1_750_000_000_000
NOW_US = (T + 60_000) * 1000
INT8, INT32, INT64, UINT8, UINT32, UINT64 = 1, 3, 4, 5, 7, 8
FLOAT, DOUBLE, BOOLEAN, STRING, DATETIME, TEXT, UUID, DATASET, BYTES, TEMPLATE = 9, 10, 11, 12, 13, 14, 15, 16, 17, 19


def values(decoded: Decoded) -> dict[str, Any]:
    return {one.metric: one.value if one.text is None else one.text for one in decoded.readings}


def reasons(decoded: Decoded) -> list[str]:
    return [fault.reason for fault in decoded.rejects]


class TestBirthsAndData:
    def test_aliases_units_and_datatypes_come_from_the_birth(self, sparkplug_host: Any) -> None:
        birth = sparkplug_host.send(
            "G/NBIRTH/n",
            [
                {"name": "bdSeq", "datatype": UINT64, "long": 3},
                {"name": "Node Control/Rebirth", "alias": 0, "datatype": BOOLEAN, "boolean": False},
                {"name": "t", "alias": 1, "datatype": FLOAT, "float": 1.5, "properties": {"engUnit": "°C"}},
                {"name": "n", "alias": 2, "datatype": INT32, "int": 2**32 - 5},
            ],
        )
        assert (birth.device, values(birth)) == ("G/n", {"t": 1.5, "n": -5.0})
        assert [one.time_us for one in birth.readings] == [T * 1000] * 2, "a metric without time has the message's"
        data = sparkplug_host.send(
            "G/NDATA/n",
            [
                {"alias": 1, "float": 2.5, "time_ms": T + 5},
                {"alias": 2, "int": 2**32 - 7},
                {"alias": 0, "boolean": True},
            ],
            seq=1,
        )
        assert values(data) == {"t": 2.5, "n": -7.0}
        assert [(one.unit, one.time_us) for one in data.readings] == [("°C", (T + 5) * 1000), (None, T * 1000)]
        assert (data.flags, data.rejects, data.replies) == (None, [], [])

    def test_a_device_has_aliases_of_its_own(self, sparkplug_host: Any) -> None:
        sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
        sparkplug_host.send("G/DBIRTH/n/d", [{"name": "b", "alias": 1, "datatype": FLOAT, "float": 1}], seq=1)
        data = sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 4}], seq=2)
        assert (data.device, values(data)) == ("G/n/d", {"b": 4.0})
        assert values(sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 5}], seq=3)) == {"a": 5.0}

    def test_the_routes_device_wins_where_it_has_one(self, sparkplug_host: Any, sparkplug: Encode) -> None:
        match = RouteMatch("sparkplug", "line-4", "", topic="spBv1.0/G/NBIRTH/n", tags={"site": "x"})
        payload = sparkplug([{"name": "a", "datatype": FLOAT, "float": 1}], time_ms=T, seq=0)
        decoded = sparkplug_host.decoder(payload, match, GatewaySettings(), NOW_US)
        assert isinstance(decoded, Decoded)
        assert (decoded.device, decoded.tags) == ("line-4", {"site": "x"})

    def test_flags_of_metrics_and_null(self, sparkplug_host: Any) -> None:
        decoded = sparkplug_host.send(
            "G/NBIRTH/n",
            [
                {"name": "a", "datatype": FLOAT, "float": 1, "historical": True, "transient": True},
                {"name": "b", "datatype": FLOAT, "float": 2, "properties": {"Quality": 500}},
                {"name": "c", "datatype": FLOAT, "float": 3, "properties": {"Quality": 0}},
                {"name": "d", "datatype": FLOAT, "float": 4, "properties": {"Quality": 192}},
                {"name": "e", "datatype": FLOAT, "null": True},
                {"name": "f", "datatype": STRING, "string": ""},
            ],
        )
        flags = {one.metric: one.flags for one in decoded.readings}
        assert flags == {"a": ["historical", "transient"], "b": ["quality_stale"], "c": ["quality_bad"], "d": None}

    def test_a_batch_of_one_metrics_history_is_kept_whole(self, sparkplug_host: Any) -> None:
        history = [{"name": "a", "datatype": FLOAT, "float": n, "time_ms": T + n, "historical": True} for n in range(3)]
        decoded = sparkplug_host.send("G/NDATA/n", history)
        assert [(one.value, one.index, one.time_us) for one in decoded.readings] == [
            (float(n), n, (T + n) * 1000) for n in range(3)
        ]

    def test_templates_are_opened_and_their_aliases_known(self, sparkplug_host: Any) -> None:
        motor = {
            "metrics": [
                {"name": "rpm", "alias": 8, "datatype": INT32, "int": 7},
                {"name": "on", "datatype": BOOLEAN, "boolean": True},
            ]
        }
        birth = sparkplug_host.send(
            "G/NBIRTH/n",
            [
                {"name": "types/Motor", "datatype": TEMPLATE, "template": {"definition": True, **motor}},
                {"name": "m1", "alias": 7, "datatype": TEMPLATE, "template": motor},
            ],
        )
        assert values(birth) == {"m1/rpm": 7.0, "m1/on": "true"}
        member = {"alias": 8, "int": 9}
        data = sparkplug_host.send(
            "G/NDATA/n", [{"alias": 7, "template": {"metrics": [member, {"name": "on", "boolean": False}]}}], seq=1
        )
        assert values(data) == {"m1/rpm": 9.0, "m1/on": "false"}
        unknown = sparkplug_host.send(
            "G/NDATA/n", [{"alias": 99, "template": {"metrics": [{"name": "on", "boolean": True}]}}], seq=2
        )
        assert (values(unknown), reasons(unknown)) == ({}, ["alias_unknown"])

    def test_a_compressed_payload(self, sparkplug_host: Any, sparkplug: Encode) -> None:
        body = sparkplug([{"name": "a", "datatype": FLOAT, "float": 1}], time_ms=T, seq=0)
        for packed in (zlib.compress(body), zlib.compress(body, wbits=31)):
            outer = b"\x22\x12SPBV1.0_COMPRESSED" + b"\x2a" + bytes([len(packed)]) + packed
            decoded = sparkplug_host.raw("G/NBIRTH/n", outer)
            assert isinstance(decoded, Decoded)
            assert values(decoded) == {"a": 1.0}
        bomb = zlib.compress(bytes(5_000_000))
        size = bytes([len(bomb) & 0x7F | 0x80, len(bomb) >> 7])
        decoded = sparkplug_host.raw("G/NBIRTH/n", b"\x22\x12SPBV1.0_COMPRESSED" + b"\x2a" + size + bomb)
        assert isinstance(decoded, Decoded)
        assert "262144" in (decoded.rejects[0].got or "")


class TestValues:
    @pytest.mark.parametrize(
        ("datatype", "raw", "value"),
        [
            (INT8, {"int": 0xF4}, -12),
            (INT8, {"int": 0xFFFFFFF4}, -12),
            (INT8, {"int": 127}, 127),
            (INT32, {"long": 2**64 - 12}, -12),
            (INT32, {"long": 2**32 - 12}, -12),
            (INT64, {"long": 2**64 - 12}, -12),
            (INT64, {"long": 2**53}, 2**53),
            (UINT8, {"int": 255}, 255),
            (UINT32, {"long": 2**32 - 1}, 2**32 - 1),
            (BOOLEAN, {"boolean": False}, "false"),
            (DOUBLE, {"double": 0.1}, 0.1),
            (FLOAT, {"double": 0.1}, 0.1),
            (UUID, {"string": "84B0C4D8-36C5-49D3-8C05-1C07B35D0CBE"}, "84B0C4D8-36C5-49D3-8C05-1C07B35D0CBE"),
            (DATETIME, {"long": 1_486_144_502_122}, "2017-02-03T17:55:02.122Z"),
            (UINT64, {"long": 2**64 - 1}, "18446744073709551615"),
            (INT64, {"long": 2**63}, "-9223372036854775808"),
        ],
    )
    def test_values_are_what_their_datatype_says(
        self, sparkplug_host: Any, datatype: int, raw: dict[str, Any], value: Any
    ) -> None:
        """The same in a birth, by the birth's datatype, and by one in the data itself."""
        assert values(sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": datatype, **raw}])) == {
            "a": value
        }
        assert values(sparkplug_host.send("G/NDATA/n", [{"alias": 1, "time_ms": T, **raw}], seq=1)) == {"a": value}
        assert values(sparkplug_host.send("G/NDATA/n", [{"name": "new", "datatype": datatype, **raw}], seq=2)) == {
            "new": value
        }

    @pytest.mark.parametrize(
        ("datatype", "raw", "reason"),
        [
            (INT8, {"int": 300}, "out_of_range"),
            (UINT8, {"int": 256}, "out_of_range"),
            (UINT32, {"long": 2**32}, "out_of_range"),
            (FLOAT, {"float": float("nan")}, "bad_number"),
            (DOUBLE, {"double": float("-inf")}, "bad_number"),
            (FLOAT, {"int": 5}, "wrong_type"),
            (INT32, {"float": 5.0}, "wrong_type"),
            (BOOLEAN, {"string": "true"}, "wrong_type"),
            (STRING, {"bytes": b"x"}, "undecoded"),
            (STRING, {"string": b"\xff"}, "bad_encoding"),
            (DATETIME, {"long": 2**63}, "bad_timestamp"),
            (DATASET, {"dataset": b""}, "undecoded"),
            (BYTES, {"bytes": b"\0\1"}, "undecoded"),
            (31, {"bytes": b"1234567"}, "wrong_type"),
            (33, {"bytes": b"no end"}, "wrong_type"),
            (32, {"bytes": b"\x09\0\0\0\xff"}, "wrong_type"),
            (77, {"int": 1}, "wrong_type"),
        ],
    )
    def test_what_is_no_value_costs_itself_only(
        self, sparkplug_host: Any, datatype: int, raw: dict[str, Any], reason: str
    ) -> None:
        good = {"name": "b", "alias": 2, "datatype": FLOAT, "float": 1}
        birth = sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": datatype, **raw}, good])
        assert (values(birth), reasons(birth)) == ({"b": 1.0}, [reason])
        data = sparkplug_host.send("G/NDATA/n", [{"alias": 1, "time_ms": T, **raw}, {"alias": 2, "float": 2}], seq=1)
        assert (values(data), reasons(data)) == ({"b": 2.0}, [reason])

    @pytest.mark.parametrize(
        ("datatype", "content", "items"),
        [
            (22, b"\x01\xff", [1.0, -1.0]),
            (27, struct.pack("<2H", 1, 65535), [1.0, 65535.0]),
            (30, struct.pack("<2f", 0.5, -2), [0.5, -2.0]),
            (32, b"\x0c\0\0\0\x34\xd0", [(text == "1" and "true") or "false" for text in "001101001101"]),
            (33, b"ABC\0hello\0", ["ABC", "hello"]),
            (34, struct.pack("<q", 0), ["1970-01-01T00:00:00.000Z"]),
            (24, b"", []),
        ],
    )
    def test_arrays_are_numbered(self, sparkplug_host: Any, datatype: int, content: bytes, items: list[Any]) -> None:
        """The boolean and the text array are the specification's own examples."""
        decoded = sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "datatype": datatype, "bytes": content}])
        assert values(decoded) == {f"a[{place}]": item for place, item in enumerate(items)}

    def test_a_value_without_datatype_is_read_only_where_it_can_mean_one_thing(self, sparkplug_host: Any) -> None:
        decoded = sparkplug_host.send(
            "G/NDATA/n",
            [
                {"name": "f", "float": 1.5},
                {"name": "b", "boolean": True},
                {"name": "s", "string": "x"},
                {"name": "i", "int": 5},
            ],
        )
        assert values(decoded) == {"f": 1.5, "b": "true", "s": "x"}
        assert reasons(decoded) == ["alias_unknown"], "an integer's sign is not known"

    def test_times_are_used_kept_or_refused(self, sparkplug_host: Any) -> None:
        decoded = sparkplug_host.send(
            "G/NBIRTH/n",
            [
                {"name": "unset", "datatype": FLOAT, "float": 1, "time_ms": 5000},
                {"name": "zero", "datatype": FLOAT, "float": 1, "time_ms": 0},
                {"name": "ahead", "datatype": FLOAT, "float": 1, "time_ms": T + 3_600_000},
                {"name": "absurd", "datatype": FLOAT, "float": 1, "time_ms": 2**64 - 1},
            ],
        )
        found = {one.metric: (one.time_us, one.claimed_us, one.flags) for one in decoded.readings}
        assert found == {"unset": (None, 5_000_000, ["clock_unset"]), "zero": (None, None, None)}
        assert reasons(decoded) == ["ts_too_far_future"] * 2
        assert decoded.rejects[0].path == "$.metrics[2].timestamp"


class TestNotKnown:
    def test_data_before_any_birth_is_refused_whole_and_a_rebirth_asked_for_once_a_minute(
        self, sparkplug_host: Any
    ) -> None:
        first = sparkplug_host.send("G/DDATA/n/d", [{"alias": 10, "float": 1}], seq=9)
        assert (first.readings, reasons(first)) == ([], ["alias_unknown"])
        [reply] = first.replies
        assert reply.topic == "spBv1.0/G/NCMD/n"
        [metric] = [as_bytes(field) for field in read_fields(reply.payload) if field[0] == 2]
        fields = {field[0]: field for field in read_fields(metric)}
        assert (as_text(fields[1]), fields[4][2], fields[14][2]) == ("Node Control/Rebirth", BOOLEAN, 1)
        assert 3 not in {field[0] for field in read_fields(reply.payload)}, "commands have no sequence number"
        for seconds, asked in ((1, 0), (59, 0), (60, 1), (61, 0)):
            again = sparkplug_host.send(
                "G/NDATA/n", [{"alias": 10, "float": 1}], seq=9, now_us=NOW_US + seconds * 1_000_000
            )
            assert len(again.replies) == asked, seconds

    def test_a_flood_of_invented_nodes_is_asked_within_a_bound(self, sparkplug_host: Any) -> None:
        asked = sum(len(sparkplug_host.send(f"G/NDATA/n{n}", [{"alias": 1, "float": 1}]).replies) for n in range(1000))
        assert asked == 300

    def test_one_unknown_alias_costs_itself_and_asks(self, sparkplug_host: Any) -> None:
        sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
        data = sparkplug_host.send(
            "G/NDATA/n", [{"alias": 1, "float": 2}, {"alias": 2, "float": 3}, {"float": 4}], seq=1
        )
        assert values(data) == {"a": 2.0}
        assert [(fault.reason, fault.path) for fault in data.rejects] == [
            ("alias_unknown", "$.metrics[1].alias"),
            ("missing_field", "$.metrics[2].name"),
        ]
        assert len(data.replies) == 1

    def test_an_alias_that_stands_twice_in_a_birth_means_nothing(self, sparkplug_host: Any) -> None:
        twice = [{"name": name, "alias": 1, "datatype": FLOAT, "float": 1} for name in "ab"]
        birth = sparkplug_host.send("G/NBIRTH/n", twice)
        assert (values(birth), reasons(birth)) == ({"a": 1.0, "b": 1.0}, ["duplicate_key"] * 2)
        assert reasons(sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=1)) == ["alias_unknown"]

    def test_a_gap_flags_and_asks_and_leaves_doubt_until_the_birth(self, sparkplug_host: Any) -> None:
        birth = [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}]
        sparkplug_host.send("G/NBIRTH/n", birth)
        sparkplug_host.send("G/DBIRTH/n/d", birth, seq=1)
        for seq in (2, 255):
            sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=seq, at=T + seq)
        gap = sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 3}], seq=7, at=T + 300)
        assert gap.flags == ["birth_unconfirmed", "seq_gap"]
        after = sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 3}], seq=8, at=T + 301)
        assert after.flags == ["birth_unconfirmed"]
        sparkplug_host.send("G/DBIRTH/n/d", birth, seq=9, at=T + 302)
        assert sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 3}], seq=10, at=T + 303).flags is None, (
            "told again"
        )
        assert sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 3}], seq=11, at=T + 304).flags == [
            "birth_unconfirmed"
        ]
        sparkplug_host.send("G/NBIRTH/n", birth, seq=0, at=T + 305)
        assert sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 3}], seq=1, at=T + 306).flags is None

    def test_the_sequence_goes_round_at_256_and_a_copy_is_no_gap(self, sparkplug_host: Any) -> None:
        sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
        for place in [*range(1, 300), 299]:
            data = sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=place % 256, at=T + place)
            assert data.flags is None, place

    def test_a_value_that_cannot_be_of_the_births_datatype_asks_for_a_new_birth(self, sparkplug_host: Any) -> None:
        sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
        data = sparkplug_host.send("G/NDATA/n", [{"alias": 1, "string": "x"}], seq=1)
        assert (reasons(data), len(data.replies)) == (["wrong_type"], 1)


class TestNotReadings:
    @pytest.mark.parametrize(
        ("topic", "reason", "device"),
        [
            ("STATE/scada", "status", ""),
            ("G/NDEATH/n", "status", "G/n"),
            ("G/DDEATH/n/d", "status", "G/n/d"),
            ("G/NCMD/n", "command", ""),
            ("G/DCMD/n/d", "command", ""),
        ],
    )
    def test_deaths_states_and_commands(self, sparkplug_host: Any, topic: str, reason: str, device: str) -> None:
        ignored = sparkplug_host.raw(
            topic, sparkplug_host.encode([{"name": "bdSeq", "datatype": UINT64, "long": 0}], time_ms=T)
        )
        assert isinstance(ignored, Ignored)
        assert (ignored.reason, ignored.device) == (reason, device)

    def test_a_death_of_an_earlier_session_says_nothing_about_this_one(self, sparkplug_host: Any) -> None:
        birth = [
            {"name": "bdSeq", "datatype": UINT64, "long": 5},
            {"name": "a", "alias": 1, "datatype": FLOAT, "float": 1},
        ]
        sparkplug_host.send("G/NBIRTH/n", birth)
        sparkplug_host.raw(
            "G/NDEATH/n", sparkplug_host.encode([{"name": "bdSeq", "datatype": UINT64, "long": 4}], time_ms=T)
        )
        assert sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=1).flags is None
        sparkplug_host.raw(
            "G/NDEATH/n", sparkplug_host.encode([{"name": "bdSeq", "datatype": UINT64, "long": 5}], time_ms=T)
        )
        late = sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=2)
        assert (late.flags, len(late.replies)) == (["birth_unconfirmed"], 1), "it speaks though it is dead"

    def test_a_device_that_died_is_in_doubt_until_its_birth(self, sparkplug_host: Any) -> None:
        birth = [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}]
        sparkplug_host.send("G/NBIRTH/n", birth)
        sparkplug_host.send("G/DBIRTH/n/d", birth, seq=1)
        sparkplug_host.raw("G/DDEATH/n/d", sparkplug_host.encode([], time_ms=T, seq=2))
        assert sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 2}], seq=3).flags == ["birth_unconfirmed"]
        sparkplug_host.send("G/DBIRTH/n/d", birth, seq=4)
        assert sparkplug_host.send("G/DDATA/n/d", [{"alias": 1, "float": 2}], seq=5).flags is None

    @pytest.mark.parametrize("topic", ["G/NDATA", "G/NDATA/n/d", "G/DDATA/n", "G/XDATA/n", "G//n", "G/NDATA/", "NDATA"])
    def test_a_topic_that_is_none_is_named(self, sparkplug_host: Any, topic: str) -> None:
        refused = sparkplug_host.raw(topic, b"")
        assert isinstance(refused, Reject)
        assert (refused.reason, refused.path) == ("undecoded", "topic")


class TestIdentity:
    def test_a_message_sent_twice_has_one_identity_and_two_messages_have_two(self, sparkplug_host: Any) -> None:
        sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "alias": 1, "datatype": FLOAT, "float": 1}])
        first, again = (
            sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=1, at=T).message_id for _ in range(2)
        )
        assert first == again
        assert first is not None
        # The number came round after 256 messages; only the clock differs.
        assert sparkplug_host.send("G/NDATA/n", [{"alias": 1, "float": 2}], seq=1, at=T + 256).message_id != first

    @pytest.mark.parametrize("at", [0, 12_345])
    def test_a_clock_that_begins_anew_with_each_boot_identifies_nothing(self, sparkplug_host: Any, at: int) -> None:
        assert (
            sparkplug_host.send("G/NBIRTH/n", [{"name": "a", "datatype": FLOAT, "float": 1}], at=at).message_id is None
        )
