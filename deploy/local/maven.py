"""Fetches exact jars from Maven with the Ivy that pyspark bundles: the code holds no address of a repository.

Ivy's own default repository is used, or a mirror: the environment's TIDEGATE_MAVEN_REPOSITORY, else the first mirror of
`central` or `*` in ~/.m2/settings.xml.

Lets Java trust what this machine trusts: a Java that brings its own list knows no authority of a company's network.

pip reads the machine's list; the Java that fetches jars next to it must not fail where pip works. Java reads no PEM, so
the list is written in Java's own simple key store format (JKS, certificates only).
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


def find_mirror(home: Path) -> str | None:
    """The repository address that this machine prescribes, None for Ivy's own default."""
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
    """Start Ivy: jars land in its cache under `workdir` (see `fetched_jar`), its words in `ivy.log` there."""
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
    """Java does not read the proxy variables that pip reads."""
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
    """Return the number of complete jars, and the bytes of all including the one in progress."""
    sizes: list[int] = []
    whole = 0
    for path in (workdir / "cache").glob("*.jar*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # Renamed in between: the next look counts it.
            continue
        whole += path.suffix == ".jar"
    return whole, sum(sizes)


def failure_line(log: Path) -> str:
    """The line of Ivy's log that says most about a failure."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    telling = [line.strip() for line in lines if re.search(r"ERROR|Exception|not found|timed out|refused", line)]
    return telling[-1][:200] if telling else "Ivy ended without output"
