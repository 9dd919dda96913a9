"""An own certificate authority and the certificates that it signs, in memory: no file is read or written here."""

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ingest.contract.errors import ConfigError

__all__ = ["KeyKind", "KeyedCertificate", "LeafRequest", "SigningKey", "create_authority", "key_pem", "sign_leaf"]

KeyKind = Literal["ec", "rsa"]
"""EC is P-256: small and quick. RSA, 3072 bits, is for devices that know nothing else."""
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

BACKDATED: Final = timedelta(hours=1)
"""A certificate begins this long before it is made: the clock of a device may be slow."""
RSA_BITS: Final = 3072
COMMON_NAME_LETTERS: Final = 64
_CLIENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")
"""Names that need no escape in a subject, in a file name, and in access rules of mosquitto (no + # /) and Kafka (no comma)."""
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True)
class KeyedCertificate:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: SigningKey

    @property
    def certificate_pem(self) -> str:
        """The public part."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    @property
    def pem(self) -> str:
        """Key and certificate in one text, in the form of Kafka's PEM stores; mosquitto, OpenSSL and Python read it too."""
        return key_pem(self.key) + self.certificate_pem


@dataclass(frozen=True)
class LeafRequest:
    """A wanted certificate of a server or a client.

    Args:
        common_name: name in the subject, at most 64 characters; brokers take it as the user of a client.
        names: names and IP addresses under which a server is reached; empty for a client.
        days: days from now until it ends.
        key_kind: kind of its key.
    """

    common_name: str
    names: tuple[str, ...] = ()
    days: int = 365
    key_kind: KeyKind = "ec"

    @property
    def is_server(self) -> bool:
        """True if others connect to it. Its certificate is also one of a client, since Kafka's nodes connect to each other."""
        return bool(self.names)

    @classmethod
    def server(cls, names: str, *, days: int, key_kind: KeyKind = "ec") -> "LeafRequest":
        """Return the request for a server with these names and IP addresses, separated by commas; the first is its subject.

        Raises:
            ConfigError: one is not a host name or an address.
        """
        found = tuple(dict.fromkeys(_host(name) for name in names.split(",")))
        if len(found[0]) > COMMON_NAME_LETTERS:
            message = (
                f"The name {found[0]} has more than {COMMON_NAME_LETTERS} characters. Give a shorter name before it: "
                "--name SHORT,LONG."
            )
            raise ConfigError(message)
        return cls(found[0], found, days, key_kind)

    @classmethod
    def client(cls, name: str, *, days: int, key_kind: KeyKind = "ec") -> "LeafRequest":
        """Return the request for a client of this name.

        Raises:
            ConfigError: the name has characters with a meaning in a subject or an access rule.
        """
        if not _CLIENT.fullmatch(name) or len(name) > COMMON_NAME_LETTERS:
            message = (
                f"{name!r} cannot be the name of a client. Use at most {COMMON_NAME_LETTERS} letters of ASCII, digits and "
                ". _ : @ -, a letter or digit first."
            )
            raise ConfigError(message)
        return cls(name, (), days, key_kind)


def _host(text: str) -> str:
    """Return an IP address in its usual form, or a host name in lower case."""
    name = text.strip().lower()
    try:
        return str(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    # Clients read an unreadable address such as 10.0.0.256 as a name that never matches.
    if not _HOST.fullmatch(name) or re.fullmatch(r"[0-9.]+", name):
        message = (
            f"{text.strip()!r} is not a host name or an IP address. Write it as in DNS, without a port; letters beyond ASCII "
            "become xn--…."
        )
        raise ConfigError(message)
    return name


def create_authority(name: str, *, now: datetime, days: int, key_kind: KeyKind = "ec") -> KeyedCertificate:
    """Return a new authority that signs itself. It may sign certificates of servers and clients, but no other authority."""
    key = _new_key(key_kind)
    subject = _subject(name)
    builder = _builder(subject, subject, key, now, days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), True
    )
    return KeyedCertificate(
        builder.add_extension(_usage(signs_certificates=True), True).sign(key, hashes.SHA256()), key
    )


def sign_leaf(authority: KeyedCertificate, request: LeafRequest, *, now: datetime) -> KeyedCertificate:
    """Return a new certificate with a key of its own, signed by the authority.

    Raises:
        ConfigError: it would end after its authority.
    """
    _check_end(authority.certificate, request.days, now)
    key = _new_key(request.key_kind)
    issuer, issuer_key = authority.certificate.subject, authority.key.public_key()
    builder = (
        _builder(_subject(request.common_name), issuer, key, now, request.days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage(encrypts_keys=request.key_kind == "rsa"), True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(request)), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), False)
    )
    if request.names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in request.names]), False
        )
    return KeyedCertificate(builder.sign(authority.key, hashes.SHA256()), key)


def _check_end(authority: x509.Certificate, days: int, now: datetime) -> None:
    end = authority.not_valid_after_utc
    left = (end - now.replace(microsecond=0)).days
    if left < 1:
        message = (
            f"The authority ends on {end:%Y-%m-%d}, too soon to sign. Make a new one: `tidegate certs rotate DIR --ca`."
        )
        raise ConfigError(message)
    if days > left:
        message = (
            f"A certificate of {days} days would end after its authority ({end:%Y-%m-%d}). Give --days {left} or less, or make "
            "a new authority: `tidegate certs rotate DIR --ca`."
        )
        raise ConfigError(message)


def key_pem(key: SigningKey) -> str:
    """Return a private key as PEM (PKCS#8, not encrypted)."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode("ascii")


def _new_key(kind: KeyKind) -> SigningKey:
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: SigningKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _usage(*, signs_certificates: bool = False, encrypts_keys: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=encrypts_keys,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _purposes(request: LeafRequest) -> list[x509.ObjectIdentifier]:
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    return [ExtendedKeyUsageOID.SERVER_AUTH, client] if request.is_server else [client]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
