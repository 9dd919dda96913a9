"""AsyncAPI document of a pipeline: MQTT topics that the gateway reads and writes, and the Kafka topics behind it.

The native format, receipts and records have schemas. The formats of routes and presets are those of other systems: their
channels have addresses and a content type, and a payload without a schema.
"""

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from deploy.asyncapi.record_schemas import RECEIPTS, REF, payload_schemas
from deploy.settings import Settings
from gateway.gateway_settings import RouteSettings
from gateway.glob_patterns import compile_globs
from gateway.presets.loader import load_presets
from ingest.contract.topics import (
    DEAD_LETTERS,
    GATEWAY_STATE,
    LAND_GROUP,
    OUTCOMES,
    READINGS,
    TopicSpec,
    stream_topic,
    topic_specs,
)

__all__ = ["asyncapi_document", "asyncapi_files"]

_README: Final = """\
# Interfaces of Tidegate

`asyncapi.yaml` describes, in AsyncAPI 3.0, the MQTT topics that the gateways read and write, and the Kafka topics behind them,
with the schemas of messages and records. It has the addresses of the settings and no secret. `receive` and `send` are from the
view of Tidegate: a device sends what Tidegate receives.

Generators and viewers of AsyncAPI read the file, such as

    asyncapi generate fromTemplate asyncapi.yaml @asyncapi/html-template

Topics of the shipped presets are channels too. Their payloads have the formats of other systems, so they have no schema here.
The file of each preset in `gateway/presets/` names its source.
"""
_NUMBERS: Final = ("retention.ms", "retention.bytes", "max.message.bytes", "max.compaction.lag.ms", "segment.bytes")
_SCHEMES: Final = {"PLAIN": "plain", "SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512"}
_TYPES: Final = {"plain": "text/plain", "json": "application/json"}
_TEXTS: Final[dict[str, tuple[str | None, str]]] = {
    READINGS: (
        "ReadingRecord",
        "Readings of one message and one device, in the order in which the gateway received them.",
    ),
    DEAD_LETTERS: (
        "DeadLetterRecord",
        "Rejected messages and parts of messages, with the reason and the original bytes.",
    ),
    OUTCOMES: ("OutcomeRecord", "Counts of each gateway, in Kafka before the PUBACKs that they cover."),
    GATEWAY_STATE: (None, "What gateways remember over a restart, by key. Its form is internal and may change."),
}


@dataclass(frozen=True, slots=True)
class _Format:
    """A route as a channel: `group` is the preset's name, or empty for a route of the settings."""

    group: str
    route: RouteSettings
    source: str


def asyncapi_files(settings: Settings) -> dict[str, str]:
    """Return file name -> content of `tidegate export asyncapi`. The same settings give the same bytes."""
    text = yaml.safe_dump(asyncapi_document(settings), sort_keys=False, allow_unicode=True, width=120)
    return {"asyncapi.yaml": text, "README.md": _README}


def asyncapi_document(settings: Settings) -> dict[str, Any]:
    """Return the document; it has no secret."""
    formats = list(_formats(settings))
    channels = {**_own_channels(), **_kafka_channels(settings), **_format_channels(formats)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Tidegate",
            "version": _version(),
            "description": "Sensor readings from MQTT through Kafka into Delta tables, exactly once, with proof.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": _servers(settings),
        "channels": channels,
        "operations": _operations(channels),
        "components": {
            "messages": _messages(formats),
            "schemas": payload_schemas(),
            "securitySchemes": _security(settings),
        },
    }


def _servers(settings: Settings) -> dict[str, Any]:
    mqtt, kafka = settings.mqtt, settings.kafka
    first = kafka.bootstrap_servers.split(",")[0].strip()
    found: dict[str, dict[str, Any]] = {
        "mqtt": {
            "host": f"{mqtt.host}:{mqtt.port}",
            "protocol": "secure-mqtt" if mqtt.tls else "mqtt",
            "protocolVersion": mqtt.protocol,
            "description": "The MQTT broker of the devices.",
        },
        "kafka": {
            "host": first,
            "protocol": "kafka-secure" if kafka.security_protocol.endswith("SSL") else "kafka",
            "description": f"Kafka. All addresses: {kafka.bootstrap_servers}",
        },
    }
    for name in _security(settings):
        found[name]["security"] = [{"$ref": f"#/components/securitySchemes/{name}"}]
    return found


