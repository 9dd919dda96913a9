"""Settings of hop 2: how to reach Kafka and how its topics are kept."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

__all__ = ["KafkaSettings"]


class KafkaSettings(BaseModel):
    """Kafka cluster, producer and topics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = "127.0.0.1:9092"
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_file: str | None = None
    partitions: int = Field(
        6, ge=1, description="Of telemetry.readings; choose once: more later breaks per-device order."
    )
    replication: int = Field(1, ge=1)
    retention_bytes: int = Field(10 * 1024**3, ge=8 * 1024**2, description="Per partition of telemetry.readings.")
    retention_hours: int = Field(7 * 24, ge=1)
    max_record_bytes: int = Field(1024 * 1024, ge=64 * 1024)
    linger_ms: int = Field(0, ge=0, le=1000)
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"
    extra: dict[str, str] = Field(
        default_factory=dict,
        description="Further librdkafka options, of those that ingest/security.py allows; any other is refused.",
    )
