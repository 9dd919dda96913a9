"""kcat's letters: formats, delimiters, places to begin, records of a stream of bytes."""

import json
import os
import time
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli import run
from deploy.commands import record_text
from deploy.commands.groups import member_names, parse_target
from deploy.commands.record_text import (
    argument_bytes,
    compile_format,
    json_line,
    parse_delimiter,
    parse_headers,
    parse_start,
    split_records,
)
from ingest.groups.describe import GroupMember
from ingest.groups.rewind import RewindTarget
from ingest.manual_producer import OutgoingRecord
from ingest.read.tail import TailRecord, TailStart

RECORD = TailRecord("rooms", 2, 17, 1_764_000_000_000, "create", b"k", b"v\xff", (("a", b"1"), ("b", None)))


def source(content: bytes, step: int) -> Callable[[int], bytes]:
    pieces = [content[at : at + step] for at in range(0, len(content), step)]
    return lambda _most: pieces.pop(0) if pieces else b""


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (r"%t[%p]@%o %T\n", b"rooms[2]@17 1764000000000\n"),
        (r"%k=%s", b"k=v\xff"),
        (r"%K %S %h", b"1 2 a=1,b="),
        (r"100%% \x41\t\\ \q", b"100% A\t\\ \\q"),
    ],
)
def test_a_format_prints_a_record(form: str, wanted: bytes) -> None:
    assert compile_format(form)(RECORD) == wanted


def test_a_record_without_key_and_value_has_their_lengths_as_minus_one() -> None:
    assert compile_format("%K %S")(TailRecord("t", 0, 0, -1, "", None, None)) == b"-1 -1"


def test_an_unknown_letter_names_those_there_are() -> None:
    with pytest.raises(typer.BadParameter, match=r"%x is unknown; use one of %s %S %k"):
        compile_format("%x")


@given(st.binary(), st.one_of(st.none(), st.binary()))
def test_a_line_of_json_loses_no_byte(value: bytes, key: bytes | None) -> None:
    found = json.loads(json_line(TailRecord("t", 0, 5, 1, "create", key, value)))
    for name, content in (("payload", value), ("key", key)):
        back = found[name] if name in found else b64decode(found[f"{name}_base64"])
        assert (back.encode() if isinstance(back, str) else back) == content


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("beginning", TailStart("beginning")),
        ("end", TailStart("end")),
        ("-3", TailStart("last", 3)),
        ("1234", TailStart("offset", 1234)),
        ("s@1764000000000", TailStart("time", 1_764_000_000_000)),
        ("s@2025-11-24T16:00:00Z", TailStart("time", 1_764_000_000_000)),
    ],
)
def test_places_to_begin(text: str, wanted: TailStart) -> None:
    assert parse_start(text) == wanted


def test_a_place_or_target_that_is_none_says_what_was_wanted() -> None:
    for text in ("", "--3", "s@yesterday", "+4", "1.5", "9" * 30):
        with pytest.raises(typer.BadParameter, match=r": use "):
            parse_start(text)
    assert parse_target("earliest") == RewindTarget("earliest") and parse_target("7") == RewindTarget("offset", 7)
    assert abs(parse_target("10m-ago").at - (time.time() - 600) * 1000) < 5000
    with pytest.raises(typer.BadParameter, match="in the future"):
        parse_target("2999-01-01T00:00:00Z")


@given(
    st.lists(st.binary(max_size=6).filter(lambda text: b"\n" not in text), max_size=8), st.integers(1, 7), st.booleans()
)
def test_records_do_not_depend_on_how_bytes_come(texts: list[bytes], step: int, ended: bool) -> None:
    content = b"\n".join(texts) + (b"\n" if ended else b"")
    assert [one.value for one in split_records(source(content, step))] == [text for text in texts if text]


@given(st.binary(max_size=60), st.integers(1, 7), st.sampled_from([b"ab", b"aab", b"\r\n", b"aa"]))
def test_a_delimiter_of_several_bytes_may_come_in_pieces(content: bytes, step: int, between: bytes) -> None:
    content = content.replace(b"\0", between)
    found = [one.value for one in split_records(source(content, step), delimited_by=between)]
    assert between.join(text for text in content.split(between) if text) == between.join(filter(None, found))


def test_keys_delimiters_and_nulls() -> None:
    content = b"a:1;b:;plain;:x"
    found = list(split_records(source(content, 3), delimited_by=b";", key_delimiter=b":", empty_is_null=True))
    assert found == [
        OutgoingRecord(b"1", b"a"),
        OutgoingRecord(None, b"b"),
        OutgoingRecord(b"plain", None),
        OutgoingRecord(b"x", None),
    ]
    assert list(split_records(source(b"one", 9), key=b"k")) == [OutgoingRecord(b"one", b"k")]
    assert parse_delimiter(r"\t") == b"\t" and parse_delimiter("%") == b"%"
    with pytest.raises(typer.BadParameter, match="at least one character"):
        parse_delimiter("")
    assert parse_headers(["a=1=2", "b"]) == [("a", b"1=2"), ("b", None)]
    with pytest.raises(typer.BadParameter, match="use NAME=VALUE"):
        parse_headers(["=1"])


def test_bytes_that_are_no_utf_8_come_through_from_the_command_line() -> None:
    typed_text = os.fsdecode(b"\xffk")
    assert argument_bytes(typed_text) == b"\xffk" and parse_delimiter(typed_text) == b"\xffk"
    assert compile_format(os.fsdecode(b"\xff%k"))(RECORD) == b"\xffk"
    assert parse_headers([os.fsdecode(b"a=\xff")]) == [("a", b"\xff")]
    with pytest.raises(typer.BadParameter, match="printable characters"):
        parse_headers([os.fsdecode(b"\xff=1")])


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "create", "t", "-p", str(10**12)), ("topics", "create", "t", "-r", str(10**6)),
        ("tail", "t", "-c", str(10**30)),
    ],
)  # fmt: skip
def test_a_number_beyond_what_kafka_takes_is_refused_by_name(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "-b", "127.0.0.1:1"]) == 2
    assert "less than or equal to" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-o", "--until"])
def test_a_time_in_the_future_is_refused(option: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for text in (later.isoformat(), str(int(later.timestamp() * 1000))):
        with pytest.raises(typer.BadParameter, match=f"{option} .* is in the future"):
            parse_start(f"s@{text}", option)


def test_an_empty_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "ls", "-b", " "]) == 78
    assert "-b is empty" in capsys.readouterr().err


def test_members_that_share_a_client_id_are_told_apart() -> None:
    members = [GroupMember(f"{name}-{at}aaaaaaaaaa", name, "h", ()) for name, at in (("a", 1), ("a", 2), ("b", 3))]
    assert list(member_names(members).values()) == ["a-1aaaaaaa", "a-2aaaaaaa", "b"]


def test_a_stream_without_delimiter_is_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_text, "MOST_RECORD_BYTES", 1000)
    with pytest.raises(typer.BadParameter, match="name the right one with -D"):
        list(split_records(lambda _most: b"x" * 100))
