"""The AsyncAPI document is one, refers to nothing missing, and its schemas take what the product really sends."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.asyncapi.document import asyncapi_document
from deploy.cli import run
from deploy.settings import Settings, load_settings
from gateway.decoders.shape import Reply
from gateway.delivery.sequence import SequenceRestart
from gateway.gateway_settings import ReceiptSettings
from gateway.replies.receipts import DeviceReceipts, stored_receipts
from gateway.replies.rejection import Rejection
from ingest.contract.dead_letter import DeadLetterRecord, Reject, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import topic_specs
from ingest.log import LogRecord
from monitoring.metrics.gateway import GatewayMetrics

DATA = Path(__file__).parents[2] / "data" / "asyncapi"
DOCUMENT = asyncapi_document(Settings())
RECORD = ReadingRecord(
    v=1, gateway="gw-1", epoch=1, number=2, received_us=3, topic="tidegate/v1/attic/readings", device="attic",
    readings=[Reading("temp", value=21.5, unit="°C"), Reading("state", text="on", flags=["retained"])],
    tags={"site": "east"},
)  # fmt: skip
LETTER = DeadLetterRecord(
    v=1, gateway="gw-1", epoch=1, number=2, received_us=3, topic="t", reason=Reason.BAD_JSON, payload_base64="ew==",
    payload_bytes=1,
)  # fmt: skip
COUNTED = OutcomeRecord(
    v=1, gateway="gw-1", epoch=1, first=1, upto=2, counts=[Count(minute=1, received=2, accepted=2)],
    sequences=[("attic", 4, 5)],
)  # fmt: skip


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else ())
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs(each)


def resolve(reference: str) -> Any:
    found: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def faults(name: str, value: Any) -> list[str]:
    """Why the value is not one of this schema."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test installs it")
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(value)]


def test_the_document_is_one_of_asyncapi() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test installs it")
    check = jsonschema.Draft7Validator(json.loads((DATA / "schema-3.0.0.json").read_text("utf-8")))
    assert [f"{list(error.absolute_path)}: {error.message[:200]}" for error in check.iter_errors(DOCUMENT)] == []
    assert list(check.iter_errors({**DOCUMENT, "servers": {"mqtt": {}}}))


def test_every_reference_has_its_target() -> None:
    found = set(refs(DOCUMENT))
    assert len(found) > 100
    for reference in found:
        resolve(reference)


def test_every_operation_has_a_channel_and_every_channel_an_operation() -> None:
    channels = {each["channel"]["$ref"].removeprefix("#/channels/") for each in DOCUMENT["operations"].values()}
    assert channels == set(DOCUMENT["channels"])
    received = {name for name, each in DOCUMENT["operations"].items() if each["action"] == "receive"}
    assert "receive-nativeReadings" in received
    assert "send-receipts" not in received


def test_parameters_of_an_address_are_described() -> None:
    for name, channel in DOCUMENT["channels"].items():
        assert set(re.findall(r"\{(\w+)\}", channel["address"])) == set(channel.get("parameters", {})), name
        assert not set("+#") & set(channel["address"]), name


def test_the_topics_are_those_of_the_contract() -> None:
    specs = topic_specs(partitions=12, max_record_bytes=2**20, retention_bytes=2**30, retention_ms=3_600_000)
    settings = load_settings(
        environ={
            "TIDEGATE_KAFKA__PARTITIONS": "12",
            "TIDEGATE_KAFKA__RETENTION_BYTES": str(2**30),
            "TIDEGATE_KAFKA__RETENTION_HOURS": "1",
        }
    )
    channels = asyncapi_document(settings)["channels"]
    for spec in specs:
        binding = channels[spec.name]["bindings"]["kafka"]
        assert binding["partitions"] == spec.partitions
        found = {
            name: value[0] if isinstance(value, list) else str(value)
            for name, value in binding["topicConfiguration"].items()
        }
        assert found == spec.config


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("ReadingRecord", encode_record(RECORD)),
        ("DeadLetterRecord", encode_dead_letter(LETTER)),
        ("OutcomeRecord", encode_outcome(COUNTED)),
    ],
)
def test_schemas_take_encoded_records(name: str, record: bytes) -> None:
    assert faults(name, json.loads(record)) == []
    assert faults(name, {**json.loads(record), "epoch": "one"})
    assert faults(name, {})


def test_a_tuple_has_its_types() -> None:
    record = json.loads(encode_outcome(COUNTED))
    assert faults("OutcomeRecord", {**record, "sequences": [["attic", "4", 5]]})
    assert faults("OutcomeRecord", {**record, "sequences": [["attic", 4, 5, 6]]})


