"""List of revoked certificates (CRL) of a folder: `crl.pem`, with one list per authority of the bundle.

A server with such a file refuses everybody whose authority has no list in it, or one that has ended. So each list lasts as long
as its authority, and the file covers all authorities of the bundle.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from deploy.certificates.issue import BACKDATED, KeyedCertificate
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["REVOCATIONS_FILE", "Revocations", "read_revocations"]

REVOCATIONS_FILE: Final = "crl.pem"
_BEGIN: Final = b"-----BEGIN X509 CRL-----"
_END: Final = b"-----END X509 CRL-----"


@dataclass(frozen=True)
class Revocations:
    """The lists of a file; none where there is no file yet."""

    lists: tuple[x509.CertificateRevocationList, ...] = ()

    @property
    def pem(self) -> str:
        """Content of the file."""
        return "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in self.lists)

    def covers(self, authority: x509.Certificate) -> bool:
        """Return whether the file has the list of this authority."""
        return self._of(authority) is not None

    def revoked_at(self, certificate: x509.Certificate) -> datetime | None:
        """Return the time at which a certificate was revoked; None if it was not."""
        for one in self.lists:
            found = one.get_revoked_certificate_by_serial_number(certificate.serial_number)
            if one.issuer == certificate.issuer and found is not None:
                return found.revocation_date_utc
        return None

    def has(self, authority: x509.Certificate, serial: int) -> bool:
        """Return whether a certificate of this authority is revoked."""
        found = self._of(authority)
        return found is not None and found.get_revoked_certificate_by_serial_number(serial) is not None

    def with_revoked(self, authority: KeyedCertificate, serials: Iterable[int], *, now: datetime) -> "Revocations":
        """Return the lists with more certificates of this authority; also the authority's first list, which may be empty."""
        before = self._of(authority.certificate)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.certificate.subject)
            .last_update(_update_time(before, now))
            .next_update(authority.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(_number(before) + 1), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), False)
        )
        for old in before or ():
            builder = builder.add_revoked_certificate(old)
        for serial in serials:
            one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            builder = builder.add_revoked_certificate(one)
        signed = builder.sign(authority.key, hashes.SHA256())
        return Revocations((signed, *(one for one in self.lists if one is not before)))

    def of_authorities(self, authorities: Sequence[x509.Certificate]) -> "Revocations":
        """Return the lists of these authorities only."""
        return Revocations(tuple(found for one in authorities if (found := self._of(one)) is not None))

    def _of(self, authority: x509.Certificate) -> x509.CertificateRevocationList | None:
        key = authority.public_key()
        own = (one for one in self.lists if one.issuer == authority.subject)
        # Authorities sign with EC or RSA keys only.
        return next((one for one in own if one.is_signature_valid(key)), None)  # type: ignore[arg-type]


def _update_time(before: x509.CertificateRevocationList | None, now: datetime) -> datetime:
    # As with certificates: the clock of a server may be slow. A server that reads its file again while it runs keeps the former
    # list too and asks the later one (OpenSSL, X509_STORE), so two lists must not be of the same second.
    wanted = now - BACKDATED
    return wanted if before is None else max(wanted, before.last_update_utc + timedelta(seconds=1))


def _number(before: x509.CertificateRevocationList | None) -> int:
    if before is None:
        return 0
    try:
        return before.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def read_revocations(file: Path) -> Revocations:
    """Return the lists of a file; none if there is no file.

    Raises:
        UnavailableError: the file cannot be read.
        ConfigError: it holds something else.
    """
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return Revocations()
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}). Name a readable file, or run the command as its owner."
        raise UnavailableError(message) from error
    blocks = [_BEGIN + part.partition(_END)[0] + _END + b"\n" for part in data.split(_BEGIN)[1:]]
    try:
        lists = tuple(x509.load_pem_x509_crl(block) for block in blocks)
    except ValueError as error:
        message = f"{file} holds a list of revoked certificates that cannot be parsed ({error}). Restore the file."
        raise ConfigError(message) from error
    if not lists:
        message = (
            f"{file} holds no list of revoked certificates. Restore the file, or remove it if nothing was revoked."
        )
        raise ConfigError(message)
    return Revocations(lists)
