"""Settings of the embedded run: the parts that `tidegate up` starts on this machine."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from monitoring.addresses import is_loopback

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
    mqtt_listen: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address on which devices reach the MQTT broker. 0.0.0.0 lets other machines in: this needs mosquitto, and "
        "mqtt_cert_file with mqtt_key_file for TLS on mqtt_tls_port.",
    )
    mqtt_tls_port: int = Field(
        8883,
        ge=1,
        le=65535,
        description="Port of the MQTT broker with TLS, if mqtt_cert_file is set. If it is taken, the run uses the next free "
        "port.",
    )
    mqtt_cert_file: str | None = Field(
        None,
        description="PEM file with the broker's certificate, and those of authorities between it and mqtt_ca_file.",
    )
    mqtt_key_file: str | None = Field(
        None, description="PEM file with the private key of mqtt_cert_file, without a password."
    )
    mqtt_ca_file: str | None = Field(
        None,
        description="PEM file with the certificate of the authority that signed mqtt_cert_file, for devices: `tidegate device "
        "snippet` prints it. Default: devices trust the authorities of their system.",
    )
    mqtt_client_ca_file: str | None = Field(
        None,
        description="PEM file with the authorities of the devices' certificates. With it, a device on mqtt_tls_port needs a "
        "certificate of them, besides its user and password.",
    )
    mqtt_crl_file: str | None = Field(
        None,
        description="PEM file with revoked certificates (CRL): a list of each authority in mqtt_client_ca_file. The broker reads "
        "it when it starts.",
    )
    mqtt_name: str | None = Field(
        None,
        description="Name or address of this machine for devices, as in mqtt_cert_file. Default: mqtt_listen, or the host name "
        "if mqtt_listen is 0.0.0.0 or ::.",
    )
    mqtt_allow_plaintext: bool = Field(
        False,
        description="Let other machines reach the broker without TLS: passwords and readings then cross the network "
        "unencrypted.",
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

    @property
    def serves_network(self) -> bool:
        """Return whether other machines reach the broker."""
        return not is_loopback(self.mqtt_listen)

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if (self.mqtt_cert_file is None) != (self.mqtt_key_file is None):
            given, missing = ("mqtt_key_file", "mqtt_cert_file")[:: 1 if self.mqtt_cert_file is None else -1]
            message = f"{given} is set and {missing} is not: set both for TLS, or none of them"
        elif self.serves_network and self.mqtt_cert_file is None and not self.mqtt_allow_plaintext:
            message = (
                f"mqtt_listen = {self.mqtt_listen!r} lets other machines reach the broker without TLS: set mqtt_cert_file and "
                "mqtt_key_file, or set mqtt_allow_plaintext = true to send passwords and readings unencrypted"
            )
        elif self.mqtt_client_ca_file is not None and self.mqtt_cert_file is None:
            message = "mqtt_client_ca_file needs TLS: set mqtt_cert_file and mqtt_key_file, or remove it"
        elif self.mqtt_crl_file is not None and self.mqtt_client_ca_file is None:
            message = "mqtt_crl_file has an effect only where devices show certificates: set mqtt_client_ca_file, or remove it"
        elif self.mqtt_cert_file is not None and self.mqtt_allow_plaintext:
            message = "mqtt_cert_file and mqtt_allow_plaintext exclude each other: remove one of them"
        elif self.broker == "iotcore" and (self.serves_network or self.mqtt_cert_file is not None):
            message = (
                "broker is iotcore, which serves this machine only and without TLS: set broker to mosquitto or auto"
            )
        else:
            return self
        raise ValueError(message)
