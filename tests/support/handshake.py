"""A TLS handshake in memory: OpenSSL judges certificates, without a socket."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["shake_hands"]


def shake_hands(
    server: Path,
    trusted: Path,
    name: str,
    *,
    client: Path | None = None,
    clients: Path | None = None,
    revoked: Path | None = None,
) -> Any:
    """Return the client's certificate as the server sees it, None without one.

    Args:
        server: file with key and certificate of the server.
        trusted: bundle of the client.
        name: name or address under which the client reaches the server.
        client: file with key and certificate of the client.
        clients: bundle of the server, which then demands a certificate.
        revoked: list of revoked certificates of the server.

    Raises:
        SSLError: one of the two does not accept the other.
    """
    asking, answering = ssl.create_default_context(cafile=str(trusted)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Python 3.13 sets this by default: the extensions that RFC 5280 demands must be there.
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    answering.verify_flags |= ssl.VERIFY_X509_STRICT
    answering.load_cert_chain(server)
    if client is not None:
        asking.load_cert_chain(client)
    if clients is not None:
        answering.load_verify_locations(clients)
        answering.verify_mode = ssl.CERT_REQUIRED
    if revoked is not None:
        answering.load_verify_locations(revoked)
        answering.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = asking.wrap_bio(down, up, server_hostname=name)
    other = answering.wrap_bio(up, down, server_side=True)
    # Both speak until both are content; with TLS 1.3 the server reads the client's certificate last.
    for side in (one, other, one, other, one, other):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    one.do_handshake()
    other.do_handshake()
    return other.getpeercert() or None
