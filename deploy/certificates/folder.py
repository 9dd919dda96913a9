"""A folder with an authority and the certificates that it signed: made, extended and rotated.

`ca.pem` is the bundle that every server and client trusts, `ca.key` the authority's key. `crl.pem` has the revoked certificates;
`revoke_leaves` makes it. Each other file holds key and certificate of one server or client, so that a rotation replaces both at
once. The current authority is the certificate of the bundle that fits the key, so a rotation that was killed in the middle leaves
a folder that works.
"""

import secrets
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from deploy.certificates.issue import (
    BACKDATED,
    KeyedCertificate,
    KeyKind,
    LeafRequest,
    create_authority,
    key_pem,
    sign_leaf,
)
from deploy.certificates.read import (
    AUTHORITY_FILE,
    CertificateFile,
    find_issuer,
    key_fits,
    read_certificates,
    subject_names,
)
from deploy.certificates.revocation import REVOCATIONS_FILE, Revocations, read_revocations
from deploy.settings_file import write_private
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = [
    "AUTHORITY_KEY_FILE",
    "RotatedLeaves",
    "drop_old_authorities",
    "init_folder",
    "issue_leaves",
    "revoke_leaves",
    "rotate_authority",
    "rotate_leaves",
    "write_authority",
]

AUTHORITY_KEY_FILE: Final = "ca.key"
FOLDER_MODE: Final = 0o700
PUBLIC_MODE: Final = 0o644
NEW_AUTHORITY: Final = "make a new authority with `tidegate certs rotate DIR --ca`"


@dataclass(frozen=True)
class RotatedLeaves:
    """Result of a rotation.

    Attributes:
        written: files with a new key and certificate.
        foreign: files that were left as they are: another authority signed the certificate, or the key has a password.
        revoked: files that were left as they are, because their certificate is revoked.
    """

    written: tuple[Path, ...]
    foreign: tuple[Path, ...]
    revoked: tuple[Path, ...] = ()


def init_folder(
    folder: Path,
    requests: Sequence[LeafRequest],
    *,
    authority_days: int,
    now: datetime,
    key_kind: KeyKind = "ec",
    force: bool = False,
) -> list[Path]:
    """Make an authority and the requested certificates; return the files, the bundle first.

    Raises:
        ConfigError: a file exists and `force` is not given, or a certificate would outlive the authority; nothing was written.
        UnavailableError: the folder cannot be written.
    """
    files = _leaf_files(folder, requests)
    _refuse_existing(folder, (folder / AUTHORITY_FILE, folder / AUTHORITY_KEY_FILE, *files), force)
    authority = create_authority(_new_name(now), now=now, days=authority_days, key_kind=key_kind)
    leaves = [sign_leaf(authority, request, now=now) for request in requests]
    with _using(folder):
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if (folder / REVOCATIONS_FILE).exists():
            # The lists of the replaced authority would shut all clients of this one out.
            _write_public(folder, REVOCATIONS_FILE, Revocations().with_revoked(authority, (), now=now).pem)
        write_authority(folder, authority)
        _write_leaves(files, leaves)
    return [folder / AUTHORITY_FILE, folder / AUTHORITY_KEY_FILE, *files]


def issue_leaves(folder: Path, requests: Sequence[LeafRequest], *, now: datetime, force: bool = False) -> list[Path]:
    """Make certificates that the folder's current authority signs; return their files.

    Raises:
        ConfigError: as of `init_folder`.
        UnavailableError: there is no authority, its key is missing, or the folder cannot be written.
    """
    authority, _ = _read_authority(folder)
    files = _leaf_files(folder, requests)
    _refuse_existing(folder, files, force)
    leaves = [sign_leaf(authority, request, now=now) for request in requests]
    with _using(folder):
        _write_leaves(files, leaves)
    return files


def rotate_leaves(folder: Path, *, days: int | None, now: datetime) -> RotatedLeaves:
    """Replace each certificate of the folder's authorities by a new one of the current authority, with a new key.

    Subject, names and kind of key stay. `days` None keeps the length of time, too. Revoked certificates are not replaced.

    Raises:
        ConfigError: as of `init_folder`.
        UnavailableError: as of `issue_leaves`, or there is no such certificate.
    """
    authority, others = _read_authority(folder)
    bundle = (authority.certificate, *others)
    own: list[CertificateFile] = []
    foreign: list[CertificateFile] = []
    revoked: list[CertificateFile] = []
    revocations = read_revocations(folder / REVOCATIONS_FILE)
    for found in _leaves(folder):
        if revocations.revoked_at(found.certificates[0]):
            revoked.append(found)
        elif found.has_key:
            is_own = found.key is not None and find_issuer(found.certificates[0], bundle)
            (own if is_own else foreign).append(found)
    if not own:
        message = f"{folder} has no certificate with a key that its authority signed. Make one with `tidegate certs issue DIR`."
        raise UnavailableError(message)
    leaves = [sign_leaf(authority, _same_request(found, days), now=now) for found in own]
    files = [found.path for found in own]
    with _using(folder):
        _write_leaves(files, leaves)
    return RotatedLeaves(tuple(files), *(tuple(found.path for found in left) for left in (foreign, revoked)))


