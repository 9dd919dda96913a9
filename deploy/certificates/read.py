"""Certificates in files of anybody: what they say, if their key fits, and if an authority of a bundle signed them."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from deploy.certificates.revocation import REVOCATIONS_FILE, Revocations, read_revocations
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = [
    "AUTHORITY_FILE",
    "CertificateFile",
    "CertificateReport",
    "find_issuer",
    "key_fits",
    "read_certificates",
    "report_certificates",
    "subject_names",
]

AUTHORITY_FILE: Final = "ca.pem"
"""Name of the bundle of trusted authorities in a folder of certificates."""
ENDINGS: Final = (".pem", ".crt", ".cer", ".der")
MOST_LINKS: Final = 10
"""Certificates from a leaf to its authority; more is a circle."""
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_USAGES: Final = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
OTHERS_MAY: Final = 0o077
"""Rights on a file of users other than its owner."""


@dataclass(frozen=True)
class CertificateFile:
    """Content of one file.

    Attributes:
        path: the file.
        certificates: all its certificates, in their order; empty if it has none.
        key: its private key; None without one, and for a key that a password protects.
        has_key: it holds a private key, readable or not.
    """

    path: Path
    certificates: tuple[x509.Certificate, ...]
    key: PrivateKeyTypes | None = None
    has_key: bool = False


@dataclass(frozen=True)
class CertificateReport:
    """Content of one certificate, and what is wrong with it.

    Attributes:
        key_fits: None if no key is at hand.
        verifies: an authority of the bundle signed it, directly or by others; None without a bundle.
        problems: sentences for people; empty if all is well.
    """

    file: str
    subject: str
    names: tuple[str, ...]
    issuer: str
    serial: str
    begins_at: datetime
    ends_at: datetime
    days_left: int
    usage: tuple[str, ...]
    key: str
    key_fits: bool | None
    verifies: bool | None
    problems: tuple[str, ...]


def read_certificates(file: Path) -> CertificateFile:
    """Read a PEM file with certificates, a private key or both, or a DER file with one certificate.

    Raises:
        UnavailableError: the file cannot be read.
        ConfigError: it holds a certificate or key that nobody can parse.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Name a readable file, or run the command as its owner."
        raise UnavailableError(message) from error
    blocks = [(match[1].decode("ascii"), match[0]) for match in _BLOCK.finditer(data)]
    try:
        if not blocks:
            return CertificateFile(file, _load_der(data))
        texts = [text for label, text in blocks if label == "CERTIFICATE"]
        certificates = tuple(_parsed(x509.load_pem_x509_certificate(text)) for text in texts)
        keys = [text for label, text in blocks if label.endswith("PRIVATE KEY")]
        return CertificateFile(file, certificates, _load_key(keys[0]) if keys else None, bool(keys))
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension) as error:
        message = f"{file} holds a certificate or a key that cannot be parsed ({error}). Create or copy the file again."
        raise ConfigError(message) from error


def _load_der(data: bytes) -> tuple[x509.Certificate, ...]:
    return (_parsed(x509.load_der_x509_certificate(data)),) if data[:1] == b"\x30" else ()


def _parsed(certificate: x509.Certificate) -> x509.Certificate:
    # The library parses these only when they are read.
    _ = certificate.subject, certificate.issuer, certificate.extensions, certificate.public_key()
    return certificate


def _load_key(text: bytes) -> PrivateKeyTypes | None:
    with suppress(TypeError):  # it has a password
        return serialization.load_pem_private_key(text, password=None)
    return None


