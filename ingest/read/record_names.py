"""Names of single records: enough to recognise a record later, and to notice that another one now has its offset.

A truncated Kafka log (a power cut, an unclean election, a broker restored from a snapshot) keeps its topic's id and gives
the same offsets to other records. Only the records themselves show it.
"""

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ingest.lag.group_reader import GroupReader

__all__ = ["NameReader", "Names", "RecordName"]

ANSWER_SECONDS: Final = 10.0


class RecordName(NamedTuple):
    """Name by which one record is recognised.

    `leader_epoch` is that of the leader that took the record (-1 if unknown). It is not compared: a record keeps its name
    when a mirror copies it.
    """

    offset: int
    leader_epoch: int
    time_ms: int
    crc: int

    def is_same(self, other: "RecordName | None") -> bool:
        """Return whether both name the same record."""
        return other is not None and (self.offset, self.time_ms, self.crc) == (other.offset, other.time_ms, other.crc)


Names = dict[str, dict[int, RecordName]]
"""topic -> partition -> the name of a record."""


def _record_name(message: "Message") -> RecordName:
    """Return the name of a record that a Kafka client returned."""
    key, value, epoch = message.key() or b"", message.value() or b"", message.leader_epoch()
    crc = zlib.crc32(_bytes(value), zlib.crc32(_bytes(key) + b"\0"))
    offset = message.offset()
    return RecordName(-1 if offset is None else offset, -1 if epoch is None else epoch, message.timestamp()[1], crc)


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


class NameReader:
    """Reader of record names. Joins no group; makes its client at the first question. Not thread-safe."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reader: GroupReader | None = None

    def read(
        self, wanted: Mapping[str, Mapping[int, int]], timeout_seconds: float = ANSWER_SECONDS
    ) -> tuple[Names, bool]:
        """Return the names of the records at these offsets; records that Kafka does not have are missing.

        Returns:
            The names, and whether Kafka answered for every partition in time.
        """
        positions = {(topic, part): at for topic, parts in wanted.items() for part, at in parts.items()}
        if not positions:
            return {}, True
        if self._reader is None:
            from ingest.lag.group_reader import GroupReader

            self._reader = GroupReader(self._settings, "tidegate-reader", lambda _error: None)
        answers = self._reader.records(positions, timeout_seconds)
        names: Names = {}
        for (topic, part), message in answers.items():
            if message is not None and message.offset() == positions[topic, part]:
                names.setdefault(topic, {})[part] = _record_name(message)
        return names, len(answers) == len(positions)

    def read_all(self, wanted: Mapping[str, Mapping[int, int]]) -> Names:
        """Return the same, for a caller that cannot continue without an answer.

        Raises:
            RetryableError: Kafka does not answer in time.
        """
        names, whole = self.read(wanted)
        if not whole:
            message = (
                f"Kafka at {self._settings.bootstrap_servers} did not return single records of {', '.join(wanted)} "
                f"within {ANSWER_SECONDS:g} s: check that the broker is up and that this user may read them"
            )
            raise RetryableError(message)
        return names

    def close(self) -> None:
        """Free the client."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
