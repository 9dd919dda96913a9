"""Certificates and users of a secured test bed, made for one cluster and kept in its folder.

Java's keytool makes the certificates. Every Java that runs Kafka has it, so nothing else must be installed.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.local.java import Java
from deploy.settings import java_locale
from ingest.contract.errors import UnavailableError

__all__ = [
    "ADMIN",
    "AUTHORITY_FILE",
    "GUEST",
    "PEM_FILE",
    "client_security",
    "export_pem",
    "make_certificates",
    "tls_properties",
    "user_properties",
]

ADMIN: Final = "admin"
GUEST: Final = "guest"
BROKER: Final = "broker"
KEY_STORE: Final = "node.p12"
AUTHORITY_FILE: Final = "ca.pem"
PEM_FILE: Final = "node.pem"
_KEYTOOL: Final = "java.base/sun.security.tools.keytool.Main"
_KEY: Final = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650")


def make_certificates(folder: Path, java: Java, password: str) -> None:
    """Make an authority and, signed by it, the certificate of the nodes; nothing where they are there already.

    The authority's key is deleted after it has signed: no second certificate that this cluster trusts can be made.

    Raises:
        UnavailableError: Java's keytool failed.
    """
    store, authority = folder / KEY_STORE, folder / AUTHORITY_FILE
    if store.is_file() and authority.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    store.unlink(missing_ok=True)
    made = folder / f"{KEY_STORE}.new"
    made.unlink(missing_ok=True)
    at = ("-keystore", str(made), "-storetype", "PKCS12", "-storepass:env", "STORE_PASSWORD")
    for arguments in (
        ("-genkeypair", "-alias", "ca", "-dname", "CN=Tidegate test bed", "-ext", "bc:c", *_KEY),
        ("-genkeypair", "-alias", "node", "-signer", "ca", "-dname", f"CN={BROKER}",
         "-ext", "san=ip:127.0.0.1,dns:localhost", *_KEY),
        ("-exportcert", "-rfc", "-alias", "ca", "-file", str(authority)),
        ("-delete", "-alias", "ca"),
    ):  # fmt: skip
        _keytool(java, *arguments, *at, password=password)
    made.chmod(0o600)
    made.rename(store)


def export_pem(folder: Path, password: str) -> None:
    """Write key and certificate as one PEM file too, for a server that reads no key store.

    Raises:
        UnavailableError: there is no openssl, or it failed.
    """
    file = folder / PEM_FILE
    file.touch(mode=0o600)
    command = [
        "openssl",
        "pkcs12",
        "-in",
        str(folder / KEY_STORE),
        "-nodes",
        "-clcerts",
        "-passin",
        "env:STORE_PASSWORD",
    ]
    environment = {**os.environ, "STORE_PASSWORD": password}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    except FileNotFoundError:
        message = (
            "A broker with TLS needs the program openssl for its certificate, but openssl is not on PATH. Install it."
        )
        raise UnavailableError(message) from None
    if done.returncode:
        message = f"openssl could not export the certificate of the test bed: {done.stderr[-300:]}"
        raise UnavailableError(message)
    file.write_text(done.stdout, "utf-8")


def _keytool(java: Java, *arguments: str, password: str) -> None:
    command = [str(java.executable), "-XX:TieredStopAtLevel=1", "-m", _KEYTOOL, *arguments]
    environment = {**os.environ, **java_locale(), "STORE_PASSWORD": password}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    if done.returncode:
        message = (
            f"Java's keytool could not create the certificates of the test bed: {(done.stdout + done.stderr)[-300:]}"
        )
        raise UnavailableError(message)


def client_security(folder: Path, user: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """Return Tidegate's Kafka settings for this user of a cluster with these passwords; empty for a plain one."""
    found = {"ssl_ca_file": str(folder / AUTHORITY_FILE)} if "store" in passwords else {}
    if user in passwords:
        found |= {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": user, "sasl_password": passwords[user]}
    return found


def tls_properties(folder: Path, password: str) -> dict[str, str]:
    """Return a node's properties for TLS: clients show no certificate, the nodes show theirs to each other."""
    return {
        "listener.name.client.ssl.client.auth": "none",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / KEY_STORE),
        "ssl.keystore.password": password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / AUTHORITY_FILE),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    }


def user_properties(authorizer: str) -> dict[str, str]:
    """Return a node's properties for clients with a user and a password (SCRAM), and for rights."""
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": authorizer,
        "super.users": f"User:{BROKER};User:{ADMIN}",
    }
