"""Certificates of a test bed: one set for all nodes, kept, private, and accepted by OpenSSL."""

import stat
from datetime import UTC, datetime
from pathlib import Path

from deploy.certificates.folder import issue_leaves
from deploy.certificates.issue import LeafRequest
from deploy.certificates.read import report_certificates
from deploy.testbed.cluster_security import AUTHORITY_FILE, NODE_FILE, make_certificates
from tests.support.handshake import shake_hands

NOW = datetime.now(UTC)


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_nodes_accept_each_other_under_the_addresses_of_the_test_bed(tmp_path: Path) -> None:
    folder = tmp_path / "bed" / "certificates"
    make_certificates(folder)
    node, bundle = folder / NODE_FILE, folder / AUTHORITY_FILE
    for name in ("127.0.0.1", "localhost"):
        seen = shake_hands(node, bundle, name, client=node, clients=bundle)
        assert seen["subject"] == ((("commonName", "broker"),),), "the super user of the authorizer"
    assert not [one.problems for one in report_certificates(folder, now=NOW) if one.problems]
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "node.pem": 0o600}


def test_a_second_start_has_the_same_certificates_and_a_killed_first_one_makes_them_whole(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    first = content(tmp_path)
    make_certificates(tmp_path)
    assert content(tmp_path) == first
    for missing in (NODE_FILE, AUTHORITY_FILE):
        (tmp_path / missing).unlink()
        make_certificates(tmp_path)
        assert not [one.problems for one in report_certificates(tmp_path, now=NOW) if one.problems]


def test_a_test_bed_of_an_older_version_gets_certificates_that_belong_together(tmp_path: Path) -> None:
    """It had the authority's certificate and a key store of Java."""
    make_certificates(tmp_path / "other")
    (tmp_path / "node.p12").write_bytes(b"a key store")
    (tmp_path / AUTHORITY_FILE).write_bytes((tmp_path / "other" / AUTHORITY_FILE).read_bytes())
    make_certificates(tmp_path)
    shake_hands(tmp_path / NODE_FILE, tmp_path / AUTHORITY_FILE, "127.0.0.1")


def test_more_certificates_can_be_made_for_clients_of_a_test_bed(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    (client,) = issue_leaves(tmp_path, [LeafRequest.client("gateway", days=30)], now=NOW)
    bundle = tmp_path / AUTHORITY_FILE
    seen = shake_hands(tmp_path / NODE_FILE, bundle, "127.0.0.1", client=client, clients=bundle)
    assert seen["subject"] == ((("commonName", "gateway"),),)
