"""Settings of the embedded run: what `tidegate up` starts on this machine."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EmbeddedSettings"]


class EmbeddedSettings(BaseModel):
    """Ports to try first, sizes, and the simulated fleet. A port that is taken gives way to the next free one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    broker: Literal["auto", "mosquitto", "iotcore"] = Field(
        "auto", description="auto takes mosquitto where it is on PATH (keeps its queue over a kill), else iotcore."
    )
    mqtt_port: int = Field(1883, ge=1, le=65535)
    mqtt_v5_port: int = Field(
        1884, ge=1, le=65535, description="Of MQTT 5, for a broker that needs a port of its own for it."
    )
    kafka_port: int = Field(9092, ge=1, le=65535)
    kafka_controller_port: int = Field(9093, ge=1, le=65535)
    kafka_jmx_port: int = Field(9474, ge=0, le=65535, description="Of the JMX agent in Kafka; 0 = no agent.")
    spark_jmx_port: int = Field(9475, ge=0, le=65535, description="Of the JMX agent in Spark's driver; 0 = no agent.")
    prometheus_port: int = Field(9090, ge=1, le=65535)
    alertmanager_port: int = Field(9099, ge=1, le=65535, description="Not its usual 9093: that is Kafka's controller.")
    kafka_heap: str = Field("512m", pattern=r"^[0-9]+[kmgKMG]$")
    kafka_flush_records: int = Field(
        0,
        ge=0,
        description="Kafka calls fsync after so many records of a partition: 1 = before it acknowledges; 0 = the system decides.",
    )
    kafka_partitions: int = Field(2, ge=1, description="Of telemetry.readings in the embedded run.")
    kafka_retention_bytes: int = Field(
        512 * 1024**2,
        ge=8 * 1024**2,
        description="Per partition in the embedded run, so that a laptop's disk never fills.",
    )
    fleet_devices: int = Field(20, ge=0, description="Simulated devices; 0 starts none.")
    fleet_rate: float = Field(20.0, gt=0, description="Messages per second of the whole fleet.")
    # Alerts look for two of them within a minute.
    canary_seconds: float = Field(2.0, gt=0, le=20, description="Between two canary readings.")
    ready_timeout_seconds: float = Field(300.0, gt=0, description="`up --wait` gives up after this long.")
    stop_timeout_seconds: float = Field(20.0, gt=0, description="A part that drains longer than this is killed.")
    log_max_bytes: int = Field(10 * 1024**2, ge=64 * 1024, description="A part's log moves to LOG.1 at this size.")