@pytest.mark.parametrize(
    ("message", "good"),
    [
        ({"values": {"temp": 21.5, "on": True, "state": "idle"}}, True),
        ({"ts": 1_795_830_000_123, "boot": 1, "seq": 2, "values": {"temp": {"value": 21.5, "unit": "°C"}}}, True),
        ([{"ts": "2026-11-28T06:01:15Z", "values": {"temp": 1}}], True),
        ({"temp": 21.5}, False),
        ({"values": {"temp": [1]}}, False),
        ({"values": {"temp": {"unit": "°C"}}}, False),
        ({"boot": -1, "values": {}}, False),
    ],
)
def test_the_native_schema_is_what_the_decoder_takes(message: Any, good: bool) -> None:
    assert (faults("NativeMessage", message) == []) is good


def receipts(registry: CollectorRegistry) -> Iterator[tuple[str, Reply]]:
    metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=())
    writer = DeviceReceipts(ReceiptSettings(), metrics, None)
    reject = Reject(Reason.WRONG_TYPE, "$.values.temp", '"warm"', "a number", profile="room@2")
    refused = Rejection("attic", reject, topic="tidegate/v1/attic/readings")
    for reply in writer.of([refused], 1_795_830_000_123_000):
        yield "RejectionReceipt", reply
    for reply in writer.restarted([SequenceRestart("attic", 4, 1, 9)], 1_795_830_000_123_000):
        yield "RestartWarning", reply
    stored = LogRecord(partition=0, offset=7, timestamp_ms=1, key=b"attic", value=encode_record(RECORD))
    for reply in stored_receipts([stored], "gw-1"):
        yield "StoredReceipt", reply


def test_schemas_take_real_receipts_and_name_all_of_their_fields(registry: CollectorRegistry) -> None:
    found = dict(receipts(registry))
    assert set(found) == {"RejectionReceipt", "RestartWarning", "StoredReceipt"}
    for name, reply in found.items():
        receipt = json.loads(reply.payload)
        assert faults(name, receipt) == []
        assert set(receipt) <= set(DOCUMENT["components"]["schemas"][name]["properties"])


def test_addresses_and_logins_are_those_of_the_settings_and_no_secret_is() -> None:
    environ = {
        "TIDEGATE_MQTT__HOST": "mqtt.example.org",
        "TIDEGATE_MQTT__TLS": "true",
        "TIDEGATE_MQTT__USERNAME": "tidegate",
        "TIDEGATE_MQTT__PASSWORD": "hush-mqtt",
        "TIDEGATE_KAFKA__BOOTSTRAP_SERVERS": "kafka-1:9093, kafka-2:9093",
        "TIDEGATE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "TIDEGATE_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
        "TIDEGATE_KAFKA__SASL_USERNAME": "tidegate",
        "TIDEGATE_KAFKA__SASL_PASSWORD": "hush-kafka",
    }
    found = asyncapi_document(load_settings(environ=environ))
    mqtt, kafka = found["servers"]["mqtt"], found["servers"]["kafka"]
    assert (mqtt["host"], mqtt["protocol"]) == ("mqtt.example.org:1883", "secure-mqtt")
    assert (kafka["host"], kafka["protocol"]) == ("kafka-1:9093", "kafka-secure")
    assert found["components"]["securitySchemes"] == {
        "mqtt": {"type": "userPassword"},
        "kafka": {"type": "scramSha512"},
    }
    assert "hush" not in json.dumps(found)


def test_routes_of_the_settings_come_first_and_presets_can_be_off(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(
        "[gateway]\npresets = ['tasmota']\n[[routes]]\nfilter = 'plant/{line}/+/#'\ndecoder = 'json'\n"
        "[[routes]]\nfilter = 'plant/log'\nignore = 'status'\n",
        encoding="utf-8",
    )
    assert run(["export", "asyncapi", str(tmp_path / "out"), "--config", str(config)]) == 0
    found = yaml.safe_load((tmp_path / "out/asyncapi.yaml").read_text("utf-8"))
    channels = found["channels"]
    assert channels["route-1"]["address"] == "plant/{line}/{level3}/{rest}"
    assert "route-2" not in channels
    assert found["components"]["messages"]["route-message"]["contentType"] == "application/json"
    assert channels["tasmota-1"]["address"] == "tele/{device}/SENSOR"
    assert not [name for name in channels if name.startswith("zigbee2mqtt")]
