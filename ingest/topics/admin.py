"""Admin clients of Kafka, and the one error for a question without an answer."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ingest.clients import make_client
from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

__all__ = [
    "DENIED",
    "TIMEOUT_SECONDS",
    "admin_client",
    "await_deleted",
    "no_answer_error",
    "partition_counts",
    "result_of",
    "wait_for_kafka",
]

Answer = TypeVar("Answer")

TIMEOUT_SECONDS: Final = 10.0
DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Error codes for a missing right; ingest/topics/rights.py names the right."""
_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})


def wait_for_kafka(
    settings: KafkaSettings, stop: threading.Event, on_wait: Callable[[str], None], *, pause_seconds: float = 1.0
) -> bool:
    """Wait until Kafka answers; True when it does, False when `stop` was set first.

    `on_wait` gets one sentence after each failed try (about every 3 s): why there is no answer yet.

    Raises:
        ConfigError: the settings cannot work, see `client_conf`.
    """
    reasons: list[str] = []
    client = admin_client(settings, on_error=reasons.append)
    while not stop.is_set():
        try:
            client.list_topics(timeout=2.0)
        except KafkaException as error:
            client.poll(0)
            why = reasons[0] if reasons else error.args[0].str()
            on_wait(f"Kafka at {settings.bootstrap_servers} does not answer yet ({why}); retrying")
            reasons.clear()
            stop.wait(pause_seconds)
        else:
            return True
    return False


class _Admin(AdminClient):
    """Admin client that keeps why no broker answers: a failed request does not say that the password is wrong."""

    reasons: list[str]


def admin_client(settings: KafkaSettings, *, on_error: Callable[[str], None] | None = None) -> AdminClient:
    """Make a client for one question or two. Hold it until they are answered: a freed client answers nothing."""
    reasons: list[str] = []

    def report(error: KafkaError) -> None:
        # "All brokers are down" follows each reason and adds nothing.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            reasons.append(error.str())
            if on_error is not None:
                on_error(error.str())

    # The caller reports errors. Without a callback librdkafka writes them to stderr.
    conf: dict[str, Any] = client_conf(settings, client_id="tidegate-admin") | {"error_cb": report, "log_level": 2}
    client = make_client(_Admin, conf, settings)
    client.reasons = reasons
    return client


def partition_counts(client: AdminClient, settings: KafkaSettings) -> dict[str, int]:
    """Return every topic that this user sees, with its number of partitions.

    Raises:
        RetryableError: Kafka does not answer.
    """
    try:
        topics = client.list_topics(timeout=TIMEOUT_SECONDS).topics
    except KafkaException as error:
        client.poll(0)
        reasons = client.reasons if isinstance(client, _Admin) else []
        raise no_answer_error(settings, RuntimeError(reasons[-1]) if reasons else error, "listing topics") from error
    return {name: len(topic.partitions) for name, topic in topics.items()}


def result_of(future: "Future[Answer]") -> Answer:
    """Return the answer to one question.

    Raises:
        TimeoutError: no answer came in time, not even the client's own timeout error.
        KafkaException: Kafka reported an error.
    """
    return future.result(TIMEOUT_SECONDS + 1)


def await_deleted(settings: KafkaSettings, futures: "Mapping[str, Future[None]]", doing: str) -> None:
    """Wait until these are deleted or do not exist.

    Raises:
        RetryableError: Kafka does not answer, or refuses this user.
    """
    for future in futures.values():
        try:
            result_of(future)
        except (KafkaException, TimeoutError) as error:
            if not isinstance(error, KafkaException) or error.args[0].code() not in _ABSENT:
                raise no_answer_error(settings, error, doing) from error


def no_answer_error(settings: KafkaSettings, error: Exception, doing: str) -> RetryableError:
    """Make the error for a question to Kafka that got no usable answer while `doing` something."""
    cause = error.args[0] if error.args else error
    text = cause.str() if isinstance(cause, KafkaError) else str(cause) or "no answer in time"
    message = f"Kafka at {settings.bootstrap_servers} failed while {doing}: {text}"
    return RetryableError(message, retry_after_seconds=2.0)
