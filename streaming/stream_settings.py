"""Settings of hop 3: the Spark process that writes the tables."""

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["BatchCut", "StreamSettings"]


@dataclass(frozen=True, slots=True)
class BatchCut:
    """When a batch begins: as soon as `records` wait in Kafka, or `seconds` after the last batch began if any wait."""

    records: int
    seconds: float


_CUTS: Final = {"latency": BatchCut(0, 0.0), "balanced": BatchCut(150, 0.7), "thrifty": BatchCut(5_000, 5.0)}


class StreamSettings(BaseModel):
    """Spark, the landing and the derived tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = Field("local[2]", description="Spark's master (spark.master): local[N], yarn, k8s://… or spark://….")
    auth_secret: SecretStr | None = Field(
        None,
        description="Secret of a standalone cluster (spark.authenticate.secret), for a master spark://…. The connections are "
        "then authenticated and encrypted.",
    )
    driver_memory: str = Field(
        "1g", pattern=r"^[0-9]+[kmgKMG]$", description="Maximum heap of Spark's driver (-Xmx), such as 1g or 1500m."
    )
    checkpoint: str = Field("tidegate-data/checkpoints/land", description="Path or URI of the landing's checkpoint.")
    trigger_seconds: float = Field(
        0.0,
        ge=0,
        description="Seconds between the starts of two batches. 0 starts the next batch at once; more means fewer, larger "
        "files, less CPU and later rows.",
    )
    profile: Literal["latency", "balanced", "thrifty"] = Field(
        "latency",
        description="When a batch begins. latency: at once. balanced: when 150 records wait, or after 0.7 s. thrifty: when 5,000 "
        "records wait, or after 5 s. A batch costs much more than its records, so waiting saves CPU at low rates and changes "
        "nothing at high ones. `tidegate up` takes balanced unless this is set.",
    )
    min_records_per_batch: int | None = Field(
        None, ge=0, description="Records that wait in Kafka when a batch begins at once. Default: that of the profile."
    )
    max_wait_seconds: float | None = Field(
        None,
        ge=0,
        le=3600,
        description="Seconds after the begin of a batch when the next one begins, however few records wait. Default: that of "
        "the profile.",
    )
    max_records_per_batch: int = Field(
        100_000,
        ge=1,
        description="Maximum number of Kafka records in a batch. It bounds the memory of a batch, whose key columns are read "
        "in this process. Only a stream that catches up reaches it.",
    )
    horizon_days: float = Field(
        8.0,
        gt=0,
        description="Days that the landing remembers the identity of a message without boot and seq. A copy that arrives later "
        "is stored again. Use the broker's session expiry + 1 day.",
    )
    identity_lookup: Literal["auto", "driver", "executors"] = Field(
        "auto",
        description="Where the landing looks for copies of stored messages: in the driver, which is quicker for small batches, "
        "or on the executors, so that more workers land more. auto: on the executors if the master is not local.",
    )
    derive_seconds: float = Field(
        7.0,
        gt=0,
        description="Pause in seconds between two passes that update rollups, latest, ledger and devices. The pause lasts at "
        "least as long as the last pass.",
    )
    derive_idle_seconds: float = Field(
        30.0,
        gt=0,
        description="Time in seconds from the begin of one pass to the next while fewer than 200 rows a second come in and "
        "nobody has asked for a derived table within a minute. What is less than derive_seconds has no effect.",
    )
    watermark_delay_seconds: float = Field(
        120.0,
        ge=0,
        description="Seconds that the watermark of the rollups stays behind the newest reading. Later readings are stored, and "
        "their final windows are corrected.",
    )
    watermark_skew_seconds: float = Field(
        5.0,
        ge=0,
        description="Maximum seconds that an event time ahead of the gateway's clock moves the watermark.",
    )
    watermark_idle_seconds: float = Field(
        60.0,
        gt=0,
        description="Seconds without a reading after which the watermark follows the wall clock.",
    )
    rollup_exclude_devices: tuple[str, ...] = Field(
        ("tidegate-canary",), description="Ids of devices whose readings are left out of the rollups."
    )
    count_retained: bool = Field(
        False,
        description="Count retained messages as new readings in latest, rollups, devices and the views of profiles. The broker "
        "sends them again to a new subscription, and they may be old.",
    )
    streams_dir: str | None = Field(
        None,
        description="Folder of SQL files, each of which defines a stream. Default: ./streams, or DATA/streams in an embedded "
        "run.",
    )
    maintain_seconds: float = Field(
        60.0, gt=0, description="Seconds between two checks of the tables for maintenance that is due."
    )
    fsync: bool = Field(
        True,
        description="Write a batch's files to disk with fsync before the checkpoint marks the batch as done. It applies to "
        "tables in a local folder.",
    )
    warm_up: bool = Field(
        True, description="Land generated records into a temporary table before the stream reports that it is ready."
    )
    extra: dict[str, str] = Field(default_factory=dict, description="More Spark settings, passed on unchanged.")

    @property
    def batch_cut(self) -> BatchCut:
        """When a batch begins: what the profile says, with the single settings in its place."""
        given = _CUTS[self.profile]
        records, seconds = self.min_records_per_batch, self.max_wait_seconds
        return BatchCut(given.records if records is None else records, given.seconds if seconds is None else seconds)

    @property
    def checks_on_executors(self) -> bool:
        """Whether copies are looked for on the executors."""
        chosen = self.identity_lookup
        return chosen == "executors" or (chosen == "auto" and not self.master.startswith("local"))
