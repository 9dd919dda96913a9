"""An authority of a test's own, and what it signs: certificates of clients and of a server on this machine."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


class TestAuthority:
    """Keeps its certificate in `folder`/own-ca.pem, and its key only in memory."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = new_key()
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Authority of a test")])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        own = self._builder(self._name, self._key).add_extension(basic, critical=True)
        self.file = folder / "own-ca.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def client(self, name: str, password: bytes | None = None) -> dict[str, str]:
        """Return settings of Kafka with a certificate for this name; its key is encrypted with the password, if there is one."""
        certificate, key = self._sign(name, password)
        found = {"ssl_certificate_file": str(certificate), "ssl_key_file": str(key)}
        return found | ({} if password is None else {"ssl_key_password": password.decode()})

    def server(self) -> ssl.SSLContext:
        """Return a server's side of TLS on this machine."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._sign("localhost", None))
        return context

    def _sign(self, name: str, password: bytes | None) -> tuple[Path, Path]:
        key = new_key()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        signed = self._builder(subject, key).add_extension(here, critical=False).sign(self._key, hashes.SHA256())
        certificate_file, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate_file.write_bytes(signed.public_bytes(Encoding.PEM))
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return certificate_file, key_file

    def _builder(self, subject: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            self._name, subject, key.public_key(), x509.random_serial_number(), now - timedelta(hours=1),
            now + timedelta(days=1),
        )  # fmt: skip


def new_key() -> rsa.RSAPrivateKey:
    """Return a key of its own."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
