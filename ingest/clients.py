"""Clients of librdkafka: make them, and keep their log readable during an outage.

A rejected option becomes a ConfigError that names the setting. A client logs each failed attempt to connect, several in a
second, for as long as an outage lasts; the filter passes a repeated message only now and then, with a count.
"""

import logging
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings

__all__ = ["RepeatedMessageFilter", "make_client"]

Client = TypeVar("Client")

_SETTINGS: Final = {
    "https.ca.location": "oauth_ca_file",
    "ssl.ca.location": "ssl_ca_file",
    "ssl.crl.location": "ssl_crl_file",
    "ssl.certificate.location": "ssl_certificate_file",
    "ssl.key.location": "ssl_key_file",
    "ssl.key.password": "ssl_key_password",
    "sasl.oauthbearer.scope": "oauth_scope",
    "sasl.oauthbearer.token": "oauth_token_url",
    "sasl.": "sasl_*",
    "compression.": "compression",
    "linger.ms": "linger_ms",
    "bootstrap.servers": "bootstrap_servers",
}

EVERY_SECONDS: Final = 30.0
MAX_MESSAGES: Final = 256
_NUMBER: Final = re.compile(r"\d+")


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
    file = f" {getattr(settings, name)}" if name and name.endswith("_file") else ""
    return f"kafka.{name}{file}" if name else "[kafka]"


class RepeatedMessageFilter(logging.Filter):
    """Filter that passes a message once in 30 s; the next one says how many were left out. Numbers in it are ignored.

    Remembers the 256 newest messages.
    """

    def __init__(self, *, every: float = EVERY_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._every, self._clock = every, clock
        self._seen: OrderedDict[tuple[int, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; its text gets the count."""
        text, now = record.getMessage(), self._clock()
        key = (record.levelno, _NUMBER.sub("0", text))
        at, left_out = self._seen.get(key, (-math.inf, 0))
        if now - at < self._every:
            self._seen[key] = (at, left_out + 1)
            return False
        self._seen[key] = (now, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > MAX_MESSAGES:
            self._seen.popitem(last=False)
        if left_out:
            record.msg, record.args = f"{text} (and {left_out:,} more like it in {now - at:.0f} s)", ()
        return True
