"""The probe `certificates`: expiry of the TLS certificates of the MQTT broker and of Kafka, also of invalid certificates.

Each server is asked once an hour. The client certificates that `[mqtt]` names count too: a broker refuses expired ones.
"""

import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from deploy.settings import Settings
from gateway.gateway_settings import MqttLogin
from ingest.contract.errors import TidegateError
from monitoring.metrics.families import Samples
from monitoring.periodic_query import IncompleteError

__all__ = ["CertificateProbe", "certificate_end", "certificate_files", "end_asker", "not_after", "tls_servers"]

ASK_SECONDS: Final = 3600.0
ASK_AGAIN_SECONDS: Final = 60.0
KAFKA_PORT: Final = 9092

Address = tuple[str, int]


def certificate_end(host: str, port: int, *, timeout_seconds: float = 3.0, presents: MqttLogin | None = None) -> float:
    """Return the end of the server's certificate in epoch seconds.

    It only does the TLS handshake and closes the connection; it sends no data and no credentials. With TLS 1.2 a server that
    asks for a client certificate ends the handshake without one, so it presents the certificate of `presents`.

    Raises:
        OSError: the server is unreachable, does not use TLS, or does not answer in time.
        ValueError: the server sends no certificate, or data that is not one.
    """
    until = time.monotonic() + timeout_seconds
    with socket.create_connection((host, port), timeout=timeout_seconds) as plain:
        plain.settimeout(max(0.05, until - time.monotonic()))
        with _context(presents).wrap_socket(plain, server_hostname=host) as secure:
            shown = secure.getpeercert(binary_form=True)
    if shown is None:
        message = f"{host}:{port} sends no certificate"
        raise ValueError(message)
    return not_after(shown)


def _context(presents: MqttLogin | None) -> ssl.SSLContext:
    """Return a context that accepts any certificate: an expired, self-signed or misnamed one must be read, not rejected."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Otherwise a short key would be rejected before the certificate is read.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    if presents is not None and presents.cert_file is not None:
        secret = presents.key_password.get_secret_value() if presents.key_password is not None else ""
        context.load_cert_chain(presents.cert_file, presents.key_file, password=lambda: secret)
    return context


def end_asker(settings: Settings) -> Callable[[str, int], float]:
    """Return `certificate_end` for the servers of the settings: only the MQTT broker gets the client certificate of `[mqtt]`."""
    mqtt = settings.mqtt.with_login("monitor")

    def end_of(host: str, port: int) -> float:
        return certificate_end(host, port, presents=mqtt if (host, port) == (mqtt.host, mqtt.port) else None)

    return end_of


def not_after(der: bytes) -> float:
    """Return the end of an X.509 certificate in DER, in epoch seconds.

    Python shows the fields of a peer's certificate only after verification, which an expired one fails.

    Raises:
        ValueError: the data is not such a certificate.
    """
    # A pipeline without TLS does not load the library: it takes 12 MB.
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from error


def tls_servers(settings: Settings) -> dict[str, tuple[Address, ...]]:
    """Return the addresses of servers reached over TLS, by `server` label; empty without any."""
    servers: dict[str, tuple[Address, ...]] = {}
    if settings.mqtt.tls:
        servers["mqtt"] = ((settings.mqtt.host, settings.mqtt.port),)
    if settings.kafka.security_protocol.endswith("SSL"):
        texts = settings.kafka.bootstrap_servers.split(",")
        servers["kafka"] = tuple(_address(text) for text in texts if text.strip())
    return servers


def certificate_files(settings: Settings) -> dict[str, str]:
    """Return the files of our client certificates, by `server` label; empty without any."""
    mqtt = settings.mqtt
    logins = {
        "mqtt_client": mqtt,
        "mqtt_canary": mqtt.canary,
        "mqtt_monitor": mqtt.monitor,
        "mqtt_devices": mqtt.devices,
    }
    return {name: login.cert_file for name, login in logins.items() if login is not None and login.cert_file}


def _file_end(file: str) -> float:
    """Return the end of the first certificate of a PEM file in epoch seconds; raises TidegateError or ValueError."""
    from deploy.certificates.read import read_certificates

    found = read_certificates(Path(file)).certificates
    if not found:
        message = "it holds no certificate"
        raise ValueError(message)
    return found[0].not_valid_after_utc.timestamp()


def _address(text: str) -> Address:
    """Parse `host`, `host:port` or `[v6]:port`, each with or without `SSL://`, like the Kafka client."""
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        host, port = f"{host}:{port}" if host else port, str(KAFKA_PORT)
    return host.strip("[]"), int(port)


class CertificateProbe:
    """Probe that checks each server once an hour, and after a failure once a minute, however often `look` is called."""

    def __init__(
        self,
        servers: Mapping[str, Sequence[Address]],
        *,
        files: Mapping[str, str] | None = None,
        end_of: Callable[[str, int], float] = certificate_end,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._files, self._end_of, self._clock = servers, files or {}, end_of, clock
        self._due: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._faults: dict[str, str] = {}

    def look(self) -> Samples:
        """Return the earliest expiry over the addresses of each server; no sample for a server that could not be reached.

        Raises:
            IncompleteError: a certificate cannot be read. Every look raises it until then, since alerts count failed looks.
        """
        for server, addresses in self._servers.items():
            if self._clock() >= self._due.get(server, 0.0):
                self._ask(server, addresses)
        for name, file in self._files.items():
            if self._clock() >= self._due.get(name, 0.0):
                self._read(name, file)
        series: list[tuple[tuple[str, ...], float]] = [((server,), end) for server, end in sorted(self._ends.items())]
        samples: Samples = {"tidegate_certificate_expiry_timestamp_seconds": series}
        if self._faults:
            raise IncompleteError("; ".join(fault for _, fault in sorted(self._faults.items())), samples)
        return samples

    def _read(self, name: str, file: str) -> None:
        try:
            self._note(name, [_file_end(file)], [])
        except (TidegateError, ValueError) as error:
            self._note(name, [], [f"the client certificate {file} cannot be read: {error}"])

    def _ask(self, server: str, addresses: Sequence[Address]) -> None:
        ends, faults = [], []
        for host, port in addresses:
            try:
                ends.append(self._end_of(host, port))
            except (OSError, ValueError) as error:
                faults.append(f"the certificate of {server} at {host}:{port} cannot be read: {error}")
        self._note(server, ends, faults)

    def _note(self, server: str, ends: Sequence[float], faults: Sequence[str]) -> None:
        self._ends.pop(server, None)
        self._faults.pop(server, None)
        if ends:
            self._ends[server] = min(ends)
        if faults:
            self._faults[server] = "; ".join(faults)
        self._due[server] = self._clock() + (ASK_AGAIN_SECONDS if faults else ASK_SECONDS)
