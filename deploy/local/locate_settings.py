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

MOST_CA_LETTERS = 16 * 1024


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

    settings = locate_settings(config, data, needs_run=config is None)
    mqtt = settings.mqtt.with_login("devices")
    password = mqtt.password.get_secret_value() if mqtt.password is not None and with_password else None
    target = PublishTarget(
        mqtt.host, mqtt.port, mqtt.username, password, tls=mqtt.tls, ca_file=mqtt.ca_file, cert_file=mqtt.cert_file,
        key_file=mqtt.key_file, where="The password of this broker: export MQTT_PASSWORD=...",
    )  # fmt: skip
    if config is None:
        folder, embedded = data_dir(data), settings.embedded
        run = require_run(folder)
        where = f"MQTT_PASSWORD is in {folder / run.credentials}; --with-password prints it here."
        target = target._replace(port=run.ports["mqtt"], where=where)
        if embedded.serves_network:
            target = target._replace(host=embedded.mqtt_name or embedded.mqtt_listen)
        if embedded.serves_network and "mqtt_tls" in run.ports:
            target = target._replace(port=run.ports["mqtt_tls"], tls=True, ca_file=embedded.mqtt_ca_file)
            if embedded.mqtt_client_ca_file is not None:
                where += " device.pem holds the device's key and certificate, as a file of `tidegate certs issue` does."
                target = target._replace(cert_file="device.pem", key_file="device.pem", where=where)
    return target._replace(ca_text=_certificates(target.ca_file))


def _certificates(ca_file: str | None) -> str:
    """Return the text of a file of authorities, for devices on other machines; empty without one, and for a large bundle.

    Raises:
        ConfigError: the file cannot be read.
    """
    if ca_file is None:
        return ""
    try:
        text = Path(ca_file).read_text("ascii").strip() + "\n"
        return text if len(text) <= MOST_CA_LETTERS else ""
    except (OSError, ValueError) as error:
        msg = f"{ca_file} cannot be read ({error}). Set mqtt.ca_file or embedded.mqtt_ca_file to a PEM file."
        raise ConfigError(msg) from error