def revoke_leaves(folder: Path, names: Sequence[str], serials: Sequence[int], *, now: datetime) -> list[Path]:
    """Add certificates to the list of revoked ones, and make the list if there is none; return its file, none if all are on it.

    A server or client whose file was replaced since has other certificates too: those need their serial numbers.

    Args:
        folder: the folder of the authority.
        names: names of servers or clients with a file in the folder, or names of files.
        serials: serial numbers of certificates that the current authority signed.
        now: time of the revocation.

    Raises:
        ConfigError: a name fits two files, another or a former authority signed a certificate, or the list could not cover a
            former authority; nothing was written.
        UnavailableError: as of `issue_leaves`, or a name has no file.
    """
    authority, others = _read_authority(folder)
    before = read_revocations(folder / REVOCATIONS_FILE)
    for one in others:
        if not before.covers(one):
            message = (
                f"{AUTHORITY_FILE} also holds a former authority, whose key is gone, so no list can be made for it, and servers "
                f"would refuse all its clients. Run `tidegate certs rotate {shlex.quote(str(folder))}`, bring the new files to "
                "their places, and drop the former authority with --drop-old. Then revoke."
            )
            raise ConfigError(message)
    found = [_named_leaf(folder, name) for name in names]
    wanted = [*serials, *(_own_serial(folder, each, authority.certificate) for each in found)]
    fresh = [serial for serial in dict.fromkeys(wanted) if not before.has(authority.certificate, serial)]
    if not fresh and before.covers(authority.certificate):
        return []
    with _using(folder):
        _write_public(folder, REVOCATIONS_FILE, before.with_revoked(authority, fresh, now=now).pem)
    return [folder / REVOCATIONS_FILE]


def _named_leaf(folder: Path, name: str) -> CertificateFile:
    found = [each for each in _leaves(folder) if name in (each.path.name, each.path.stem.partition("-")[2])]
    if not found:
        message = f"{folder} has no certificate {name}. Name one of its files, or give --serial with the serial number."
        raise UnavailableError(message)
    if len(found) > 1:
        message = f"{name} fits {' and '.join(each.path.name for each in found)}. Name the file."
        raise ConfigError(message)
    return found[0]


def _own_serial(folder: Path, found: CertificateFile, authority: x509.Certificate) -> int:
    certificate = found.certificates[0]
    if find_issuer(certificate, [authority]) is None:
        message = (
            f"The current authority did not sign {found.path.name}, so it cannot revoke it. After a change of the authority, "
            f"`tidegate certs rotate {shlex.quote(str(folder))} --drop-old` ends all certificates of the former one."
        )
        raise ConfigError(message)
    return certificate.serial_number


def rotate_authority(folder: Path, *, days: int, now: datetime) -> list[Path]:
    """Make a new authority; the bundle holds it and the former ones. Leaves stay as they are.

    The kind of key stays. The former authority's key may be missing, since this replaces it. A file of revoked certificates keeps
    its lists, and gets one of the new authority.

    Raises:
        ConfigError: the bundle cannot be parsed.
        UnavailableError: there is no bundle, or the folder cannot be written.
    """
    former = _read_bundle(folder)
    authority = create_authority(_new_name(now), now=now, days=days, key_kind=_key_kind(former[0]))
    written = [folder / AUTHORITY_FILE, folder / AUTHORITY_KEY_FILE]
    revocations = read_revocations(folder / REVOCATIONS_FILE)
    with _using(folder):
        if revocations.lists:
            # Before the bundle: servers with this list and the former bundle work.
            _write_public(folder, REVOCATIONS_FILE, revocations.with_revoked(authority, (), now=now).pem)
            written.append(folder / REVOCATIONS_FILE)
        write_authority(folder, authority, former=former)
    return written


def drop_old_authorities(folder: Path) -> list[Path]:
    """Leave only the current authority in the bundle; return the written files, none if it was alone.

    Raises:
        ConfigError: a certificate of the folder is still signed by a former authority.
        UnavailableError: as of `issue_leaves`.
    """
    authority, others = _read_authority(folder)
    revocations = read_revocations(folder / REVOCATIONS_FILE)
    leaves = (each for each in _leaves(folder) if revocations.revoked_at(each.certificates[0]) is None)
    late = [found.path.name for found in leaves if find_issuer(found.certificates[0], others)]
    if late:
        message = (
            f"A former authority signed {', '.join(late)}. Run `tidegate certs rotate {shlex.quote(str(folder))}` and bring the "
            "new files to their servers and clients, then drop the former authority."
        )
        raise ConfigError(message)
    if not others:
        return []
    written = [folder / AUTHORITY_FILE]
    with _using(folder):
        _write_bundle(folder, [authority.certificate])
        if revocations.lists:
            _write_public(folder, REVOCATIONS_FILE, revocations.of_authorities([authority.certificate]).pem)
            written.append(folder / REVOCATIONS_FILE)
    return written