def _security(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if settings.mqtt.username is not None:
        found["mqtt"] = {"type": "userPassword"}
    if settings.kafka.sasl_mechanism is not None:
        found["kafka"] = {"type": _SCHEMES[settings.kafka.sasl_mechanism]}
    return found


def _own_channels() -> dict[str, Any]:
    """Return the native topic and that of receipts."""
    device = {"device": {"description": "Id of the device; `+ # / %` are percent-encoded in the topic of receipts."}}
    return {
        "nativeReadings": {
            "address": "tidegate/v1/{device}/readings",
            "description": "Readings in the native format.",
            "servers": [_server("mqtt")],
            "parameters": device,
            "messages": {"native": _message("NativeMessage")},
        },
        "receipts": {
            "address": "tidegate/receipts/{device}",
            "description": "Answers to the device. With MQTT 5 also on the response topic of a message.",
            "servers": [_server("mqtt")],
            "parameters": device,
            "messages": {
                "rejected": _message("RejectionReceipt"),
                "restarted": _message("RestartWarning"),
                "stored": _message("StoredReceipt"),
            },
        },
    }


def _kafka_channels(settings: Settings) -> dict[str, Any]:
    kafka = settings.kafka
    specs = topic_specs(
        partitions=kafka.partitions,
        max_record_bytes=kafka.max_record_bytes,
        retention_bytes=kafka.retention_bytes,
        retention_ms=kafka.retention_hours * 3_600_000,
    )
    found = {spec.name: _kafka_channel(spec) for spec in specs}
    found["telemetry.stream"] = {
        "address": stream_topic("{stream}"),
        "description": "Output of an SQL stream. Its statement decides the fields and the key.",
        "servers": [_server("kafka")],
        "parameters": {"stream": {"description": "Name of the SQL stream."}},
        "messages": {"row": _message("StreamRow")},
    }
    return found


def _kafka_channel(spec: TopicSpec) -> dict[str, Any]:
    schema, text = _TEXTS[spec.name]
    config: dict[str, Any] = {
        name: int(value) if name in _NUMBERS else [value] if name == "cleanup.policy" else value
        for name, value in spec.config.items()
    }
    binding = {"partitions": spec.partitions, "topicConfiguration": config, "bindingVersion": "0.5.0"}
    return {
        "address": spec.name,
        "description": text,
        "servers": [_server("kafka")],
        "messages": {"record": _message(schema or "GatewayState")},
        "bindings": {"kafka": binding},
    }


def _formats(settings: Settings) -> Iterator[_Format]:
    """Yield the routes that store readings: those of the settings, then those of the presets that apply."""
    for route in settings.routes:
        yield _Format("", route, "A route of the settings.")
    applies = compile_globs(settings.gateway.presets)
    for name, preset in load_presets().items():
        if applies is not None and applies(name):
            first = files("gateway.presets").joinpath(f"{name}.toml").read_text("utf-8").splitlines()[0]
            for route in preset.routes:
                yield _Format(name, route, first.removeprefix("# "))


def _format_channels(formats: Iterable[_Format]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    known: set[tuple[str, str]] = set()
    for each in formats:
        key = each.group, each.route.filter
        if each.route.ignore is not None or key in known:
            continue
        known.add(key)
        address, parameters = _address(each.route.filter)
        number = sum(group == each.group for group, _ in known)
        channel = {
            "address": address,
            "description": f"Topic filter `{each.route.filter}`.",
            "servers": [_server("mqtt")],
            **({"parameters": parameters} if parameters else {}),
            "messages": {"message": _message(_message_name(each))},
        }
        found[f"{each.group or 'route'}-{number}"] = channel
    return found


def _address(filter_text: str) -> tuple[str, dict[str, Any]]:
    """Return the filter as an AsyncAPI address, and its parameters."""
    parameters: dict[str, Any] = {}
    levels = []
    for number, level in enumerate(filter_text.split("/"), start=1):
        named = re.fullmatch(r"\{(\w+)(#?)\}", level)
        is_rest = level == "#" or bool(named and named[2])
        if named or level in ("+", "#"):
            name = named[1] if named else "rest" if is_rest else f"level{number}"
            parameters[name] = {"description": "The rest of the topic, with its slashes." if is_rest else "One level."}
            levels.append(f"{{{name}}}")
        else:
            levels.append(level)
    return "/".join(levels), parameters


def _message_name(each: _Format) -> str:
    return f"{each.group or 'route'}-message"


def _messages(formats: Iterable[_Format]) -> dict[str, Any]:
    """Return all messages: those with a schema, and one without for each preset."""
    typed = ("NativeMessage", *RECEIPTS, *(schema for schema, _ in _TEXTS.values() if schema))
    found: dict[str, Any] = {name: {"payload": {"$ref": REF.format(name=name)}} for name in typed}
    found["ReadingRecord"]["bindings"] = {"kafka": {"key": {"type": "string", "description": "Id of the device."}}}
    found["GatewayState"] = {"contentType": "application/octet-stream", "payload": {}}
    found["StreamRow"] = {"payload": {"type": "object"}}
    for each in formats:
        if each.route.ignore is None:
            of_decoder = "json" if each.route.mapping is not None else each.route.decoder
            content = _TYPES.get(of_decoder, "application/octet-stream")
            found.setdefault(_message_name(each), {"summary": each.source, "contentType": content, "payload": {}})
    return found


def _operations(channels: dict[str, Any]) -> dict[str, Any]:
    """Return one operation per channel, from the view of Tidegate."""
    found = {}
    for name, channel in channels.items():
        on_mqtt = channel["servers"] == [_server("mqtt")]
        receives = on_mqtt and name != "receipts"
        operation: dict[str, Any] = {
            "action": "receive" if receives else "send",
            "channel": {"$ref": f"#/channels/{name}"},
            **({"bindings": {"mqtt": {"qos": 1}}} if receives else {}),
        }
        found[f"{operation['action']}-{name}"] = operation
    found[f"receive-{READINGS}"] = {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{READINGS}"},
        "summary": "The stream writes the tables from these records.",
        "bindings": {"kafka": {"groupId": {"type": "string", "enum": [LAND_GROUP]}}},
    }
    return found


def _server(name: str) -> dict[str, str]:
    return {"$ref": f"#/servers/{name}"}


def _message(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/messages/{name}"}


def _version() -> str:
    try:
        return importlib.metadata.version("tidegate")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0"
