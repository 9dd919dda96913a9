"""Broker of an embedded run: its users with their rights, and its listeners for this machine and for others."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from deploy.local.broker import BrokerTls, EmbeddedBroker, NetworkListener, choose_broker, make_broker
from deploy.local.broker_rights import Rights, rights_of_run
from deploy.local.embedded_settings import EmbeddedSettings
from deploy.local.run_logins import DEVICES_USER, RunLogins
from deploy.settings import Settings
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["make_run_broker", "name_for_devices", "notes_of_broker"]

HOST: Final = "127.0.0.1"
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with a setting


def make_run_broker(
    settings: Settings, folder: Path, ports: Mapping[str, int], logins: RunLogins, tls: BrokerTls | None = None
) -> EmbeddedBroker:
    """Make the broker. Tidegate's own parts reach it on loopback, other machines as the settings say.

    Args:
        settings: settings of the run.
        folder: folder of the broker.
        ports: ports of the run.
        logins: users of the run.
        tls: TLS on loopback, for a secured run; the settings then open no plain listener.

    Raises:
        ConfigError: a certificate of the settings cannot be used.
        UnavailableError: the broker of this machine cannot serve others.
    """
    embedded, kind = settings.embedded, choose_broker(settings.embedded.broker)
    is_open = embedded.serves_network and embedded.mqtt_allow_plaintext
    if (embedded.serves_network or "mqtt_tls" in ports) and kind != "mosquitto":
        message = (
            "embedded.mqtt_listen and embedded.mqtt_cert_file need mosquitto, which is not on this machine. Install it, or "
            "remove these settings."
        )
        raise UnavailableError(message)
    # Two listeners cannot share a port if one of them takes all addresses.
    takes_all = is_open and embedded.mqtt_listen in _ALL_ADDRESSES
    broker = make_broker(
        kind,
        folder,
        ports["mqtt"],
        users=logins.passwords,
        rights=_rights(settings, logins),
        port_v5=ports["mqtt_v5"],
        host=embedded.mqtt_listen if takes_all else HOST,
        network=None if takes_all else _network_listener(embedded, ports, is_open=is_open),
        tls=tls,
        window=settings.gateway.window_messages,
    )
    if embedded.serves_network and not broker.has_access_list:
        message = (
            f"embedded.mqtt_listen is {embedded.mqtt_listen}, but the mosquitto of this machine has no access list. Install a "
            "mosquitto with its plugin mosquitto_dynamic_security, or remove embedded.mqtt_listen."
        )
        raise UnavailableError(message)
    return broker


def _rights(settings: Settings, logins: RunLogins) -> dict[str, Rights]:
    """Return the rights of the users; the devices' user reads all if the gateway's session may still be its own."""
    rights = rights_of_run(settings)
    if logins.inherits_session:
        devices = rights[DEVICES_USER]
        rights[DEVICES_USER] = replace(devices, read=(*devices.read, *rights["gateway"].read))
    return rights


def _network_listener(embedded: EmbeddedSettings, ports: Mapping[str, int], *, is_open: bool) -> NetworkListener | None:
    if is_open:
        return NetworkListener(embedded.mqtt_listen, ports["mqtt"])
    if embedded.mqtt_cert_file is None or embedded.mqtt_key_file is None:
        return None
    certificate, key = (str(Path(file).absolute()) for file in (embedded.mqtt_cert_file, embedded.mqtt_key_file))
    try:
        # mosquitto would report it only in its log, and the run would wait for the broker.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        message = (
            f"embedded.mqtt_cert_file, embedded.mqtt_key_file: cannot use {certificate} with {key} ({error}). Name PEM files "
            "with the broker's certificate and its private key, which has no password."
        )
        raise ConfigError(message) from error
    clients, revoked = (
        None if file is None else str(Path(file).absolute())
        for file in (embedded.mqtt_client_ca_file, embedded.mqtt_crl_file)
    )
    _check_stores(clients, revoked)
    return NetworkListener(embedded.mqtt_listen, ports["mqtt_tls"], (certificate, key), clients, revoked)


def _check_stores(clients: str | None, revoked: str | None) -> None:
    """Check that mosquitto can load the authorities of clients, and the list of revoked certificates.

    Raises:
        ConfigError: a file cannot be used.
    """
    wanted = {
        "mqtt_client_ca_file": (clients, "x509_ca", "a PEM file with the authorities of the devices' certificates"),
        "mqtt_crl_file": (
            revoked,
            "crl",
            "a PEM file with a list of revoked certificates, such as crl.pem of `tidegate certs`",
        ),
    }
    for setting, (file, kind, words) in wanted.items():
        if file is None:
            continue
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        fault = "it has none"
        try:
            context.load_verify_locations(file)
        except (OSError, ValueError) as error:
            fault = str(error)
        if not context.cert_store_stats()[kind]:
            message = f"embedded.{setting}: cannot use {file} ({fault}). Name {words}."
            raise ConfigError(message)


def name_for_devices(embedded: EmbeddedSettings) -> str:
    """Return the name or address under which devices reach this machine."""
    if embedded.mqtt_name is not None:
        return embedded.mqtt_name
    return socket.gethostname() if embedded.mqtt_listen in _ALL_ADDRESSES else embedded.mqtt_listen


def notes_of_broker(broker: EmbeddedBroker, logins: RunLogins, embedded: EmbeddedSettings) -> list[dict[str, str]]:
    """Return the warnings that `status` shows while this broker runs."""
    texts = list(broker.warnings)
    if logins.inherits_session:
        texts.append(
            "The gateway's session in this data folder is from an older version: its client id is known, so each user of the "
            "broker could take it over, and the user tidegate may read all topics. Start a run in a new folder to end this."
        )
    if embedded.serves_network and embedded.mqtt_allow_plaintext:
        texts.append(
            f"The MQTT broker serves {embedded.mqtt_listen} without TLS (embedded.mqtt_allow_plaintext): passwords and "
            "readings cross the network unencrypted."
        )
    return [{"part": "broker", "text": text} for text in texts]