def key_fits(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Return whether the certificate is about this private key."""
    return certificate.public_key() == key.public_key()


def _is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others."""
    with suppress(x509.ExtensionNotFound):
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    return False


def subject_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the host names and IP addresses of a certificate, without other kinds of names."""
    with suppress(x509.ExtensionNotFound):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
        return (*found.get_values_for_type(x509.DNSName), *addresses)
    return ()


def find_issuer(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the authority whose signature the certificate has; None if no such one is among them."""
    return next((one for one in authorities if _is_authority(one) and _signed(certificate, one)), None)


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    # Two authorities may share a name, such as before and after a rotation: the signature decides.
    with suppress(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        certificate.verify_directly_issued_by(issuer)
        return True
    return False


def report_certificates(path: Path, *, bundle: Path | None = None, now: datetime) -> list[CertificateReport]:
    """Return what is in each certificate of a file, or of all files of a folder with the ending of certificates.

    A private key is found in the file itself, or in the file of this name that ends in `.key`; revoked certificates in `crl.pem`
    of the same folder.

    Args:
        path: a file or a folder.
        bundle: file with the trusted authorities; None takes `ca.pem` of the same folder, if there is one.
        now: time at which the certificates are judged.

    Raises:
        UnavailableError: a file or the folder cannot be read, or there is no certificate.
        ConfigError: a file cannot be parsed.
    """
    try:
        is_folder = path.is_dir()
        reports = _report_files(_certificate_files(path) if is_folder else [path], bundle, now)
    except OSError as error:
        where = error.filename or path
        message = f"{where} cannot be read ({error.strerror}). Name a readable folder, or run the command as its owner."
        raise UnavailableError(message) from error
    if not reports:
        what = f"no file with a certificate ({', '.join(ENDINGS)})" if is_folder else "no certificate"
        message = f"{path} holds {what}. Name a PEM or DER file, or a folder with such files."
        raise UnavailableError(message)
    return reports


def _certificate_files(folder: Path) -> list[Path]:
    files = [file for file in folder.iterdir() if file.suffix in ENDINGS and file.is_file()]
    return sorted(files, key=lambda file: (file.name != AUTHORITY_FILE, file.name))


def _report_files(files: Sequence[Path], bundle: Path | None, now: datetime) -> list[CertificateReport]:
    """Return the reports of files of one folder."""
    usual = files[0].parent / AUTHORITY_FILE if files else None
    trusted = bundle or (usual if usual is not None and usual.is_file() else None)
    authorities = None if trusted is None else read_certificates(trusted).certificates
    revocations = read_revocations(files[0].parent / REVOCATIONS_FILE) if files else Revocations()
    return [report for file in files for report in _report_file(read_certificates(file), authorities, revocations, now)]


def _report_file(
    found: CertificateFile, authorities: Sequence[x509.Certificate] | None, revocations: Revocations, now: datetime
) -> list[CertificateReport]:
    key_file = found.path.with_suffix(".key")
    held = found if found.has_key or not key_file.is_file() else read_certificates(key_file)
    fitting = [held.key is not None and key_fits(one, held.key) for one in found.certificates]
    reports = []
    for at, certificate in enumerate(found.certificates):
        fits: bool | None = True if fitting[at] else None
        if held.key is not None and at == 0 and not any(fitting):
            fits = False
        # Only the certificate of the key concerns this file's rights; the others of a chain do not.
        exposed = held.path if held.has_key and at == 0 and held.path.stat().st_mode & OTHERS_MAY else None
        faults = (
            [f"It was revoked on {revoked:%Y-%m-%d %H:%M} UTC."]
            if (revoked := revocations.revoked_at(certificate))
            else []
        )
        if exposed:
            faults.append(f"Other users have rights on {exposed.name}, which holds a private key: run chmod 600.")
        reports.append(_report(found, certificate, authorities, fits, faults, now))
    return reports


def _report(
    found: CertificateFile,
    certificate: x509.Certificate,
    authorities: Sequence[x509.Certificate] | None,
    fits: bool | None,
    faults: Sequence[str],
    now: datetime,
) -> CertificateReport:
    fault = None if authorities is None else _chain_fault(certificate, found.certificates, authorities, now)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    problems = [
        *([f"It begins only on {begins:%Y-%m-%d %H:%M} UTC."] if begins > now else []),
        *([f"It ended on {ends:%Y-%m-%d %H:%M} UTC."] if ends <= now else []),
        *(["The private key belongs to another certificate."] if fits is False else []),
        *([fault] if fault else []),
        *faults,
    ]
    return CertificateReport(
        file=str(found.path),
        subject=certificate.subject.rfc4514_string(),
        names=subject_names(certificate),
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        begins_at=begins,
        ends_at=ends,
        days_left=(ends - now).days,
        usage=_usage(certificate),
        key=_key_kind(certificate),
        key_fits=fits,
        verifies=None if fault is None else not fault,
        problems=tuple(problems),
    )


def _chain_fault(
    certificate: x509.Certificate,
    others: Sequence[x509.Certificate],
    authorities: Sequence[x509.Certificate],
    now: datetime,
) -> str:
    """Return why a certificate does not lead to a trusted authority; empty if it does."""
    for _ in range(MOST_LINKS):
        if certificate in authorities:
            return ""
        issuer = find_issuer(certificate, (*authorities, *others))
        if issuer is None or issuer == certificate:
            return f"No trusted authority signed it: its issuer is {certificate.issuer.rfc4514_string()}."
        if not issuer.not_valid_before_utc <= now < issuer.not_valid_after_utc:
            return f"Its authority {issuer.subject.rfc4514_string()} is not valid now."
        certificate = issuer
    return "Its chain of authorities has no end."


def _usage(certificate: x509.Certificate) -> tuple[str, ...]:
    if _is_authority(certificate):
        return ("authority",)
    try:
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ("any",)
    return tuple(_USAGES.get(purpose, purpose.dotted_string) for purpose in purposes)


def _key_kind(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey):
        return f"{'RSA' if isinstance(key, rsa.RSAPublicKey) else 'DSA'} {key.key_size}"
    return type(key).__name__.removesuffix("PublicKey")
