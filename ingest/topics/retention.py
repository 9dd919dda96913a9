"""Retention of a topic: limits in Kafka's settings, whether a change lowers them, and which group has unread records."""

from dataclasses import dataclass
from typing import Final

from ingest.contract.topics import topic_specs
from ingest.groups.offset_mirror import group_lag
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import LAND_TOPICS
from ingest.topics.offsets import begin_offsets, offsets_at

__all__ = ["AGE", "SEGMENT", "SIZE", "UNLIMITED", "ConfigChange", "count_unread_older", "retention_config"]

AGE: Final = "retention.ms"
SIZE: Final = "retention.bytes"
UNLIMITED: Final = -1
"""Kafka's value for no limit."""
HOUR_MS: Final = 3_600_000
CLOSE_MS: Final = 60_000
"""Most delay of a reader when a size limit is lowered."""
SEGMENT: Final = "segment.bytes"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting of a topic, under Kafka's name."""

    setting: str
    before: str
    after: str

    @property
    def is_less(self) -> bool:
        """Return whether the topic keeps less after the change."""
        if self.setting not in (AGE, SIZE):
            return False
        before, after = int(self.before), int(self.after)
        return after != UNLIMITED and (before == UNLIMITED or after < before)

    @property
    def kept_ms(self) -> int:
        """Records younger than this stay. For a size limit the age of the oldest kept record is unknown."""
        return int(self.after) if self.setting == AGE else CLOSE_MS


def retention_config(hours: int | None, size_bytes: int | None) -> dict[str, str]:
    """Return Kafka's settings for a retention; None leaves a limit unchanged, `UNLIMITED` removes it.

    Kafka deletes whole segments, so a size limit also sets segments that are small compared with it, as for a new topic.
    """
    wanted = {}
    if hours is not None:
        wanted[AGE] = str(hours * HOUR_MS if hours != UNLIMITED else UNLIMITED)
    if size_bytes is not None:
        wanted[SIZE] = str(size_bytes)
    if size_bytes is not None and size_bytes != UNLIMITED:
        readings, *_ = topic_specs(partitions=1, max_record_bytes=1, retention_bytes=size_bytes, retention_ms=1)
        wanted[SEGMENT] = readings.config[SEGMENT]
    return wanted


def count_unread_older(settings: KafkaSettings, group: str, topic: str, time_ms: int) -> int:
    """Return how many records from before this time the group has not read yet."""
    committed = group_lag(settings, group, [topic]).get(topic, {})
    if not committed and topic not in LAND_TOPICS.get(group, ()):
        return 0
    reached = offsets_at(settings, topic, time_ms)
    begin = begin_offsets(settings, topic)
    at = {partition: max(begin[partition], committed.get(partition, (0, 0))[0]) for partition in reached}
    return sum(max(0, offset - at[partition]) for partition, offset in reached.items())
