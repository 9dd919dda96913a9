"""Certificates and users of a secured test bed, made for one cluster and kept in its folder."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.certificates.folder import write_authority
from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.certificates.read import AUTHORITY_FILE
from deploy.settings_file import write_private

__all__ = [
    "ADMIN",
    "AUTHORITY_FILE",
    "GUEST",
    "NODE_FILE",
    "client_security",
    "make_certificates",
    "tls_properties",
    "user_properties",
]

ADMIN: Final = "admin"
GUEST: Final = "guest"
BROKER: Final = "broker"
NODE_FILE: Final = "node.pem"
"""Key and certificate of all nodes of a test bed."""
DAYS: Final = 3650


def make_certificates(folder: Path, authority_name: str = "Tidegate test bed") -> None:
    """Make an authority and the certificate of the nodes; nothing where they are there already.

    The folder has the form of `tidegate certs`, which makes certificates for clients there, too.

    Args:
        folder: folder of the certificates.
        authority_name: name of a new authority.

    Raises:
        OSError: the folder cannot be written.
    """
    node = folder / NODE_FILE
    if node.is_file() and (folder / AUTHORITY_FILE).is_file():
        return
    now = datetime.now(UTC)
    authority = create_authority(authority_name, now=now, days=DAYS)
    leaf = sign_leaf(authority, LeafRequest(BROKER, ("127.0.0.1", "localhost"), DAYS), now=now)
    folder.mkdir(parents=True, exist_ok=True)
    write_authority(folder, authority)
    # Last, because it says that the others are there, too.
    write_private(node, leaf.pem)


def client_security(folder: Path, user: str, passwords: Mapping[str, str], *, encrypts: bool) -> dict[str, str]:
    """Return Tidegate's Kafka settings for this user of a cluster with these passwords; empty for a plain one."""
    found = {"ssl_ca_file": str(folder / AUTHORITY_FILE)} if encrypts else {}
    if user in passwords:
        found |= {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": user, "sasl_password": passwords[user]}
    return found


def tls_properties(folder: Path) -> dict[str, str]:
    """Return a node's properties for TLS: clients show no certificate, the nodes show theirs to each other."""
    return {
        "listener.name.client.ssl.client.auth": "none",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / NODE_FILE),
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
