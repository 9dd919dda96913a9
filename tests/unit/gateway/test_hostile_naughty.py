"""Each of the big list of naughty strings as device, metric, text, unit and key: kept to the letter, or refused."""

import io
import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from prometheus_client import CollectorRegistry

from deploy.process_signals import configure_logging
from gateway.decoders.mapping.settings import MappingSettings
from gateway.gateway_settings import GatewaySettings, ReceiptSettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.replies.receipts import make_receipts, receipt_topic
from gateway.routes import compile_routes
from ingest.contract.reading import Reading, ReadingRecord, decode_record
from ingest.contract.reasons import IgnoredReason, Reason
from ingest.contract.topics import READINGS
from lakehouse.query import run_sql
from monitoring.metrics.gateway import GatewayMetrics
from tests.fuzz.checks import faults_of
from tests.support.naughty import NAUGHTY

pytestmark = pytest.mark.promise("P4")

OWN = [
    "'; DROP TABLE readings; --",
    "\0",
    "a\0",
    '\r\n{"level":"ERROR"}',
    "\x1b]0;title\x07",
    "\x85",
    "\u2028",
    "\ufeff",
    "\ufffe",
    "e\u0301",
    "\u00e9",
    "ﬃ",
    "İ",
    "d" * 256,
    "d" * 257,
    "🌊" * 64,
    "🌊" * 65,
    "m" * 512,
    "m" * 513,
    "a b ",
    "%2f",
    "+",
    "#",
    "$share",
]
"""Ours, for what the list lacks."""
STRINGS = [*NAUGHTY, *OWN]
NO_VALUE = {"", "null", "none", "unavailable", "unknown", "undefined", "n/a"}
"""Words by which devices say that they have no value."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
NOT_FINITE = {"nan", "inf", "infinity"}
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
NATIVE = "tidegate/v1/dev-1/readings"
ROUTES = compile_routes((
    RouteSettings(filter="site/{device}/{metric}", device="{device}"),
    RouteSettings(filter="j/#", decoder="json"),
    RouteSettings(filter="p/#", decoder="plain"),
    RouteSettings(filter="m/#", mapping=MappingSettings(device=["{$.dev}"], skip=["dev"])),
    RouteSettings(filter="senml/#", decoder="senml"),
))  # fmt: skip
CHUNK = 20
CHUNKS = {f"{first}-{first + CHUNK - 1}": STRINGS[first : first + CHUNK] for first in range(0, len(STRINGS), CHUNK)}


def each_string(test: Callable[[str], None]) -> Any:
    """Runs the test for each string, some in one go: a test of its own would cost each more than it asks."""

    def run(texts: list[str]) -> None:
        for text in texts:
            test(text)

    return pytest.mark.parametrize("texts", CHUNKS.values(), ids=CHUNKS)(run)


def test_the_list_is_whole() -> None:
    assert len(STRINGS) == 515 + len(OWN)


def decide(topic: str, document: object, **envelope: Any) -> Outcome:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    message = Message(1, 1, NOW_US, topic.encode(), payload, **envelope)
    outcome = MessageProcessor(ROUTES, LIMITS).decide(message)
    assert faults_of(message, outcome, LIMITS) == []
    return outcome


def record_of(outcome: Outcome) -> ReadingRecord:
    [record] = [decode_record(record.value) for record in outcome.records if record.topic == READINGS]
    return record


SPELLED_WITH_COMMA = re.compile(r"[+-]?[\d.' ]*,\d+")
UNCLEAR = {"0..0", "--1"}


def number_of(text: str) -> float | None:
    """What Python reads, without blanks and signs between groups; none where it reads nothing."""
    try:
        return float(re.sub("[,' ]", "", text.strip(" ;,")))
    except ValueError:
        return None


def may_be_a_name(text: str, max_bytes: int) -> bool:
    """Written anew, not taken from the gateway: anything printable of a bounded length."""
    return 0 < len(text.encode()) <= max_bytes and all(unicodedata.category(char) != "Cc" for char in text)


@each_string
def test_as_device(text: str) -> None:
    outcome = decide(f"tidegate/v1/{text}/readings", {"values": {"m": 1}})
    if "/" in text:
        assert outcome.rejected == "no_route"
    elif may_be_a_name(text, 256):
        assert record_of(outcome).device == text
        assert outcome.records[0].key == text.encode()
    else:
        assert outcome.rejected == "bad_device_id"


@each_string
def test_as_named_segment_and_metric_of_a_topic(text: str) -> None:
    outcome = decide(f"site/{text}/m", b"1")
    if may_be_a_name(text, 256) and "/" not in text:
        assert (record_of(outcome).device, record_of(outcome).readings[0].metric) == (text, "m")
    else:
        assert outcome.rejected in ("bad_device_id", "no_route")
    outcome = decide(f"site/dev/{text}", b"1")
    if may_be_a_name(text, 512) and "/" not in text:
        assert [reading.metric for reading in record_of(outcome).readings] == [text]
    else:
        assert outcome.rejected in ("out_of_range", "no_route")


@each_string
def test_as_device_in_a_payload(text: str) -> None:
    outcome = decide("m/x", {"dev": text, "t": 1})
    if may_be_a_name(text, 256):
        assert record_of(outcome).device == text
        assert outcome.records[0].key == text.encode()
    else:
        assert outcome.rejected == ("bad_device_id" if text else "missing_field")
        assert b'"path":"$"' in outcome.records[0].value


@each_string
def test_as_name_in_senml(text: str) -> None:
    """Names of RFC 8428 have few characters; what has others is refused, and what is kept holds the name's own."""
    outcome = decide("senml/x", [{"bn": f"{text}/", "n": "t", "v": 1}])
    if outcome.accepted:
        record = record_of(outcome)
        assert text.strip("/:") in f"{record.device}/{record.readings[0].metric}"
    else:
        assert outcome.rejected in ("out_of_range", "bad_device_id", "missing_field")


