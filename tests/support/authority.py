"""A certificate authority of a test, and the certificates that it signs.

`from tests.support.authority import Authority`.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from deploy.certificates.issue import KeyedCertificate, LeafRequest, create_authority, key_pem, sign_leaf
from deploy.settings_file import write_private


class Pair(NamedTuple):
    """Files with a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """An authority in a folder of its own; `file` is its certificate, and only the memory has its key."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = create_authority(name, now=datetime.now(UTC), days=10)
        self.file = folder / f"{name}.pem"
        self.file.write_text(self._own.certificate_pem)

    def self_signed(self, name: str) -> Pair:
        """A certificate that signed itself."""
        return self._write(name, create_authority(name, now=datetime.now(UTC), days=2))

    def issue(self, name: str, *, host: str = "127.0.0.1", password: str = "") -> Pair:
        """A certificate of a server or a client with this common name. A password encrypts its key."""
        return self._write(name, self._sign(name, (host,), datetime.now(UTC)), password)

    def issue_expired(self, name: str) -> Pair:
        """A certificate that expired yesterday."""
        return self._write(name, self._sign(name, ("127.0.0.1",), datetime.now(UTC) - timedelta(days=3)))

    def kafka_login(self, name: str, password: str = "") -> dict[str, str]:
        """Return settings of Kafka with a certificate for this name."""
        pair = self.issue(name, password=password)
        found = {"ssl_certificate_file": str(pair.certificate), "ssl_key_file": str(pair.key)}
        return found | ({"ssl_key_password": password} if password else {})

    def server(self) -> ssl.SSLContext:
        """Return a server's side of TLS on this machine."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(
            *self._write("server", self._sign("server", ("localhost", "127.0.0.1"), datetime.now(UTC)))
        )
        return context

    def _sign(self, name: str, hosts: tuple[str, ...], now: datetime) -> KeyedCertificate:
        return sign_leaf(self._own, LeafRequest(name, hosts, days=2), now=now)

    def _write(self, name: str, made: KeyedCertificate, password: str = "") -> Pair:
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.certificate.write_text(made.certificate_pem)
        form = (Encoding.PEM, PrivateFormat.PKCS8)
        locked = (
            made.key.private_bytes(*form, BestAvailableEncryption(password.encode())).decode() if password else None
        )
        write_private(pair.key, locked or key_pem(made.key))
        return pair
