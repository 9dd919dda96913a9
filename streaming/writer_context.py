"""Context of the code that writes tables in the stream's process next to the landing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.kafka_settings import KafkaSettings
from lakehouse.lake_settings import LakeSettings
from monitoring.metrics.stream import StreamMetrics
from streaming.copy_check import IdentityIndex
from streaming.kafka_source import LandedTopics
from streaming.stream_settings import StreamSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WriterContext"]


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The one process that may write under the root: its Spark session, settings and metrics.

    `seen` are the identities of the landing that runs in this process; None if none does. `background_tasks` are, by name, the
    tasks that a request may need done before it continues. `jvm_runs` says whether Spark's JVM has not ended by itself,
    `is_cancelled` whether the process ends and has cancelled what ran.
    """

    spark: "SparkSession"
    kafka: KafkaSettings
    settings: StreamSettings
    lake: LakeSettings
    metrics: StreamMetrics
    topics: LandedTopics
    seen: IdentityIndex | None = None
    background_tasks: dict[str, Callable[[], object]] = field(default_factory=dict)
    jvm_runs: Callable[[], bool] = lambda: True
    is_cancelled: Callable[[], bool] = lambda: False

    @property
    def root(self) -> str:
        """Place of the tables."""
        return self.lake.root
