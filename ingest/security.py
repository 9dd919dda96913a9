"""Settings to client options: librdkafka's for our own clients, Kafka's Java names for Spark. Imports no vendor."""

import re
from typing import Any, Final

from ingest.contract.errors import ConfigError
from ingest.kafka_login import check_login, java_login, librdkafka_login
from ingest.kafka_settings import KafkaSettings

__all__ = ["client_conf", "consumer_conf", "jvm_conf", "producer_conf"]

_TUNING: Final = frozenset(
    {
        "broker.address.family", "broker.address.ttl", "client.dns.lookup", "client.rack", "connections.max.idle.ms",
        "debug", "log_level", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
        "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "socket.connection.setup.timeout.ms",
        "socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes", "socket.timeout.ms",
        "ssl.ca.certificate.stores", "ssl.cipher.suites", "ssl.curves.list", "ssl.crl.location", "ssl.sigalgs.list",
        "topic.metadata.propagation.max.ms", "topic.metadata.refresh.interval.ms",
    }
)  # fmt: skip
_PRODUCER_TUNING: Final = frozenset(
    {
        "batch.num.messages", "compression.level", "queue.buffering.max.kbytes",
        "queue.buffering.max.messages", "sticky.partitioning.linger.ms",
    }
)  # fmt: skip
"""Options that `extra` may hold. An allowlist, because the client also has options that load libraries, run commands or
read any file and address (plugin.library.paths, sasl.kerberos.kinit.cmd, sasl.oauthbearer.*), that switch off the check
of certificates, and that break a promise (acks, enable.idempotence, partitioner, message.timeout.ms; with a batch.size
past a topic's limit the broker would reject neighbouring records)."""

_WHOLE = re.compile("[0-9]{1,10}")
_LARGEST_INT: Final = 2**31 - 1
"""Largest whole number of librdkafka."""
RECORD_OVERHEAD_BYTES: Final = 256
"""Batch and record headers, which the broker counts in addition to key and value."""


def client_conf(settings: KafkaSettings, *, client_id: str) -> dict[str, Any]:
    """Return the options of every librdkafka client of ours: address, security, patience.

    Raises:
        ConfigError: the security settings contradict each other, or `extra` holds an option that is not allowed.
    """
    check_login(settings)
    _check_extra(settings)
    conf: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": client_id,
        "security.protocol": settings.security_protocol,
        # librdkafka's producer would create a mistyped topic by itself, with the broker's default partitions.
        "allow.auto.create.topics": False,
        "socket.keepalive.enable": True,
        # The default of 10 s would add up to that much latency after a broker's restart of one second.
        "reconnect.backoff.max.ms": 2000,
        **librdkafka_login(settings),
    }
    return conf | {key: value for key, value in settings.extra.items() if key in _TUNING}


def producer_conf(
    settings: KafkaSettings, *, client_id: str, largest_record_bytes: int, batch_bytes: int
) -> dict[str, Any]:
    """Return the producer's librdkafka options.

    Args:
        settings: the cluster.
        client_id: name under which brokers log this client.
        largest_record_bytes: of the topic with the largest limit; the writer checks each topic's own limit.
        batch_bytes: at most the smallest limit of any topic: a broker rejects whole batches, never single records.
    """
    conf = client_conf(settings, client_id=client_id) | {
        "enable.idempotence": True,
        "acks": "all",
        # Same choice as Kafka's Java clients, so that other tools find a device in the same partition.
        "partitioner": "murmur2_random",
        # 0 = never give up: a record that times out leaves a gap before later ones that were written.
        "message.timeout.ms": 0,
        "linger.ms": settings.linger_ms,
        "compression.type": settings.compression,
        "message.max.bytes": largest_record_bytes + RECORD_OVERHEAD_BYTES,
        "batch.size": batch_bytes,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 64 * 1024,
    }
    conf |= {key: value for key, value in settings.extra.items() if key in _PRODUCER_TUNING}
    # A topic's limit may be raised while we run, and its largest record must fit into the queue.
    conf["queue.buffering.max.kbytes"] = max(int(conf["queue.buffering.max.kbytes"]), _kbytes(largest_record_bytes))
    return conf


def consumer_conf(settings: KafkaSettings, *, client_id: str, group: str) -> dict[str, Any]:
    """Return the options of a librdkafka consumer that assigns itself partitions and commits only on request."""
    return client_conf(settings, client_id=client_id) | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": False,
        # Fetch whole batches at once: with the default of 1 MiB per fetch a long read takes a thousand round trips.
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "queued.max.messages.kbytes": 32 * 1024,
    }


def jvm_conf(settings: KafkaSettings) -> dict[str, str]:
    """Return Kafka's own (Java) client options, for Spark's `kafka.` prefix. `extra` is librdkafka's and does not apply.

    Raises:
        ConfigError: the security settings contradict each other, or a file that they name cannot be used.
    """
    check_login(settings)
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        **java_login(settings),
    }


def _check_extra(settings: KafkaSettings) -> None:
    for key in settings.extra:
        if key not in _TUNING | _PRODUCER_TUNING:
            message = (
                f"kafka.extra: the option {key} is not allowed. Options that the product itself sets, and those that "
                "load code, run commands or weaken security, cannot be passed through. Allowed are: "
                f"{', '.join(sorted(_TUNING | _PRODUCER_TUNING))}."
            )
            raise ConfigError(message)
    _check_queue(settings)


def _check_queue(settings: KafkaSettings) -> None:
    """Reject a queue smaller than a record, which could never take it. librdkafka itself accepts any number."""
    least_kbytes = _kbytes(2 * settings.max_record_bytes)
    floors = {
        "queue.buffering.max.kbytes": (
            least_kbytes,
            f"so that a record of twice kafka.max_record_bytes ({settings.max_record_bytes}) fits",
        ),
        "queue.buffering.max.messages": (1, "because a queue of size 0 never sends"),
    }
    for key, (least, why) in floors.items():
        text = settings.extra.get(key)
        if text is None or (_WHOLE.fullmatch(text) and least <= int(text) <= _LARGEST_INT):
            continue
        message = f"kafka.extra: {key} is {text!r}; wanted a whole number from {least} to {_LARGEST_INT}, {why}."
        raise ConfigError(message)


def _kbytes(record_bytes: int) -> int:
    """Return the KiB of a queue that takes a record of this size."""
    return (record_bytes + RECORD_OVERHEAD_BYTES) // 1024 + 1
