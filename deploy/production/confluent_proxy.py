"""Import of a properties file of Confluent's MQTT Proxy (https://docs.confluent.io/platform/current/kafka-mqtt/).

The proxy is what devices connect to; it has no broker. So Kafka's side maps, the topics map as far as their expressions are
filters, and the listeners belong to the broker that replaces the proxy.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from deploy.production.imported import Imported, take_servers
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

__all__ = ["read_properties", "read_proxy"]

_LISTENER: Final = "it is about the address, TLS and login of devices, which the MQTT broker now has"
_REASONS: Final = {
    "listeners": _LISTENER,
    "network.": "the MQTT broker takes the connections of devices",
    "stream.threads.num": "a gateway has one thread; run more gateways, each with filters of its own",
    "confluent.": "it is about Confluent's licence and its topics",
    "producer.acks": "Tidegate always waits for all copies in sync",
    "producer.enable.idempotence": "Tidegate's producer is always idempotent",
    "producer.retries": "Tidegate's producer never gives up, and the message stays unacknowledged meanwhile",
    "producer.client.id": "Tidegate names its clients itself",
    "producer.key.serializer": "Tidegate writes its own form: the device as key, the readings as JSON",
    "producer.value.serializer": "Tidegate writes its own form: the device as key, the readings as JSON",
    "producer.partitioner.class": "Tidegate always uses the partitioner of Kafka's Java clients, by device",
    "producer.ssl.endpoint.identification.algorithm": "Tidegate always checks the host name of a certificate",
    "producer.ssl.truststore.password": "a PEM file with certificates needs no password",
}
"""Beginning of a key to why it has no counterpart; the longest one counts."""
_SIMPLE: Final = {
    "mqtt.message.max.bytes": ("gateway.max_payload_bytes", int),
    "producer.linger.ms": ("kafka.linger_ms", int),
    "producer.compression.type": ("kafka.compression", str),
    "producer.security.protocol": ("kafka.security_protocol", str),
}
_JAAS: Final = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t])*)[ \t]*[=:]?[ \t]*(.*)", re.DOTALL)
_ANY_LEVEL: Final = re.compile(r"\[\^/\][+*]|\\w[+*]|\[[A-Za-z0-9_\\-]+\][+*]")
_PLAIN_LEVEL: Final = re.compile(r"(?:[\w $,:;=@~-]|\\[.$+*?()\[\]{}|^-])*")


def read_proxy(file: Path) -> Imported:
    """Return what the file gives.

    Raises:
        ConfigError: the file cannot be read.
    """
    found = Imported()
    given = dict(read_properties(file))
    # Kafka's options may also be given without the prefix.
    for key, value in given.items():
        _take(found, key, _prefixed(key), value)
    if "kafka.security_protocol" not in found.values and found.values.get("kafka.sasl_username"):
        found.notes.append("The file names no security protocol, so it is SASL_SSL here.")
    return found


def _prefixed(key: str) -> str:
    return f"producer.{key}" if key.startswith(("security.", "sasl.", "ssl.")) else key


def _take(found: Imported, key: str, name: str, value: str) -> None:
    if name in ("bootstrap.servers", "producer.bootstrap.servers"):
        servers, protocol = take_servers(value)
        found.values["kafka.bootstrap_servers"] = servers
        if protocol is not None:
            found.values.setdefault("kafka.security_protocol", protocol)
    elif name == "topic.regex.list":
        _topics(found, key, value)
    elif name in _SIMPLE:
        setting, convert = _SIMPLE[name]
        _simple(found, key, value, setting, convert)
    elif name == "producer.sasl.mechanism":
        _mechanism(found, key, value)
    elif name == "producer.sasl.jaas.config":
        _login(found, key, value)
    elif name.startswith(("producer.ssl.truststore.", "producer.ssl.keystore.", "producer.ssl.key.")):
        _store(found, key, name, value)
    elif not _tuning(found, name.removeprefix("producer."), value):
        found.leave(key, _reason(name))


def _simple(found: Imported, key: str, value: str, setting: str, convert: Any) -> None:
    try:
        found.values[setting] = convert(value.strip())
    except ValueError:
        found.leave(key, "its value is not a whole number")


def _reason(name: str) -> str:
    fits = [beginning for beginning in _REASONS if name.startswith(beginning)]
    return _REASONS[max(fits, key=len)] if fits else "Tidegate has no such setting"


def _mechanism(found: Imported, key: str, value: str) -> None:
    annotation = KafkaSettings.model_fields["sasl_mechanism"].annotation
    known = [name for part in get_args(annotation) for name in get_args(part)]
    if value.strip() in known:
        found.values["kafka.sasl_mechanism"] = value.strip()
    else:
        found.leave(key, f"Tidegate logs in by {', '.join(known)}")


def _login(found: Imported, key: str, value: str) -> None:
    parts = {match[1]: match[2] if match[2] is not None else match[3] for match in _JAAS.finditer(value)}
    if "username" in parts:
        found.values["kafka.sasl_username"] = re.sub(r"\\(.)", r"\1", parts["username"])
    found.leave_secret(key if "username" not in parts else f"{key} (password)", "kafka.sasl_password")


def _store(found: Imported, key: str, name: str, value: str) -> None:
    """Take a PEM file. Java's own key stores cannot be read without Java and their passwords."""
    is_pem = value.lower().endswith((".pem", ".crt", ".cer"))
    if name == "producer.ssl.truststore.location" and is_pem:
        found.values["kafka.ssl_ca_file"] = value
    elif name == "producer.ssl.truststore.location":
        fix = "export the authority's certificate as PEM (keytool -exportcert -rfc) and set kafka.ssl_ca_file"
        found.leave(key, f"a key store of Java; {fix}")
    elif name == "producer.ssl.keystore.location" and is_pem:
        # A PEM key store of Kafka holds the key and its certificates in one file.
        found.values |= {"kafka.ssl_certificate_file": value, "kafka.ssl_key_file": value}
    elif name == "producer.ssl.keystore.location":
        found.leave(key, "a key store of Java; export key and certificate as PEM files")
    elif name == "producer.ssl.key.password":
        found.leave_secret(key, "kafka.ssl_key_password")
    else:
        found.leave(key, _REASONS.get(name, "Tidegate reads PEM files, which have no such option"))


