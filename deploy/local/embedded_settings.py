"""Settings of the embedded run: the parts that `tidegate up` starts on this machine."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EmbeddedSettings"]


class EmbeddedSettings(BaseModel):
    """Preferred ports, sizes and the simulated fleet. If a port is taken, the run uses the next free one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    broker: Literal["auto", "mosquitto", "iotcore"] = Field(
        "auto",
        description="MQTT broker to start. auto uses mosquitto if it is on PATH, else iotcore. mosquitto keeps its queue "
        "when it is killed; iotcore keeps it in memory only.",
    )
    mqtt_port: int = Field(
        1883, ge=1, le=65535, description="Port of the MQTT broker. If it is taken, the run uses the next free port."
    )
    mqtt_v5_port: int = Field(
        1884,
        ge=1,
        le=65535,
        description="Port for MQTT 5 on a broker that needs a separate port for it. If it is taken, the run uses the next "
        "free port.",
    )
    kafka_port: int = Field(
        9092, ge=1, le=65535, description="Port of Kafka. If it is taken, the run uses the next free port."
    )
    kafka_controller_port: int = Field(
        9093, ge=1, le=65535, description="Port of Kafka's controller. If it is taken, the run uses the next free port."
    )
    kafka_jmx_port: int = Field(
        9474, ge=0, le=65535, description="Port of the JMX agent in Kafka, which serves its metrics. 0 starts no agent."
    )
    spark_jmx_port: int = Field(
        9475,
        ge=0,
        le=65535,
        description="Port of the JMX agent in Spark's driver, which serves its metrics. 0 starts no agent.",
    )
    prometheus_port: int = Field(
        9090, ge=1, le=65535, description="Port of Prometheus. If it is taken, the run uses the next free port."
    )
    alertmanager_port: int = Field(
        9099,
        ge=1,
        le=65535,
        description="Port of Alertmanager. The default is not its usual 9093, because Kafka's controller uses that port.",
    )
    kafka_heap: str = Field(
        "512m", pattern=r"^[0-9]+[kmgKMG]$", description="Maximum heap of Kafka's JVM (-Xmx), such as 512m or 1g."
    )
    kafka_flush_records: int = Field(
        0,
        ge=0,
        description="Records of a partition after which Kafka calls fsync. 1 calls it before each acknowledgement. 0 "
        "leaves it to the operating system: a power failure may lose the newest records.",
    )
    kafka_partitions: int = Field(
        2,
        ge=1,
        description="Number of partitions of telemetry.readings. It applies when the topic is created; an existing topic "
        "keeps its number.",
    )
    kafka_retention_bytes: int = Field(
        512 * 1024**2,
        ge=8 * 1024**2,
        description="Maximum size in bytes of each partition of telemetry.readings. Kafka deletes the oldest records beyond "
        "it, so that a laptop's disk does not fill.",
    )
    fleet_devices: int = Field(20, ge=0, description="Number of simulated devices. 0 starts none.")
    fleet_rate: float = Field(20.0, gt=0, description="Messages per second that all simulated devices send together.")
    # Alerts look for two of them within a minute.
    canary_seconds: float = Field(2.0, gt=0, le=20, description="Seconds between two readings of the canary.")
    ready_timeout_seconds: float = Field(
        300.0,
        gt=0,
        description="Seconds that `up --detach` waits for the run. After that the command fails, and the run keeps trying "
        "to start.",
    )
    stop_timeout_seconds: float = Field(
        20.0, gt=0, description="Seconds that a part may take to stop. After that it is killed."
    )
    log_max_bytes: int = Field(
        10 * 1024**2,
        ge=64 * 1024,
        description="Size in bytes at which a part's log is moved to LOG.1, which replaces the previous LOG.1.",
    )
