"""Expiry of a TLS server's certificate, also of an invalid certificate."""

import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Final

__all__ = ["certificate_end", "not_after"]

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


def certificate_end(host: str, port: int, *, timeout_seconds: float = 3.0) -> float:
    """Return the end of the server's certificate in epoch seconds.

    It only does the TLS handshake and closes the connection; it sends no data and no credentials.

    Raises:
        OSError: the server is unreachable, does not use TLS, or does not answer in time.
        ValueError: the server sends no certificate, or data that is not one.
    """
    until = time.monotonic() + timeout_seconds
    with socket.create_connection((host, port), timeout=timeout_seconds) as plain:
        plain.settimeout(max(0.05, until - time.monotonic()))
        with _context().wrap_socket(plain, server_hostname=host) as secure:
            shown = secure.getpeercert(binary_form=True)
    if shown is None:
        message = f"{host}:{port} sends no certificate"
        raise ValueError(message)
    return not_after(shown)


def _context() -> ssl.SSLContext:
    """Return a context that accepts any certificate: an expired, self-signed or misnamed one must be read, not rejected."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # Otherwise a short key would be rejected before the certificate is read.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


def not_after(der: bytes) -> float:
    """Return the end of an X.509 certificate in DER, in epoch seconds.

    Python shows the fields of a peer's certificate only after verification, which an expired one fails. So this function walks
    to the field itself: Certificate > tbsCertificate > [version] serial, algorithm, issuer, validity > notAfter (RFC 5280, 4.1).

    Raises:
        ValueError: the data is not such a certificate.
    """
    _, certificate, _ = _element(der, _SEQUENCE)
    _, fields, _ = _element(certificate, _SEQUENCE)
    if fields[:1] == bytes([_VERSION]):
        _, _, fields = _element(fields)
    for _serial_algorithm_issuer in range(3):
        _, _, fields = _element(fields)
    _, validity, _ = _element(fields, _SEQUENCE)
    _, _, end = _element(validity)
    kind, text, _ = _element(end)
    return _time(kind, text.decode("ascii"))


def _element(data: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """Return the first element's tag and content, and the data after it."""
    if len(data) < 2 or (wanted is not None and data[0] != wanted):
        message = "not a certificate: another field was expected"
        raise ValueError(message)
    size, at = data[1], 2
    if size >= 0x80:
        at += size & 0x7F
        size = int.from_bytes(data[2:at], "big")
    if len(data) < at + size:
        message = "not a certificate: it is cut off"
        raise ValueError(message)
    return data[0], data[at : at + size], data[at + size :]


def _time(kind: int, text: str) -> float:
    if kind == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text
    # strptime accepts one digit in place of two.
    if kind not in {_UTC_TIME, _GENERALIZED_TIME} or len(text) != len("YYYYmmddHHMMSSZ"):
        message = "not a certificate: its end is not a time"
        raise ValueError(message)
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
