"""A mosquitto of a test bed with its own folder: plaintext, TLS, or TLS with a user and a password."""

import json
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.ports import choose_port
from deploy.testbed.cluster_layout import HOST
from deploy.testbed.cluster_security import AUTHORITY_FILE, NODE_FILE, make_certificates
from deploy.testbed.server_process import ProcessIdentity, ServerProcess, SingleServer
from ingest.contract.errors import UnavailableError

__all__ = ["IDENTITY_FILE", "MqttAddress", "MqttSecurity", "end_mosquitto", "mosquitto_version", "open_mosquitto"]

MqttSecurity = Literal["plaintext", "tls", "tls_password"]
IDENTITY_FILE: Final = "mosquitto.json"
USER: Final = "device"


@dataclass(frozen=True)
class MqttAddress:
    """Address and credentials for a client; without a user it gives none, without a file it uses no TLS."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    ca_file: str | None = None


class _Mosquitto(Mosquitto):
    def __init__(self, folder: Path, address: MqttAddress, certificates: Path) -> None:
        users = {USER: address.password or secrets.token_hex(12)}
        super().__init__(folder, address.port, users=users, host=address.host)
        self._address, self._certificates = address, certificates

    def _entrance(self) -> list[str]:
        lines = [f"listener {self.port} {self.host}"]
        if self._address.ca_file:
            pem = self._certificates / NODE_FILE
            lines += [f"certfile {pem}", f"keyfile {pem}"]
        if self._address.username:
            return [*lines, "allow_anonymous false", f"password_file {self.folder}/passwords"]
        return [*lines, "allow_anonymous true"]

    def _context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self._address.ca_file) if self._address.ca_file else None


@contextmanager
def open_mosquitto(folder: Path, security: MqttSecurity) -> Iterator[tuple[SingleServer, MqttAddress]]:
    """A broker that answers while the block runs; its files stay in the folder.

    Raises:
        UnavailableError: mosquitto is not on this machine, or it does not start.
    """
    if find_mosquitto() is None:
        message = "mosquitto is not on this machine. Install it to measure MQTT."
        raise UnavailableError(message)
    certificates = folder / "certificates"
    encrypts = security != "plaintext"
    if encrypts:
        make_certificates(certificates)
    port, _ = choose_port(0, HOST)
    user = (USER, secrets.token_hex(12)) if security == "tls_password" else ("", "")
    address = MqttAddress(HOST, port, *user, str(certificates / AUTHORITY_FILE) if encrypts else None)
    server = SingleServer(_Mosquitto(folder / "mosquitto", address, certificates), folder / "mosquitto.log")
    try:
        (folder / IDENTITY_FILE).write_text(json.dumps(asdict(_identity(server))), "utf-8")
        yield server, address
    finally:
        server.stop()


def end_mosquitto(folder: Path) -> None:
    """End the broker of a folder that another process left."""
    found: dict[str, Any] = json.loads((folder / IDENTITY_FILE).read_text("utf-8"))
    ServerProcess(folder / "mosquitto.log", identity=ProcessIdentity(**found)).end(0)


def mosquitto_version() -> str:
    """Return the version of the mosquitto that is started; empty if there is none."""
    executable = find_mosquitto()
    if executable is None:
        return ""
    said = subprocess.run([str(executable), "-h"], capture_output=True, text=True, check=False, timeout=30).stdout
    return said.partition("version ")[2].split()[0] if "version " in said else ""


def _identity(server: SingleServer) -> ProcessIdentity:
    if server.identity is None:
        raise AssertionError
    return server.identity
