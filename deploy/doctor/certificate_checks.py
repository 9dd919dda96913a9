"""Findings about certificates: of servers and in files, their ends, lists of revoked ones, and whether a key fits."""

import os
import ssl
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from deploy.local.preflight import PreflightCheck
from deploy.monitor.certificate_probe import certificate_end, tls_servers
from deploy.settings import Settings
from ingest.contract.errors import TidegateError

__all__ = ["check_certificate_files", "check_server_certificates"]

WARN_SECONDS: Final = 30 * 86_400
_SHARED: Final = stat.S_IRWXG | stat.S_IRWXO
_PAIRS: Final = (
    ("mqtt", "cert_file", "key_file", "key_password"),
    ("kafka", "ssl_certificate_file", "ssl_key_file", "ssl_key_password"),
)
"""Section, and its fields for a client certificate, its key and the key's password."""
_AUTHORITIES: Final = (("mqtt", "ca_file"), ("kafka", "ssl_ca_file"), ("kafka", "oauth_ca_file"))

_REVOCATIONS: Final = (("mqtt", "crl_file"), ("kafka", "ssl_crl_file"))


def check_server_certificates(
    settings: Settings, *, end_of: Callable[[str, int], float] = certificate_end, now: Callable[[], float] = time.time
) -> Iterator[PreflightCheck]:
    """Yield the end of the certificate of each server that is reached over TLS."""
    for server, addresses in tls_servers(settings).items():
        for host, port in addresses:
            name = f"the certificate of {server} at {host}:{port}"
            try:
                yield _end(name, end_of(host, port), now(), f"Renew the certificate at {host}.")
            except (OSError, ValueError) as error:
                fix = f"Check that {host}:{port} speaks TLS, or correct [{server}]."
                yield PreflightCheck("certificate", "fail", f"{name} cannot be read ({error})", fix)


def check_certificate_files(settings: Settings, *, now: Callable[[], float] = time.time) -> Iterator[PreflightCheck]:
    """Yield a finding for each certificate and key file that the settings name."""
    for section, field in _AUTHORITIES:
        if path := _setting(settings, section, field):
            yield from _authority(f"{section}.{field}", Path(path), now())
    for section, field in _REVOCATIONS:
        if path := _setting(settings, section, field):
            yield _revocations(f"{section}.{field}", Path(path), now())
    for section, certificate, key, password in _PAIRS:
        paths = _setting(settings, section, certificate), _setting(settings, section, key)
        if paths[0] and paths[1]:
            secret = getattr(getattr(settings, section), password)
            text = "" if secret is None else str(secret.get_secret_value())
            yield from _pair(section, (certificate, key), (Path(paths[0]), Path(paths[1])), text, now())


def _setting(settings: Settings, section: str, field: str) -> str | None:
    value = getattr(getattr(settings, section), field)
    return str(value) if value else None


def _authority(name: str, file: Path, now: float) -> Iterator[PreflightCheck]:
    ends, fault = _ends(file)
    if fault:
        yield PreflightCheck("certificate", "fail", f"{name}: {fault}", f"Give {name} a PEM file with certificates.")
        return
    # The newest decides: a bundle keeps the former authority while certificates of both are in use.
    yield _end(f"the newest authority in {file} ({name})", max(ends), now, f"Add the new authority to {file}.")


def _revocations(name: str, file: Path, now: float) -> PreflightCheck:
    """Return when the first list of revoked certificates ends: from then on all certificates of its authority are refused."""
    from deploy.certificates.revocation import read_revocations

    fix = f"Give {name} a PEM file with a current list of each authority, such as crl.pem of `tidegate certs revoke`."
    try:
        lists = read_revocations(file).lists
    except TidegateError as error:
        return PreflightCheck("certificate", "fail", f"{name}: {str(error).partition('. ')[0]}", fix)
    ends = [one.next_update_utc.timestamp() for one in lists if one.next_update_utc is not None]
    if not lists:
        return PreflightCheck("certificate", "fail", f"{name}: there is no file {file}", fix)
    if not ends:
        return PreflightCheck("certificate", "ok", f"the list of revoked certificates {file} ({name}) has no end")
    return _end(f"the list of revoked certificates {file} ({name})", min(ends), now, fix)


def _pair(
    section: str, fields: tuple[str, str], files: tuple[Path, Path], password: str, now: float
) -> Iterator[PreflightCheck]:
    name = f"{section}.{fields[0]}"
    ends, fault = _ends(files[0])
    if fault:
        yield PreflightCheck(
            "certificate", "fail", f"{name}: {fault}", f"Give {name} a PEM file with the client certificate."
        )
        return
    yield _end(f"the client certificate {files[0]} ({name})", ends[0], now, "Renew it.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(files[0], files[1], password=lambda: password)
    except (OSError, ValueError) as error:
        text = f"{section}.{fields[1]}: {files[1]} is not a usable key of the certificate {files[0]} ({_reason(error)})"
        fix = f"Give {section}.{fields[1]} the private key that belongs to {name}, and its password if it has one."
        yield PreflightCheck("certificate", "fail", text, fix)
        return
    if os.stat(files[1]).st_mode & _SHARED:
        text = f"other users may read the private key {files[1]} ({section}.{fields[1]})"
        yield PreflightCheck("certificate", "warn", text, f"Run `chmod 600 {files[1]}`.")


def _ends(file: Path) -> tuple[Sequence[float], str]:
    """Return the ends of the certificates in a PEM file, in epoch seconds, or why there are none."""
    from deploy.certificates.read import read_certificates

    try:
        found = [one.not_valid_after_utc.timestamp() for one in read_certificates(file).certificates]
    except TidegateError as error:
        return (), str(error).partition(". ")[0]
    return found, "" if found else f"{file} holds no certificate in PEM form"


def _end(name: str, end: float, now: float, fix: str) -> PreflightCheck:
    days = (end - now) / 86_400
    if days < 0:
        return PreflightCheck("certificate", "fail", f"{name} expired {-days:.0f} days ago", fix)
    state = "ok" if end - now > WARN_SECONDS else "warn"
    return PreflightCheck(
        "certificate",
        "ok" if state == "ok" else "warn",
        f"{name} expires in {days:.0f} days",
        "" if state == "ok" else fix,
    )


def _reason(error: Exception) -> str:
    text = str(error).lower()
    if "mismatch" in text:
        return "the key belongs to another certificate"
    return str(getattr(error, "strerror", None) or error)