def _tuning(found: Imported, name: str, value: str) -> bool:
    """Take an option that librdkafka has under the same name and that `kafka.extra` allows."""
    try:
        client_conf(KafkaSettings(extra={name: value}), client_id="import")
    except ConfigError:
        return False
    found.values.setdefault("kafka.extra", {})[name] = value
    return True


def _topics(found: Imported, key: str, value: str) -> None:
    """Take the expressions over MQTT topics as filters where they are the same, else subscribe to everything."""
    filters: list[str] = []
    for pair in value.split(","):
        topic, colon, expression = pair.strip().partition(":")
        if not topic:
            continue
        text = _filter_of(expression.strip()) if colon else None
        if text is None:
            found.leave(
                f"{key} ({topic})", "its expression is not a topic filter; name the filters in mqtt.subscriptions"
            )
            text = "#"
        filters.append(text)
    found.notes.append(
        "Readings of all topics go to the Kafka topic telemetry.readings; the column mqtt_topic has the MQTT topic."
    )
    if filters:
        found.values["mqtt.subscriptions"] = ["#"] if "#" in filters else list(dict.fromkeys(filters))


def _filter_of(expression: str) -> str | None:
    """Return the MQTT filter that matches the same topics as a whole match of this expression; None if there is none."""
    levels: list[str] = []
    # A slash in a class of characters, such as [^/]+, does not end a level.
    parts = re.split(r"/(?![^\[]*\])", expression.removeprefix("^").removesuffix("$"))
    for number, part in enumerate(parts, 1):
        if part in (".*", ".+") and number == len(parts):
            return "/".join([*levels, "#"])
        if _ANY_LEVEL.fullmatch(part):
            levels.append("+")
        elif part and _PLAIN_LEVEL.fullmatch(part):
            levels.append(re.sub(r"\\(.)", r"\1", part))
        else:
            return None
    return "/".join(levels)


def read_properties(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a Java properties file, in order; the last of a repeated key counts.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        text = file.read_text("latin-1")
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Name the properties file of the proxy."
        raise ConfigError(message) from error
    for line in _whole_lines(text):
        if (pair := _PAIR.fullmatch(line)) is not None:
            yield _unescaped(pair[1]), _unescaped(pair[2]).rstrip()


def _whole_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments; a line that ends in an odd number of backslashes continues."""
    whole = ""
    for line in text.splitlines():
        part = line.lstrip()
        if not whole and part[:1] in ("", "#", "!"):
            continue
        whole += part
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    signs = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def sign(found: "re.Match[str]") -> str:
        return chr(int(found[1], 16)) if found[1] else signs.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", sign, text, flags=re.DOTALL)