@each_string
def test_as_metric(text: str) -> None:
    for outcome in (decide(NATIVE, {"values": {text: 1, "good": 2}}), decide("j/dev/x", {text: 1, "good": 2})):
        metrics = [reading.metric for reading in record_of(outcome).readings]
        if may_be_a_name(text, 512):
            assert metrics == [text, "good"]
        else:
            assert (metrics, outcome.parts) == (["good"], ["out_of_range"])


@each_string
def test_as_text_unit_and_message_id(text: str) -> None:
    values = {"m": text, "q": {"value": 1, "unit": text}}
    record = record_of(decide(NATIVE, {"values": values}, message_id=text))
    assert [(reading.text, reading.unit) for reading in record.readings] == [(text, None), (None, text)]
    assert record.message_id == (f"mp:{text}" if 0 < len(text) <= 256 else record.message_id)
    generic = decide("j/dev/x", {"m": text})
    if generic.accepted:
        [reading] = record_of(generic).readings
        assert reading == Reading("m", number_of(text), None, flags=["numeric_text"]) or reading == Reading(
            "m", None, text
        )
    elif generic.rejected:
        assert text.lstrip("+-").lower() in NOT_FINITE or SPELLED_WITH_COMMA.fullmatch(text) or text in UNCLEAR
        assert generic.rejected == "bad_number"
    else:
        assert text.strip().lower() in NO_VALUE or not text.strip("-?")
        assert generic.ignored == "no_value"


@each_string
def test_as_plain_payload(text: str) -> None:
    """A bare text is itself, or the number that it says; it is never another text."""
    outcome = decide("p/dev/m", text.encode())
    if not outcome.accepted:
        assert outcome.rejected in ("bad_number", "bad_encoding", "undecoded") or outcome.ignored
        return
    [reading] = record_of(outcome).readings
    if reading.value is None:
        assert reading.text == text.strip(" \t\r\n")
    elif reading.text in ("true", "false"):
        assert text.strip().lower() == reading.text
    else:
        assert number_of(text.strip()[: len(text.strip()) - len(reading.unit or "")]) == reading.value


def test_receipts_go_to_a_topic_of_the_devices_own() -> None:
    """What refuses a device's message is told under its id: a topic that MQTT allows, and nobody else's."""
    names = [text for text in STRINGS if may_be_a_name(text, 256)]
    topics = {receipt_topic(text) for text in names}
    assert len(topics) == len(set(names))
    for topic in topics:
        assert topic.startswith("tidegate/receipts/")
        assert topic.count("/") == 2
        assert not set("+#\0") & set(topic)


