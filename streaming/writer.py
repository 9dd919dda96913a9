"""What everything that writes tables in the stream's process shares, beside the landing itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.settings import KafkaSettings
from lakehouse.settings import LakeSettings
from monitoring.metrics import StreamMetrics
from streaming.settings import StreamSettings
from streaming.source import LandedTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Writer"]


@dataclass(frozen=True, slots=True)
class Writer:
    """The one process that may write under the root: its Spark session, settings and metrics."""

    spark: "SparkSession"
    kafka: KafkaSettings
    settings: StreamSettings
    lake: LakeSettings
    metrics: StreamMetrics
    topics: LandedTopics

    @property
    def root(self) -> str:
        """Where the tables are."""
        return self.lake.root