def write_authority(folder: Path, authority: KeyedCertificate, *, former: Iterable[x509.Certificate] = ()) -> None:
    """Write the bundle with this authority first, and the authority's key.

    Raises:
        OSError: the folder cannot be written.
    """
    # The bundle first: between the two writes the former key still fits its certificate in the bundle.
    _write_bundle(folder, [authority.certificate, *former])
    write_private(folder / AUTHORITY_KEY_FILE, key_pem(authority.key))


def _new_name(now: datetime) -> str:
    # A name of its own: clients that look for an issuer by its name find the right one of two.
    return f"Tidegate authority {now:%Y-%m-%d} {secrets.token_hex(3)}"


def _read_bundle(folder: Path) -> tuple[x509.Certificate, ...]:
    file = folder / AUTHORITY_FILE
    with _using(folder):
        missing = not file.exists()
    if missing:
        message = f"{folder} has no authority: {AUTHORITY_FILE} is missing. Make one with `tidegate certs init`."
        raise UnavailableError(message)
    found = read_certificates(file).certificates
    if not found:
        message = f"{file} holds no certificate. Restore it, or start a new authority with `tidegate certs init DIR`."
        raise ConfigError(message)
    return found


def _read_authority(folder: Path) -> tuple[KeyedCertificate, tuple[x509.Certificate, ...]]:
    """Return the current authority, and the others of the bundle."""
    bundle, file = _read_bundle(folder), folder / AUTHORITY_KEY_FILE
    if not file.is_file():
        message = f"{file}, the authority's key, is missing, so nothing can be signed. Restore it, or {NEW_AUTHORITY}."
        raise UnavailableError(message)
    key = read_certificates(file).key
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        message = f"{file} holds no EC or RSA key without a password. Restore it, or {NEW_AUTHORITY}."
        raise ConfigError(message)
    current = next((one for one in bundle if key_fits(one, key)), None)
    if current is None:
        message = (
            f"{file} fits no certificate of {AUTHORITY_FILE}. Restore the two files of one day, or {NEW_AUTHORITY}."
        )
        raise ConfigError(message)
    return KeyedCertificate(current, key), tuple(one for one in bundle if one != current)


def _leaves(folder: Path) -> Iterator[CertificateFile]:
    """Files with a certificate of a server or a client."""
    for path in sorted(folder.glob("*.pem")):
        if path.name != AUTHORITY_FILE:
            found = read_certificates(path)
            if found.certificates:
                yield found


def _same_request(found: CertificateFile, days: int | None) -> LeafRequest:
    certificate = found.certificates[0]
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    whole = certificate.not_valid_after_utc - certificate.not_valid_before_utc - BACKDATED
    common_name = str(names[0].value) if names else found.path.stem
    return LeafRequest(common_name, subject_names(certificate), days or max(1, whole.days), _key_kind(certificate))


def _key_kind(certificate: x509.Certificate) -> KeyKind:
    return "rsa" if isinstance(certificate.public_key(), rsa.RSAPublicKey) else "ec"


def _leaf_files(folder: Path, requests: Iterable[LeafRequest]) -> list[Path]:
    files = []
    for request in requests:
        kind = "server" if request.is_server else "client"
        file = folder / f"{kind}-{request.common_name.replace('*', '_')}.pem"
        if file in files:
            message = f"{request.common_name} is named twice. Name each {kind} once."
            raise ConfigError(message)
        files.append(file)
    return files


def _refuse_existing(folder: Path, files: Iterable[Path], force: bool) -> None:
    with _using(folder):
        existing = [file.name for file in files if file.exists()]
    if existing and not force:
        names = ", ".join(existing[:3]) + (f" and {len(existing) - 3} more" if len(existing) > 3 else "")
        message = f"{folder} already has {names}. Name another folder, or give --force to replace them."
        raise ConfigError(message)


def _write_leaves(files: Iterable[Path], leaves: Iterable[KeyedCertificate]) -> None:
    for file, leaf in zip(files, leaves, strict=True):
        write_private(file, leaf.pem)


def _write_bundle(folder: Path, certificates: Iterable[x509.Certificate]) -> None:
    text = "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in certificates)
    _write_public(folder, AUTHORITY_FILE, text)


def _write_public(folder: Path, name: str, text: str) -> None:
    """Write a file for all users; it has its rights before it gets its name."""
    fresh = folder / f".{name}.new"
    write_private(fresh, text)
    fresh.chmod(PUBLIC_MODE)
    fresh.replace(folder / name)


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = (
            f"{error.filename or folder} cannot be used ({error.strerror}). Name a folder that you may read and write."
        )
        raise UnavailableError(message) from error
