"""Make clients of librdkafka. A rejected option becomes a ConfigError that names the setting."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings

__all__ = ["make_client"]

Client = TypeVar("Client")

_SETTINGS: Final = {
    "ssl.ca.location": "ssl_ca_file",
    "sasl.": "sasl_*",
    "compression.": "compression",
    "linger.ms": "linger_ms",
    "bootstrap.servers": "bootstrap_servers",
}


def make_client(kind: Callable[..., Client], conf: dict[str, Any], settings: KafkaSettings, **more: Any) -> Client:
    """Make a producer, consumer or admin client; `conf` was built from `settings` by ingest/security.py.

    Raises:
        ConfigError: the client rejects a value, or a file that it names.
    """
    try:
        return kind(conf, **more)
    except KafkaException as error:
        why = error.args[0].str().strip()
        message = f"{_setting(why, settings)}: the Kafka client rejects the value ({why}): correct it, or the file that it names"
        raise ConfigError(message) from error


def _setting(why: str, settings: KafkaSettings) -> str:
    extra = next((key for key in settings.extra if key in why), None)
    if extra is not None:
        return f'kafka.extra."{extra}"'
    name = next((name for option, name in _SETTINGS.items() if option in why), None)
    file = f" {settings.ssl_ca_file}" if name == "ssl_ca_file" else ""
    return f"kafka.{name}{file}" if name else "[kafka]"
