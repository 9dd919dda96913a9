"""Follows what the gateways wrote to Kafka, a piece at each look, from where it stood when the reader was made."""

from deploy.chaos.verdict import RecordedMessages
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.read.offset_range import read_range
from ingest.topics.offsets import begin_offsets, end_offsets

__all__ = ["KafkaReader"]


class KafkaReader:
    """Reads records of these gateways alone, so that several may share a Kafka."""

    def __init__(self, kafka: KafkaSettings, *gateways: str) -> None:
        self._kafka, self._gateways = kafka, frozenset(gateways)
        self._at = {topic: end_offsets(kafka, topic) for topic in (READINGS, DEAD_LETTERS, OUTCOMES)}
        self.landed = RecordedMessages()

    def look(self) -> RecordedMessages:
        """Everything so far.

        Raises:
            RetryableError: Kafka does not answer.
        """
        take = {
            READINGS: self.landed.add_readings,
            DEAD_LETTERS: self.landed.add_dead_letters,
            OUTCOMES: self.landed.add_outcomes,
        }
        for topic, add in take.items():
            until = end_offsets(self._kafka, topic)
            start = self._at[topic] or begin_offsets(self._kafka, topic)
            for batch in read_range(self._kafka, topic, start, until):
                add(batch, self._gateways)
            self._at[topic] = until
        return self.landed