def test_a_receipt_is_json_whatever_the_device_said() -> None:
    metrics = GatewayMetrics(CollectorRegistry(), reasons=Reason, ignored_reasons=IgnoredReason)
    generous = ReceiptSettings(per_device_burst=1000, per_device_per_minute=6000, per_second=10_000)
    for text in filter(str.strip, STRINGS):
        receipts = make_receipts(generous, (), LIMITS, metrics)
        for outcome in (decide(NATIVE, {"ts": text, "values": {"m": 1}}), decide(NATIVE, {"values": {text: None}})):
            [reply] = receipts.of(outcome.refusals, NOW_US)
            assert json.loads(reply.payload)["reason"] == outcome.rejected
            assert not CONTROL.search(reply.payload.decode("utf-8"))


def rows() -> Iterator[dict[str, str]]:
    """Every string that a device, a metric and a text may be, through the Kafka record's codec."""
    for text in STRINGS:
        if may_be_a_name(text, 256) and "/" not in text:
            record = record_of(decide(f"tidegate/v1/{text}/readings", {"values": {text: text}}))
        else:
            record = record_of(decide(NATIVE, {"values": {"m": text}}))
        for reading in record.readings:
            yield {"device": record.device, "metric": reading.metric, "text": reading.text or ""}


def test_through_a_delta_table_and_sql_nothing_changes(tmp_path: Path) -> None:
    sent = list(rows())
    write_deltalake(str(tmp_path / "readings"), pa.Table.from_pylist(sent))
    assert run_sql(str(tmp_path), "SELECT device, metric, text FROM readings").to_pylist() == sent
    distinct = run_sql(str(tmp_path), "SELECT count(DISTINCT device) AS devices FROM readings").to_pylist()
    assert distinct == [{"devices": len({row["device"] for row in sent})}]
    for row in sent[:40]:
        quoted = row["text"].replace("'", "''")
        if "\0" not in quoted:
            found = run_sql(str(tmp_path), f"SELECT text FROM readings WHERE text = '{quoted}'").to_pylist()
            assert {"text": row["text"]} in found


BEGINNING = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (ERROR|WARNING|INFO) +tidegate\.| {4}")


@contextmanager
def logging_of_our_processes() -> Iterator[io.StringIO]:
    """What they would write to stderr; the test runner's own handlers come back afterwards."""
    root, ours, written = logging.getLogger(), logging.getLogger("tidegate"), io.StringIO()
    before = root.handlers[:], root.level, ours.level
    try:
        with redirect_stderr(written):
            configure_logging(logging.DEBUG)
        yield written
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


def test_no_log_line_holds_what_would_forge_or_break_one() -> None:
    """B68: whatever a device is called and says, even where a decoder fails with its words."""
    hostile = '\r\n2025-11-28T12:00:00.000Z ERROR   tidegate.gateway: all lost\n{"level":1}\x1b[31m\x9b\u2028\x07\udc80'
    gate = MessageProcessor(ROUTES, LIMITS)

    def broken(*_: object) -> None:
        raise RuntimeError(hostile)

    with logging_of_our_processes() as stderr:
        for topic in ("tidegate/v1/{}/readings", "site/{}/m", "site/d/{}", "nowhere/{}", "p/d/m", NATIVE):
            for said in (hostile, json.dumps({"values": {hostile: hostile}}), json.dumps({hostile: [hostile]})):
                at, payload = (text.encode("utf-8", "replace") for text in (topic.format(hostile), said))
                gate.decide(Message(1, 1, NOW_US, at, payload))
        gate._decoders = dict.fromkeys(gate._decoders, broken)
        assert gate.decide(Message(1, 1, NOW_US, NATIVE.encode(), b"x")).rejected == "internal_error"
    written = stderr.getvalue()
    assert "A decoder failed on message 1" in written
    assert not CONTROL.search(written)
    for line in written.splitlines():
        assert BEGINNING.match(line), line
    assert len([line for line in written.splitlines() if not line.startswith("    ")]) == 1
