"""A folder with an authority and the certificates that it signed: made, extended and rotated.

`ca.pem` is the bundle that every server and client trusts, `ca.key` the authority's key. Each other file holds key and
certificate of one server or client, so that a rotation replaces both at once. The current authority is the certificate of the
bundle that fits the key, so a rotation that was killed in the middle leaves a folder that works.
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
from deploy.settings_file import write_private
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = [
    "AUTHORITY_KEY_FILE",
    "RotatedLeaves",
    "drop_old_authorities",
    "init_folder",
    "issue_leaves",
    "rotate_authority",
    "rotate_leaves",
    "write_authority",
]

AUTHORITY_KEY_FILE: Final = "ca.key"
FOLDER_MODE: Final = 0o700
BUNDLE_MODE: Final = 0o644
NEW_AUTHORITY: Final = "make a new authority with `tidegate certs rotate DIR --ca`"


@dataclass(frozen=True)
class RotatedLeaves:
    """Result of a rotation.

    Attributes:
        written: files with a new key and certificate.
        foreign: files that were left as they are: another authority signed the certificate, or the key has a password.
    """

    written: tuple[Path, ...]
    foreign: tuple[Path, ...]


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

    Subject, names and kind of key stay. `days` None keeps the length of time, too.

    Raises:
        ConfigError: as of `init_folder`.
        UnavailableError: as of `issue_leaves`, or there is no such certificate.
    """
    authority, others = _read_authority(folder)
    bundle = (authority.certificate, *others)
    own: list[CertificateFile] = []
    foreign: list[CertificateFile] = []
    for found in _leaves(folder):
        if found.has_key:
            is_own = found.key is not None and find_issuer(found.certificates[0], bundle)
            (own if is_own else foreign).append(found)
    if not own:
        message = f"{folder} has no certificate with a key that its authority signed. Make one with `tidegate certs issue DIR`."
        raise UnavailableError(message)
    leaves = [sign_leaf(authority, _same_request(found, days), now=now) for found in own]
    files = [found.path for found in own]
    with _using(folder):
        _write_leaves(files, leaves)
    return RotatedLeaves(tuple(files), tuple(found.path for found in foreign))


def rotate_authority(folder: Path, *, days: int, now: datetime) -> list[Path]:
    """Make a new authority; the bundle holds it and the former ones. Leaves stay as they are.

    The kind of key stays. The former authority's key may be missing, since this replaces it.

    Raises:
        ConfigError: the bundle cannot be parsed.
        UnavailableError: there is no bundle, or the folder cannot be written.
    """
    former = _read_bundle(folder)
    authority = create_authority(_new_name(now), now=now, days=days, key_kind=_key_kind(former[0]))
    with _using(folder):
        write_authority(folder, authority, former=former)
    return [folder / AUTHORITY_FILE, folder / AUTHORITY_KEY_FILE]


def drop_old_authorities(folder: Path) -> list[Path]:
    """Leave only the current authority in the bundle; return the written files, none if it was alone.

    Raises:
        ConfigError: a certificate of the folder is still signed by a former authority.
        UnavailableError: as of `issue_leaves`.
    """
    authority, others = _read_authority(folder)
    late = [found.path.name for found in _leaves(folder) if find_issuer(found.certificates[0], others)]
    if late:
        message = (
            f"A former authority signed {', '.join(late)}. Run `tidegate certs rotate {shlex.quote(str(folder))}` and bring the "
            "new files to their servers and clients, then drop the former authority."
        )
        raise ConfigError(message)
    if not others:
        return []
    with _using(folder):
        _write_bundle(folder, [authority.certificate])
    return [folder / AUTHORITY_FILE]


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
    """Write the bundle for all users; it has its rights before it gets its name."""
    fresh = folder / f".{AUTHORITY_FILE}.new"
    write_private(fresh, "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in certificates))
    fresh.chmod(BUNDLE_MODE)
    fresh.replace(folder / AUTHORITY_FILE)


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = (
            f"{error.filename or folder} cannot be used ({error.strerror}). Name a folder that you may read and write."
        )
        raise UnavailableError(message) from error
