"""Settings of hop 3: where Spark runs and how often it lands."""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["StreamSettings"]


class StreamSettings(BaseModel):
    """The landing query."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    master: str = Field("local[2]", description="spark.master: local[N], yarn, k8s://…, spark://…")
    driver_memory: str = Field("1g", pattern=r"^[0-9]+[kmgKMG]$")
    checkpoint: str = Field("tidegate-data/checkpoints/land", description="Path or URI of the query's checkpoint.")
    trigger_seconds: float = Field(0.0, ge=0, description="0 lands as fast as it can; more trades latency for CPU.")
    max_records_per_batch: int = Field(
        100_000,
        ge=1,
        description="Bounds a batch's memory: its key columns are looked at in this process. Only catching up meets it.",
    )
    horizon_days: float = Field(
        8.0, gt=0, description="How long an identity is remembered: broker session expiry + 1 day."
    )
    derive_seconds: float = Field(
        7.0, gt=0, description="Pause between two passes that bring up rollups, latest, ledger and devices."
    )
    watermark_delay_seconds: float = Field(
        120.0, ge=0, description="How far the watermark of the rollups stays behind the newest reading."
    )
    watermark_skew_seconds: float = Field(
        5.0, ge=0, description="How far ahead of the gateway's clock an event time may move the watermark."
    )
    watermark_idle_seconds: float = Field(
        60.0, gt=0, description="After so long without a reading the watermark follows the wall clock."
    )
    rollup_exclude_devices: tuple[str, ...] = Field(
        ("tidegate-canary",), description="Devices whose readings no rollup shows."
    )
    count_retained: bool = Field(
        False,
        description="Count retained messages, which the broker replays to a new subscription and which may be old, as news: in "
        "latest, rollups, devices and the views of profiles.",
    )
    streams_dir: str | None = Field(
        None, description="Folder of SQL files, each a stream; default ./streams, or DATA/streams of an embedded run."
    )
    maintain_seconds: float = Field(60.0, gt=0, description="How often the tables are asked what maintenance is due.")
    fsync: bool = Field(
        True, description="A batch's files are on the disk (local tables) before the checkpoint says that it is done."
    )
    warm_up: bool = Field(True, description="Land made-up records into a throw-away table before it says ready.")
    extra: dict[str, str] = Field(default_factory=dict, description="Further Spark settings, passed through.")
