"""Wait until Kafka shows created or deleted topics: the controller answers before the brokers know."""

import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

__all__ = ["await_topics"]

SHOWN_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.02


def await_topics(client: AdminClient, names: Collection[str], *, there: bool = True) -> None:
    """Wait until Kafka shows these topics, each partition with a leader; with `there=False`, until it shows none of them.

    A request right after the controller's answer may get the opposite answer. Returns after five seconds at the latest,
    without an error: the change is made, although this user may never see it.
    """
    deadline, waiting = time.monotonic() + SHOWN_SECONDS, set(names)
    while waiting and (left := deadline - time.monotonic()) > 0:
        asked = client.describe_topics(TopicCollection(sorted(waiting)), request_timeout=left)
        waiting = {name for name, future in asked.items() if _is_late(future, left, there=there)}
        if waiting:
            time.sleep(PAUSE_SECONDS)


def _is_late(future: "Future[Any]", seconds: float, *, there: bool) -> bool:
    try:
        found = future.result(seconds)
    except TimeoutError:
        return True
    except KafkaException as error:
        # Waiting does not help with other errors, such as a missing right.
        return there and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    return not there or any(one.leader is None for one in found.partitions)
