"""Settings of hop 2: the Kafka cluster and its topics."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

__all__ = ["KafkaSettings"]


class KafkaSettings(BaseModel):
    """Kafka cluster, producer and topics.

    The gateway creates missing topics with these settings and never changes an existing topic. `tidegate topics set`
    changes the retention of an existing one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = Field(
        "127.0.0.1:9092", description="Addresses of brokers to connect to first: HOST:PORT, separated by commas."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT",
        description="Protocol to the brokers. The SSL protocols encrypt; the SASL protocols log in and need sasl_mechanism, "
        "sasl_username and sasl_password. SSL logs in with a client certificate, if there is one.",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, description="Login mechanism of the SASL protocols. PLAIN and OAUTHBEARER need SASL_SSL."
    )
    sasl_username: str | None = Field(
        None, description="User name for the SASL protocols; for OAUTHBEARER the client id at the token server."
    )
    sasl_password: SecretStr | None = Field(
        None,
        description="Password of sasl_username; for OAUTHBEARER the client secret. `file:PATH` reads it from a file that only "
        "its owner may read.",
    )
    oauth_token_url: str | None = Field(
        None, description="Token endpoint of OAUTHBEARER (client credentials); an https URL."
    )
    oauth_scope: str | None = Field(None, description="Scope to ask for at the token endpoint. Default: none.")
    oauth_ca_file: str | None = Field(
        None,
        description="PEM file with the certificate of the authority that signed the token server's certificate. Default: the "
        "authorities of the system and of Java.",
    )
    ssl_ca_file: str | None = Field(
        None,
        description="PEM file with the certificate of the authority that signed the brokers' certificates. It needs one of "
        "the SSL protocols.",
    )
    ssl_crl_file: str | None = Field(
        None,
        description="PEM file with the revoked certificates (CRL) of that authority: gateway, monitor and commands refuse a "
        "broker that shows one of them. Spark's Java client reads no such file.",
    )
    ssl_certificate_file: str | None = Field(
        None,
        description="PEM file with the client certificate and the certificates that signed it. It needs ssl_key_file and one of "
        "the SSL protocols.",
    )
    ssl_key_file: str | None = Field(
        None, description="PEM file with the private key of the client certificate. Only its owner may read it."
    )
    ssl_key_password: SecretStr | None = Field(
        None,
        description="Password of an encrypted ssl_key_file. `file:PATH` reads it from a file that only its owner may read.",
    )
    partitions: int = Field(
        6,
        ge=1,
        description="Number of partitions of telemetry.readings. Choose it once: adding partitions later breaks the order of "
        "each device's readings.",
    )
    replication: int | None = Field(
        None,
        ge=1,
        le=32_767,
        description="Copies of each partition of a new topic, at most the number of brokers. Default: 3, or the number of "
        "brokers where there are fewer.",
    )
    min_in_sync: int | None = Field(
        None,
        ge=1,
        le=32_767,
        description="Copies that must be in sync for Kafka to accept a record (min.insync.replicas). Default: all copies but "
        "one, and at least two if there are two.",
    )
    retention_bytes: int = Field(
        10 * 1024**3,
        ge=8 * 1024**2,
        description="Maximum size in bytes of each partition of telemetry.readings. Kafka deletes the oldest records beyond "
        "it.",
    )
    retention_hours: int = Field(
        7 * 24, ge=1, description="Hours that Kafka keeps records. retention_bytes may delete them earlier."
    )
    max_record_bytes: int = Field(
        1024 * 1024,
        ge=64 * 1024,
        description="Largest record of telemetry.readings in bytes; dead letters may be twice as large. A message whose "
        "record is larger becomes a dead letter with reason kafka_too_large.",
    )
    linger_ms: int = Field(
        0,
        ge=0,
        le=1000,
        description="Milliseconds that the producer waits to collect records for one request. More makes fewer requests and "
        "adds this delay to each reading.",
    )
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = Field(
        "lz4", description="Compression of the records that the gateway and `tidegate produce` send."
    )
    extra: dict[str, str] = Field(
        default_factory=dict,
        description="More librdkafka options, limited to those that ingest/security.py allows. Any other option is an error.",
    )

    @model_validator(mode="after")
    def _check_copies(self) -> Self:
        if self.min_in_sync and self.replication and self.min_in_sync > self.replication:
            message = (
                f"kafka.min_in_sync is {self.min_in_sync}, but kafka.replication is {self.replication}: Kafka would accept no "
                "record. Set kafka.min_in_sync to at most kafka.replication"
            )
            raise ValueError(message)
        return self
