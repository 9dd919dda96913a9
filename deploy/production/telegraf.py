"""Import of Telegraf's settings: `inputs.mqtt_consumer` and `outputs.kafka` (https://github.com/influxdata/telegraf)."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.production.imported import Imported, take_servers
from deploy.production.telegraf_topics import routes_of
from ingest.contract.errors import ConfigError

__all__ = ["read_telegraf"]

_INPUT: Final = "inputs.mqtt_consumer"
_OUTPUT: Final = "outputs.kafka"
_TLS_SCHEMES: Final = frozenset({"ssl", "tls", "mqtts", "tcps"})
_PLAIN_SCHEMES: Final = frozenset({"tcp", "mqtt", ""})
_PORTS: Final = {True: 8883, False: 1883}
_DURATION: Final = re.compile(r"([0-9]+)(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
LEAST_RECORD_BYTES: Final = 64 * 1024

_MQTT_REASONS: Final = {
    "qos": "Tidegate always subscribes at QoS 1",
    "persistent_session": "Tidegate's session always outlives the connection",
    "client_id": "Tidegate uses its own client id, so that both programs can run while you compare them",
    "topic_tag": "the column mqtt_topic always has the topic",
    "insecure_skip_verify": "Tidegate always checks the broker's certificate",
    "connection_timeout": "Tidegate waits 5 s for a connection, then tries again",
    "max_reconnect_interval": "set mqtt.reconnect_max_seconds if its 30 s are too long",
    "ping_timeout": "Tidegate notices a dead connection after twice mqtt.keepalive_seconds",
    "client_trace": "Tidegate has no such trace",
    "name_override": "the metric's name comes from the message or the topic",
    "interval": "Tidegate takes each message when it comes",
}
_KAFKA_REASONS: Final = {
    "topic": "Tidegate writes readings to its own topic telemetry.readings",
    "topic_tag": "Tidegate writes readings to its own topic telemetry.readings",
    "topic_suffix": "Tidegate writes readings to its own topic telemetry.readings",
    "exclude_topic_tag": "Tidegate writes readings to its own topic telemetry.readings",
    "routing_tag": "the key of a record is always the device",
    "routing_key": "the key of a record is always the device",
    "required_acks": "Tidegate always waits for all copies in sync",
    "idempotent_writes": "Tidegate's producer is always idempotent",
    "max_retry": "Tidegate's producer never gives up, and the message stays unacknowledged meanwhile",
    "data_format": "Tidegate writes its own form: one JSON record per message and device",
    "version": "the client finds out the version of the brokers",
    "client_id": "Tidegate names its clients itself",
    "insecure_skip_verify": "Tidegate always checks the brokers' certificates",
}


def read_telegraf(file: Path) -> Imported:
    """Return what the file gives.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or reads no MQTT.
    """
    given = _load(file)
    found = Imported()
    inputs = _plugins(given, "inputs", "mqtt_consumer")
    if not inputs:
        message = f"{file} has no [[{_INPUT}]]. Name a file of Telegraf that reads MQTT."
        raise ConfigError(message)
    tags = {str(name): str(value) for name, value in given.get("global_tags", {}).items()}
    _brokers(found, inputs)
    for number, one in enumerate(inputs, 1):
        place = _INPUT if len(inputs) == 1 else f"{_INPUT}[{number}]"
        if number == 1 or one.get("servers") == inputs[0].get("servers"):
            _mqtt(found, place, one, tags)
        else:
            found.leave(place, "it reads another broker; write a settings file for a second gateway")
    for number, one in enumerate(outputs := _plugins(given, "outputs", "kafka"), 1):
        place = _OUTPUT if len(outputs) == 1 else f"{_OUTPUT}[{number}]"
        _kafka(found, place, one) if number == 1 else found.leave(place, "Tidegate writes to one Kafka cluster")
    _others(found, given)
    return found


def _load(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Name Telegraf's settings file."
    except ValueError as error:
        message = f"{file} is not TOML: {error}. Put references such as $VAR in quotes, and try again."
    raise ConfigError(message)


def _plugins(given: Mapping[str, Any], kind: str, name: str) -> list[dict[str, Any]]:
    found = given.get(kind, {}).get(name, [])
    return found if isinstance(found, list) else [found]


def _others(found: Imported, given: Mapping[str, Any]) -> None:
    for kind in ("inputs", "outputs", "processors", "aggregators"):
        for name in given.get(kind, {}):
            if f"{kind}.{name}" not in (_INPUT, _OUTPUT):
                found.leave(
                    f"{kind}.{name}", "Tidegate reads MQTT and writes Kafka and Delta tables; keep Telegraf for it"
                )
    if "agent" in given:
        found.leave("agent", "it is about Telegraf's own buffers, intervals and log")


def _brokers(found: Imported, inputs: Sequence[Mapping[str, Any]]) -> None:
    servers = [str(server) for server in inputs[0].get("servers", [])]
    if not servers:
        return
    parts = urlsplit(servers[0] if "://" in servers[0] else f"tcp://{servers[0]}")
    if parts.scheme not in _TLS_SCHEMES | _PLAIN_SCHEMES:
        found.leave(
            f"{_INPUT}.servers",
            f"Tidegate does not connect by {parts.scheme}://; name a host with --set mqtt.host=HOST",
        )
        return
    is_tls = parts.scheme in _TLS_SCHEMES
    try:
        port = parts.port or _PORTS[is_tls]
    except ValueError:
        port = _PORTS[is_tls]
    found.take_text(f"{_INPUT}.servers", parts.hostname or "", "mqtt.host")
    found.values |= {"mqtt.port": port, "mqtt.tls": is_tls}
    for other in servers[1:]:
        found.leave(
            f"{_INPUT}.servers ({other.rpartition('@')[2]})",
            "a gateway has one address; name one that reaches the cluster",
        )


def _mqtt(found: Imported, place: str, one: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    rest = dict(one)
    rest.pop("servers", None)
    routes_of(found, place, rest, tags)
    for key, value in rest.items():
        name = f"{place}.{key}"
        if key == "username":
            found.take_text(name, value, "mqtt.username")
        elif key == "password":
            found.leave_secret(name, "mqtt.password")
        elif key in ("tls_ca", "ssl_ca"):
            found.take_text(name, value, "mqtt.ca_file")
        elif key in ("tls_cert", "ssl_cert"):
            found.take_text(name, value, "mqtt.cert_file")
        elif key in ("tls_key", "ssl_key"):
            found.take_text(name, value, "mqtt.key_file")
        elif key == "tls_key_pwd":
            found.leave_secret(name, "mqtt.key_password")
        elif key == "protocol" and value in ("3.1.1", "5"):
            found.values["mqtt.protocol"] = value
        elif key == "keepalive" and (span := _DURATION.fullmatch(str(value))):
            found.values["mqtt.keepalive_seconds"] = min(3600, max(5, int(span[1]) * _SECONDS[span[2]]))
        elif key == "max_undelivered_messages" and isinstance(value, int) and value > 0:
            found.values["gateway.window_messages"] = min(value, 65_535)
        else:
            found.leave(name, _MQTT_REASONS.get(key, "Tidegate has no such setting"))
    if found.values.get("mqtt.ca_file"):
        found.values["mqtt.tls"] = True


def _kafka(found: Imported, place: str, one: Mapping[str, Any]) -> None:
    for key, value in one.items():
        name = f"{place}.{key}"
        if key == "brokers":
            found.take_text(
                name, ",".join(map(str, value)), "kafka.bootstrap_servers", lambda text: take_servers(text)[0]
            )
        elif key == "sasl_username":
            found.take_text(name, value, "kafka.sasl_username")
        elif key == "sasl_password":
            found.leave_secret(name, "kafka.sasl_password")
        elif key == "sasl_mechanism":
            found.take_text(name, value, "kafka.sasl_mechanism")
        elif key in ("tls_ca", "ssl_ca"):
            found.take_text(name, value, "kafka.ssl_ca_file")
        elif key in ("tls_cert", "ssl_cert"):
            found.take_text(name, value, "kafka.ssl_certificate_file")
        elif key in ("tls_key", "ssl_key"):
            found.take_text(name, value, "kafka.ssl_key_file")
        elif key == "compression_codec" and value in _CODECS:
            found.values["kafka.compression"] = _CODECS[value]
        elif key == "max_message_bytes" and isinstance(value, int):
            found.values["kafka.max_record_bytes"] = max(value, LEAST_RECORD_BYTES)
        elif key != "enable_tls":
            found.leave(name, _KAFKA_REASONS.get(key, "Tidegate has no such setting"))
    found.values["kafka.security_protocol"] = _protocol(one)
    if "sasl_username" in one:
        # As Telegraf does without a mechanism.
        found.values.setdefault("kafka.sasl_mechanism", "PLAIN")


def _protocol(one: Mapping[str, Any]) -> str:
    marks = ("tls_ca", "tls_cert", "ssl_ca", "ssl_cert", "insecure_skip_verify", "enable_tls")
    is_tls = one.get("enable_tls", any(one.get(mark) for mark in marks))
    return f"{'SASL_' if 'sasl_username' in one else ''}{'SSL' if is_tls else 'PLAINTEXT'}"
