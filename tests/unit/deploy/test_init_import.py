"""Settings of Telegraf and of Confluent's MQTT Proxy become ours; what has no counterpart is named, and no secret is shown."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.production.confluent_proxy import _filter_of, read_properties, read_proxy
from deploy.production.telegraf import read_telegraf
from deploy.settings import Settings, load_settings
from gateway.devtools.explain_route import explain_message
from gateway.profiles.policy import make_policy
from ingest.contract.errors import ConfigError
from ingest.topics.copies import TopicCopies

Captured = pytest.CaptureFixture[str]
SAMPLES = Path(__file__).parents[2] / "data" / "import"
TELEGRAF = SAMPLES / "telegraf.conf"
PROXY = SAMPLES / "kafka-mqtt.properties"


@pytest.fixture(autouse=True)
def _three_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.production.first_file.read_copies", lambda *_, **__: TopicCopies(3))


def imported(capsys: Captured, tmp_path: Path, *arguments: str) -> tuple[Settings, str]:
    """The written settings, and everything that was shown or written."""
    file = tmp_path / "out.toml"
    assert run(["init", *arguments, "--out", str(file)]) == 0
    shown = capsys.readouterr()
    text = file.read_text("utf-8")
    assert "canary" not in (text + shown.out + shown.err).replace("tidegate canary", ""), (
        "no secret is shown or written"
    )
    return load_settings(file, environ={}), text + shown.out


def decoded(settings: Settings, topic: str, payload: str) -> list[dict[str, Any]]:
    policy = make_policy(settings.gateway, settings.routes, live=False)
    found = explain_message(
        topic, payload.encode(), settings.routes, settings.gateway, policy=policy, received_us=1_800_000_000_000_000
    )
    assert found["outcome"] == "reading", found
    return list(found["readings"])


def test_telegrafs_broker_topics_and_kafka_become_settings(tmp_path: Path, capsys: Captured) -> None:
    settings, shown = imported(capsys, tmp_path, "from-telegraf", str(TELEGRAF))
    mqtt, kafka = settings.mqtt, settings.kafka
    assert (mqtt.host, mqtt.port, mqtt.tls, mqtt.username) == ("mqtt.example.org", 8883, True, "telegraf")
    assert (mqtt.ca_file, mqtt.keepalive_seconds, settings.gateway.window_messages) == ("/etc/telegraf/ca.pem", 60, 500)
    assert mqtt.client_id == "tidegate-gw-1", "Telegraf may run on meanwhile"
    assert mqtt.subscriptions == ("sensors/+/climate", "telegraf/+/cpu", "meters/+/+/power", "legacy/#")
    assert kafka.bootstrap_servers == "kafka-1.example.org:9093,kafka-2.example.org:9093"
    assert (kafka.security_protocol, kafka.sasl_mechanism, kafka.sasl_username) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
        "telegraf",
    )
    assert (kafka.ssl_ca_file, kafka.compression, kafka.max_record_bytes) == (
        "/etc/telegraf/kafka-ca.pem",
        "zstd",
        2_000_000,
    )
    assert "TIDEGATE_MQTT__PASSWORD" in shown
    assert "The preset telegraf decodes telegraf/+/cpu." in shown


def test_routes_of_telegraf_decode_its_messages(tmp_path: Path, capsys: Captured) -> None:
    settings, _ = imported(capsys, tmp_path, "from-telegraf", str(TELEGRAF))
    (climate,) = decoded(settings, "sensors/attic/climate", '{"temperature": 21.5, "at": 1799999999}')
    assert (climate["device"], climate["metric"], climate["value"]) == ("attic", "temperature", 21.5)
    assert climate["time"].startswith("2027-01-15T07:59:59")
    (power,) = decoded(settings, "meters/hall-2/m-17/power", "230.5")
    assert (power["device"], power["metric"], power["value"]) == ("m-17", "power", 230.5)
    (route,) = (one for one in settings.routes if one.filter.startswith("meters"))
    assert route.tags == {"plant": "north", "kind": "meters", "hall": "{hall}"}


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of a parsed file down to single values; tables in a list share theirs."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from keys_of(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from keys_of(inner, path)
    else:
        yield path


TAKEN_OF_TELEGRAF = {
    "servers", "topics", "username", "keepalive", "max_undelivered_messages", "tls_ca", "json_time_key", "brokers",
    "compression_codec", "max_message_bytes", "sasl_username", "sasl_mechanism", "plant", "line", "topic", "measurement", "tags",
    "data_format",
}  # fmt: skip


def test_each_other_key_of_telegraf_is_named_with_a_reason() -> None:
    found = read_telegraf(TELEGRAF)
    assert all(one.reason for one in found.left_out)
    names = [one.key.replace("[1]", "").replace("[2]", "").replace("[3]", "") for one in found.left_out]
    for path in keys_of(tomllib.loads(TELEGRAF.read_text("utf-8"))):
        parts = path.split(".")
        is_named = any(path == name or path.startswith(f"{name}.") or name.startswith(f"{path} (") for name in names)
        assert is_named or parts[-1] in TAKEN_OF_TELEGRAF, path
    assert "inputs.mqtt_consumer.servers (ssl://mqtt-2.example.org:8883)" in names
    assert "inputs.mqtt_consumer.data_format (graphite)" in names
    assert "inputs.mqtt_consumer[4]" in names, "another broker needs a gateway of its own"


def test_references_of_telegraf_are_named_and_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "telegraf.conf"
    file.write_text(
        '[[inputs.mqtt_consumer]]\nservers = ["tcp://${BROKER}:1883"]\ntopics = ["a/#"]\nusername = "$MQTT_USER"\n'
        'tls_cert = "c.pem"\ndata_format = "value"\n'
    )
    found = read_telegraf(file)
    assert "mqtt.host" not in found.values
    assert "mqtt.username" not in found.values
    reasons = {one.key: one.reason for one in found.left_out}
    assert "TIDEGATE_MQTT__USERNAME" in reasons["inputs.mqtt_consumer.username"]


def test_sasl_without_a_mechanism_is_plain_and_needs_tls(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "telegraf.conf"
    file.write_text(
        '[[inputs.mqtt_consumer]]\nservers = ["tcp://m:1883"]\ntopics = ["a/#"]\n[[outputs.kafka]]\nbrokers = ["k:9092"]\n'
        'sasl_username = "u"\nsasl_password = "canary-secret"\n'
    )
    out = tmp_path / "out.toml"
    command = ["init", "from-telegraf", str(file), "--out", str(out)]
    assert run(command) == 78
    assert "unencrypted" in capsys.readouterr().err
    assert not out.exists()
    assert run([*command, "--set", "kafka.security_protocol=SASL_SSL"]) == 0
    settings = load_settings(out, environ={})
    assert (settings.kafka.sasl_mechanism, settings.routes[0].mapping is None) == ("PLAIN", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agent]\n", "has no [[inputs.mqtt_consumer]]"),
        ("[[inputs.mqtt_consumer]]\nqos = $QOS\n", "Put references such as $VAR in quotes"),
    ],
)
def test_a_file_that_is_not_telegrafs_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "telegraf.conf"
    file.write_text(text)
    with pytest.raises(ConfigError) as fault:
        read_telegraf(file)
    assert words in str(fault.value)


def test_the_proxys_kafka_and_topics_become_settings(tmp_path: Path, capsys: Captured) -> None:
    arguments = (
        "from-confluent-mqtt-proxy",
        str(PROXY),
        "--set",
        "mqtt.host=broker.example.org",
        "--set",
        "mqtt.tls=true",
    )
    settings, shown = imported(capsys, tmp_path, *arguments)
    kafka = settings.kafka
    assert kafka.bootstrap_servers == "kafka-1.example.org:9093,kafka-2.example.org:9093"
    assert (kafka.security_protocol, kafka.sasl_mechanism, kafka.sasl_username) == (
        "SASL_SSL",
        "SCRAM-SHA-256",
        "proxy",
    )
    assert (kafka.ssl_ca_file, kafka.linger_ms, kafka.compression) == ("/etc/proxy/kafka-ca.pem", 5, "lz4")
    assert kafka.extra == {"reconnect.backoff.ms": "100"}
    assert settings.mqtt.subscriptions == ("plant/+/temperature", "plant/#")
    assert (settings.mqtt.host, settings.mqtt.port, settings.gateway.max_payload_bytes) == (
        "broker.example.org",
        8883,
        65_536,
    )
    assert "not taken  listeners: " in shown
    assert "# Not taken: listeners: " in shown, "in the file too"


def test_each_other_key_of_the_proxy_is_named_with_a_reason() -> None:
    found = read_proxy(PROXY)
    taken = {
        "mqtt.message.max.bytes", "topic.regex.list", "bootstrap.servers", "producer.security.protocol",
        "producer.sasl.mechanism", "producer.ssl.truststore.location", "producer.linger.ms",
        "producer.compression.type", "producer.reconnect.backoff.ms",
    }  # fmt: skip
    named = {one.key.removesuffix(" (password)") for one in found.left_out}
    assert named == {key for key, _ in read_properties(PROXY)} - taken
    assert all(one.reason for one in found.left_out)


def test_the_proxy_needs_a_broker_in_its_place(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out.toml"
    assert run(["init", "from-confluent-mqtt-proxy", str(PROXY), "--out", str(out)]) == 2
    assert "--set mqtt.host=" in capsys.readouterr().err
    assert not out.exists()
    command = ["init", "from-confluent-mqtt-proxy", str(PROXY), "--out", str(out), "--set", "mqtt.host=m", "--json"]
    assert run(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"key": "listeners.ssl.keystore.password", "reason": told["left_out"][1]["reason"]} in told["left_out"]
    assert "TIDEGATE_KAFKA__SASL_PASSWORD" in told["environment"]


def test_without_names_in_the_expressions_everything_is_subscribed_and_said(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_text(
        "topic.regex.list=temperature:.*temperature, brightness:.*brightness\nssl.truststore.location=/a/b.jks\n"
    )
    found = read_proxy(file)
    assert found.values["mqtt.subscriptions"] == ["#"]
    names = [one.key for one in found.left_out]
    assert names == ["topic.regex.list (temperature)", "topic.regex.list (brightness)", "ssl.truststore.location"]
    assert "keytool" in found.left_out[2].reason


@pytest.mark.parametrize(
    ("expression", "filter_"),
    [
        ("a/[^/]+/b", "a/+/b"),
        (r"^plant\.1/\w+/.*$", "plant.1/+/#"),
        (".*", "#"),
        ("a/b", "a/b"),
        ("a/.*/b", None),
        ("a/(x|y)", None),
        ("a/b.*", None),
        ("", None),
    ],
)
def test_an_expression_becomes_a_filter_only_if_it_is_one(expression: str, filter_: str | None) -> None:
    assert _filter_of(expression) == filter_


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_text("! note\n a\\ b : 1\nc=x\\\n   y\nd\\u0065 \\u00e9=\\t\ne\nf = \\\\\n", encoding="latin-1")
    assert list(read_properties(file)) == [("a b", "1"), ("c", "xy"), ("de", "é="), ("e", ""), ("f", "\\")]
