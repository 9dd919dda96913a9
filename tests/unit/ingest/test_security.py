"""Settings to client options: golden dictionaries, contradictions refused, nothing dangerous passed through."""

from typing import Any

import pytest
from pydantic import SecretStr

from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf, consumer_conf, jvm_conf, producer_conf

SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "gw",
    "sasl_password": SecretStr("canary-secret"),
    "ssl_ca_file": "/etc/tidegate/ca.pem",
}
OAUTH: dict[str, Any] = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_username": "gw",
    "sasl_password": SecretStr("canary-secret"),
    "oauth_token_url": "https://login.example.org/token",
}
TLS: dict[str, Any] = {
    "security_protocol": "SSL",
    "ssl_certificate_file": "/etc/tidegate/gw.pem",
    "ssl_key_file": "/etc/tidegate/gw.key",
}
PLAIN_CLIENT = {
    "bootstrap.servers": "kafka:9092",
    "client.id": "tester",
    "security.protocol": "PLAINTEXT",
    "allow.auto.create.topics": False,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 2000,
}


def settings(**changes: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers="kafka:9092", **changes)


def test_a_plain_client() -> None:
    assert client_conf(settings(), client_id="tester") == PLAIN_CLIENT


def test_a_client_with_sasl_and_tls() -> None:
    assert client_conf(settings(**SASL), client_id="tester") == PLAIN_CLIENT | {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/etc/tidegate/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "gw",
        "sasl.password": "canary-secret",
    }


def test_the_producer() -> None:
    conf = producer_conf(settings(), client_id="tester", largest_record_bytes=2_000_000, batch_bytes=1000)
    assert conf == PLAIN_CLIENT | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "message.timeout.ms": 0,
        "linger.ms": 0,
        "compression.type": "lz4",
        "message.max.bytes": 2_000_256,
        "batch.size": 1000,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 65_536,
    }


def test_a_consumer() -> None:
    assert consumer_conf(settings(), client_id="tester", group="g") == PLAIN_CLIENT | {
        "group.id": "g",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": False,
        "fetch.message.max.bytes": 4_194_304,
        "queued.max.messages.kbytes": 32_768,
    }


def test_the_jvm_gets_java_names_and_a_quoted_secret() -> None:
    sasl = SASL | {"sasl_mechanism": "PLAIN", "sasl_password": SecretStr('a"b\\c'), "ssl_ca_file": None}
    assert jvm_conf(settings(**sasl)) == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="gw" '
        'password="a\\"b\\\\c";',
    }
    assert jvm_conf(settings()) == {"bootstrap.servers": "kafka:9092", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (SASL | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "ssl_ca_file": None}, "PLAIN over"),
        (SASL | {"sasl_password": None}, "sasl_password"),
        (SASL | {"sasl_mechanism": None}, "sasl_mechanism"),
        (SASL | {"security_protocol": "SSL"}, "anonymous"),
        (SASL | {"security_protocol": "PLAINTEXT"}, "anonymous"),
        (SASL | {"security_protocol": "SASL_PLAINTEXT"}, "ssl_ca_file"),
        ({"security_protocol": "SASL_PLAINTEXT", **OAUTH, "oauth_token_url": None}, "OAUTHBEARER over SASL_PLAINTEXT"),
        (SASL | {"oauth_token_url": "https://login/token"}, "kafka.oauth_token_url would be ignored"),
        (SASL | OAUTH | {"oauth_token_url": None}, "needs the token endpoint"),
        (TLS | {"ssl_key_file": None}, "ssl_certificate_file is set without kafka.ssl_key_file"),
        (TLS | {"ssl_certificate_file": None}, "ssl_key_file is set without kafka.ssl_certificate_file"),
        (TLS | {"security_protocol": "PLAINTEXT"}, "ssl_certificate_file and kafka.ssl_key_file are set, but"),
        (TLS | {"sasl_username": "gw"}, "only the client certificate would log in"),
        ({"security_protocol": "SSL", "ssl_key_password": SecretStr("canary-secret")}, "without kafka.ssl_key_file"),
    ],
)
def test_contradicting_security_is_refused(changes: dict[str, Any], named: str) -> None:
    for build in (lambda s: client_conf(s, client_id="tester"), jvm_conf):
        with pytest.raises(ConfigError, match=named) as refusal:
            build(settings(**changes))
        assert "canary-secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "option",
    [
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.config",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "enable.idempotence",
        "acks",
        "partitioner",
        "message.timeout.ms",
        "batch.size",
        "allow.auto.create.topics",
        "bootstrap.servers",
        "no.such.option",
    ],
)
def test_an_extra_option_that_is_not_harmless_is_refused_by_name(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        client_conf(settings(extra={option: "file:///etc/passwd"}), client_id="tester")


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [
        ("queue.buffering.max.kbytes", "256", "2049"),
        ("queue.buffering.max.kbytes", "2048", "2049"),
        ("queue.buffering.max.kbytes", "much", "2049"),
        ("queue.buffering.max.kbytes", "9" * 5000, "2049"),
        ("queue.buffering.max.messages", "0", "1"),
        ("queue.buffering.max.messages", "-5", "1"),
    ],
)
def test_a_queue_that_would_refuse_a_record_for_ever_is_a_sentence(option: str, value: str, least: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is .*; wanted a whole number from {least} to"):
        client_conf(settings(extra={option: value}), client_id="tester")


def test_the_queue_takes_the_largest_record_of_any_topic() -> None:
    small = settings(extra={"queue.buffering.max.kbytes": "2049"})
    for given, largest, kbytes in (
        (small, 2 * 1024**2, 2049),
        (small, 5 * 1024**2, 5121),
        (settings(), 100 * 1024**2, 102_401),
    ):
        conf = producer_conf(given, client_id="tester", largest_record_bytes=largest, batch_bytes=1000)
        assert conf["queue.buffering.max.kbytes"] == kbytes
        assert conf["message.max.bytes"] <= kbytes * 1024


def test_extra_options_reach_the_clients_that_know_them() -> None:
    tuned = settings(extra={"socket.timeout.ms": "5000", "batch.num.messages": "7"})
    producer = producer_conf(tuned, client_id="tester", largest_record_bytes=1000, batch_bytes=1000)
    assert producer["socket.timeout.ms"] == "5000"
    assert producer["batch.num.messages"] == "7"
    consumer = consumer_conf(tuned, client_id="tester", group="g")
    assert consumer["socket.timeout.ms"] == "5000"
    assert "batch.num.messages" not in consumer


def test_a_secret_never_shows_in_the_settings() -> None:
    assert "canary-secret" not in repr(settings(**SASL))
    assert "canary-secret" not in settings(**SASL).model_dump_json()
