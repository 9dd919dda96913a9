"""Waits until Kafka shows what was made or deleted: the controller answers before the brokers know."""

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

    Whoever asks right after the controller's answer may hear the opposite. Back after five seconds at the latest and
    without a fault: the change is made, though this user may never see it.
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
        # Another fault, such as a missing right, does not pass by waiting.
        return there and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    return not there or any(one.leader is None for one in found.partitions)
