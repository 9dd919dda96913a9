"""Opening of a log writer on a real Kafka: wait for Kafka, create its topics, open the writer."""

import logging
import threading
from collections.abc import Callable

from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.log import LogWriter
from ingest.producer import open_writer
from ingest.record_limits import LearnedLimits
from ingest.topics.admin import wait_for_kafka
from ingest.topics.setup import ensure_topics

__all__ = ["OpenLog", "open_kafka"]

logger = logging.getLogger("tidegate.gateway")

OpenLog = Callable[[threading.Event, Callable[[str], None]], LogWriter | None]
"""Function that opens a log writer and reports in sentences what it waits for; None if `stop` was set first."""


def open_kafka(
    kafka: KafkaSettings,
    stop: threading.Event,
    tell: Callable[[str], None],
    *,
    used_topics: set[str],
    learned: LearnedLimits,
) -> LogWriter | None:
    """Wait for Kafka, make sure its topics exist, and open a writer.

    `used_topics` and `learned` are the caller's memory between calls: a used topic that must be recreated was deleted
    meanwhile.

    Raises:
        RetryableError: Kafka stopped answering.
        FatalError: the topics cannot be created.
    """
    if not wait_for_kafka(kafka, stop, tell):
        return None
    made: list[str] = []
    for difference in ensure_topics(kafka, on_made=made.append):
        logger.warning("%s", difference)
    for name in sorted(used_topics.intersection(made)):
        logger.error(
            "Topic %s was deleted while in use and has been recreated. Its records that had not landed yet are lost. Find out "
            "who deleted it, and run `tidegate audit`.",
            name,
        )
    used_topics |= {READINGS, DEAD_LETTERS, OUTCOMES}
    return open_writer(kafka, learned=learned)
