"""Lets Java trust what this machine trusts: a Java that brings its own list knows no authority of a company's network.

pip reads the machine's list; the Java that fetches jars next to it must not fail where pip works. Java reads no PEM, so
the list is written in Java's own simple key store format (JKS, certificates only).
"""

import hashlib
import os
import ssl
import struct
import time
from pathlib import Path

__all__ = ["find_bundle", "trust_options", "write_key_store"]

NAMED_BY = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
USUAL_PLACES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
# The word with which Java's format salts its checksum; any password fits when none is asked for.
_SALT = b"Mighty Aphrodite"
PASSWORD = "changeit"  # noqa: S105 - Java's customary word; the file holds public certificates only


def trust_options(folder: Path) -> list[str]:
    """Return Java options that make it trust this machine's list; empty if there is no list or Java already has one."""
    bundle = find_bundle()
    if bundle is None or "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    store = folder / "trusted.jks"
    try:
        write_key_store(bundle, store)
    except (ssl.SSLError, OSError):  # An unreadable list: Java's own is then the better one.
        return []
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]


def find_bundle() -> Path | None:
    """The file of trusted certificates: named by the environment as for pip, else where systems keep it."""
    places = [os.environ.get(name) for name in NAMED_BY]
    places += [ssl.get_default_verify_paths().cafile, *USUAL_PLACES]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def write_key_store(bundle: Path, store: Path) -> int:
    """Write all certificates of a PEM file as a Java key store; returns how many."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=str(bundle))
    certificates = context.get_ca_certs(binary_form=True)
    entries = [_entry(number, certificate) for number, certificate in enumerate(certificates)]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    checksum = hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + body, usedforsecurity=False).digest()
    store.write_bytes(body + checksum)
    return len(entries)


def _entry(number: int, certificate: bytes) -> bytes:
    milliseconds = int(time.time() * 1000)
    head = struct.pack(">I", 2) + _text(f"ca{number}") + struct.pack(">Q", milliseconds) + _text("X.509")
    return head + struct.pack(">I", len(certificate)) + certificate


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw
