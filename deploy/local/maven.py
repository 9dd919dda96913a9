"""Download of exact jars from Maven with the Ivy that pyspark bundles, through this machine's mirror, proxy and certificates.

The code has no address of a repository. Ivy uses its default repository, or a mirror: TIDEGATE_MAVEN_REPOSITORY of the
environment, else the first mirror of `central` or `*` in ~/.m2/settings.xml.

Where pip works, Java must work too. But Java does not know the certificate authorities of a company's network, and it cannot
read PEM files. So the machine's list is written in Java's simple key store format (JKS, certificates only).
"""

import hashlib
import os
import re
import ssl
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from deploy.local.java import Java
from deploy.settings import java_locale

__all__ = ["MIRROR_VARIABLE", "count_fetched", "failure_line", "fetched_jar", "find_mirror", "start_ivy"]

MIRROR_VARIABLE = "TIDEGATE_MAVEN_REPOSITORY"
# Ivy keys a module by organisation and name; `transitive` is off because the lock lists all that is needed.
_DEPENDENCY = '<dependency org={org} name={name} rev={rev} transitive="false" conf="default->*" force="true"/>'

NAMED_BY = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
USUAL_PLACES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
# Java's format salts its checksum with this text.
_SALT = b"Mighty Aphrodite"
PASSWORD = "changeit"  # noqa: S105 - Java's customary word; the file holds public certificates only


def find_mirror(home: Path) -> str | None:
    """Return the repository address of this machine's mirror; None for Ivy's default."""
    if named := os.environ.get(MIRROR_VARIABLE):
        return named
    try:
        text = (home / ".m2" / "settings.xml").read_text(encoding="utf-8")
        root = ElementTree.fromstring(re.sub(r'\sxmlns="[^"]+"', "", text, count=1))  # noqa: S314 - the user's own file
    except (OSError, ElementTree.ParseError, UnicodeDecodeError):
        return None
    for mirror in root.iter("mirror"):
        if {"central", "*"} & set(mirror.findtext("mirrorOf", "").replace(" ", "").split(",")):
            return mirror.findtext("url")
    return None


def start_ivy(
    java: Java, ivy_jar: Path, workdir: Path, coordinates: Sequence[tuple[str, str, str]], mirror: str | None
) -> "subprocess.Popen[bytes]":
    """Start Ivy. It puts the jars into its cache under `workdir` (see `fetched_jar`), and its log into `ivy.log` there."""
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "ivy.xml").write_text(_module(coordinates), encoding="utf-8")
    (workdir / "ivysettings.xml").write_text(_settings(workdir, mirror), encoding="utf-8")
    command = [str(java.executable), *java.gc_options, "-XX:TieredStopAtLevel=1", "-Xmx256m", *_proxy_options()]
    command += [
        *trust_options(workdir),
        "-cp",
        str(ivy_jar),
        "org.apache.ivy.Main",
        "-settings",
        str(workdir / "ivysettings.xml"),
    ]
    command += ["-ivy", str(workdir / "ivy.xml")]
    with (workdir / "ivy.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=workdir,
            env={**os.environ, **java_locale()},
        )  # fmt: skip


def _module(coordinates: Sequence[tuple[str, str, str]]) -> str:
    lines = [
        _DEPENDENCY.format(org=quoteattr(group), name=quoteattr(name), rev=quoteattr(version))
        for group, name, version in coordinates
    ]
    return (
        '<ivy-module version="2.0"><info organisation="tidegate" module="parts" revision="1"/>'
        '<configurations><conf name="default"/></configurations><dependencies>\n'
        + "\n".join(lines)
        + "\n</dependencies></ivy-module>\n"
    )


def _settings(workdir: Path, mirror: str | None) -> str:
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        f'<ivysettings><settings defaultResolver="maven"/>'
        f'<caches defaultCacheDir={quoteattr(str(workdir / "cache"))} artifactPattern="[artifact]-[revision].[ext]"/>'
        f'<resolvers><ibiblio name="maven"{root} m2compatible="true" usepoms="false" useMavenMetadata="false"'
        ' checksums=""/></resolvers></ivysettings>\n'
    )


def _proxy_options() -> list[str]:
    """Return Java options for the proxy variables of the environment, which Java does not read itself."""
    options = []
    for scheme in ("http", "https"):
        address = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY") or ""
        if match := re.fullmatch(r"(?:\w+://)?(?:[^@/]*@)?(?P<host>[^:/]+):(?P<port>\d+)/?", address):
            options += [f"-D{scheme}.proxyHost={match['host']}", f"-D{scheme}.proxyPort={match['port']}"]
    return options


def fetched_jar(workdir: Path, file_name: str) -> Path | None:
    """Return the path of a fetched jar; None while it is not complete."""
    path = workdir / "cache" / file_name
    return path if path.is_file() else None


def count_fetched(workdir: Path) -> tuple[int, int]:
    """Return the number of complete jars, and the bytes of all jars, including the one in progress."""
    sizes: list[int] = []
    whole = 0
    for path in (workdir / "cache").glob("*.jar*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # renamed in between: the next look counts it
            continue
        whole += path.suffix == ".jar"
    return whole, sum(sizes)


def failure_line(log: Path) -> str:
    """Return the line of Ivy's log that explains a failure best."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    telling = [line.strip() for line in lines if re.search(r"ERROR|Exception|not found|timed out|refused", line)]
    return telling[-1][:200] if telling else "Ivy ended without output"


def trust_options(folder: Path) -> list[str]:
    """Return Java options to trust this machine's list of certificates; empty without a list, or if Java already has one."""
    bundle = find_bundle()
    if bundle is None or "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    store = folder / "trusted.jks"
    try:
        write_key_store(bundle, store)
    except (ssl.SSLError, OSError):  # the list cannot be read: use Java's own one
        return []
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]


def find_bundle() -> Path | None:
    """Return the file of trusted certificates: the one that the environment names for pip, else the system's; None if missing."""
    places = [os.environ.get(name) for name in NAMED_BY]
    places += [ssl.get_default_verify_paths().cafile, *USUAL_PLACES]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def write_key_store(bundle: Path, store: Path) -> int:
    """Write all certificates of a PEM file to a Java key store; return their number."""
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
