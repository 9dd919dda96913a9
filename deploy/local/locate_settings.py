"""Find the settings of a command: those of --config, else those of the embedded run that --data names."""

from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local.runfile import require_run
from deploy.settings import Settings, data_dir, load_settings
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.kafka_settings import KafkaSettings

if TYPE_CHECKING:
    from deploy.snippets import PublishTarget

__all__ = ["locate_kafka", "locate_settings", "locate_target"]


def locate_settings(config: Path | None, data: Path | None, *, needs_run: bool) -> Settings:
    """The settings to work with.

    Args:
        config: an explicit file; the embedded run is then not looked at.
        data: the embedded run's folder, or None for the default one.
        needs_run: whether its servers must be up; readers of tables work on what a stopped run left.

    Raises:
        UnavailableError: there is no such run.
        ConfigError: both are given: they may name two pipelines.
    """
    if config is not None and data is not None:
        msg = (
            f"--config {config} and --data {data} may name two pipelines. Give one of them. The settings of an embedded run "
            f"are in {data}/config.toml."
        )
        raise ConfigError(msg)
    if config is not None:
        return load_settings(config)
    folder = data_dir(data)
    if needs_run:
        require_run(folder)
    file = folder / "config.toml"
    if not file.exists():
        msg = f"No embedded run has written to {folder}. Start one with `tidegate up`, or name its folder with --data."
        raise UnavailableError(msg)
    # The run's own file holds everything, ports included; the environment of this shell must not bend it.
    return load_settings(file, environ={})


def locate_kafka(config: Path | None, data: Path | None, brokers: str | None) -> KafkaSettings:
    """The cluster to work with: `brokers` alone, or that of the settings.

    Raises:
        UnavailableError: there is no such run.
        ConfigError: more than one of them is given.
    """
    if brokers is None:
        return locate_settings(config, data, needs_run=config is None).kafka
    if config is not None or data is not None:
        other = f"--config {config}" if config is not None else f"--data {data}"
        msg = f"-b {brokers} and {other} may name two clusters. Give one of them"
        raise ConfigError(msg)
    if not brokers.strip():
        msg = "-b is empty: wanted HOST:PORT of a Kafka broker, such as 127.0.0.1:9092"
        raise ConfigError(msg)
    return KafkaSettings(bootstrap_servers=brokers)


def locate_target(config: Path | None, data: Path | None, *, with_password: bool) -> "PublishTarget":
    """Return where devices publish: the broker of --config, else the run's port for MQTT 3.1.1, which most devices speak.

    Raises:
        UnavailableError: there is no such run.
    """
    from deploy.snippets import PublishTarget

    mqtt = locate_settings(config, data, needs_run=config is None).mqtt
    port, where = mqtt.port, "The password of this broker: export MQTT_PASSWORD=..."
    if config is None:
        folder = data_dir(data)
        run = require_run(folder)
        port = run.ports["mqtt"]
        where = f"MQTT_PASSWORD is in {folder / run.credentials}; --with-password prints it here."
    password = mqtt.password.get_secret_value() if mqtt.password is not None and with_password else None
    return PublishTarget(mqtt.host, port, mqtt.username, password, mqtt.tls, mqtt.ca_file, where)
