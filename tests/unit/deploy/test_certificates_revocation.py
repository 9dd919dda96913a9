"""Revoked certificates: what the list has, that servers with it refuse them and no others, and the list over rotations."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.certificates.folder import (
    drop_old_authorities,
    init_folder,
    issue_leaves,
    revoke_leaves,
    rotate_authority,
    rotate_leaves,
)
from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.certificates.read import read_certificates, report_certificates
from deploy.certificates.revocation import Revocations, read_revocations
from ingest.contract.errors import ConfigError, UnavailableError
from tests.support.handshake import shake_hands

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    requests = [LeafRequest.server("localhost", days=30), *(LeafRequest.client(name, days=30) for name in ("a", "b"))]
    init_folder(tmp_path / "pki", requests, authority_days=365, now=NOW)
    return tmp_path / "pki"


def revoke(pki: Path, *names: str, serials: tuple[int, ...] = ()) -> list[Path]:
    return revoke_leaves(pki, names, serials, now=NOW)


def accepts(pki: Path, name: str, *, trusted: str = "ca.pem") -> bool:
    """Whether a server with the list lets this client in."""
    try:
        shake_hands(
            pki / "server-localhost.pem", pki / "ca.pem", "localhost", client=pki / name, clients=pki / trusted,
            revoked=pki / "crl.pem",
        )  # fmt: skip
    except ssl.SSLError as error:
        assert "revoked" in str(error), error
        return False
    return True


def serial(file: Path) -> int:
    return read_certificates(file).certificates[0].serial_number


def test_a_revoked_client_is_refused_and_no_other(pki: Path) -> None:
    assert revoke(pki, "a") == [pki / "crl.pem"]
    assert not accepts(pki, "client-a.pem") and accepts(pki, "client-b.pem")
    revoke(pki, "client-b.pem")
    assert not accepts(pki, "client-a.pem") and not accepts(pki, "client-b.pem")
    assert accepts(pki, issue_leaves(pki, [LeafRequest.client("a", days=9)], now=NOW, force=True)[0].name)


def test_the_list_is_public_and_ends_with_its_authority(pki: Path) -> None:
    """Servers refuse everybody while their list has ended."""
    revoke(pki, "a")
    assert stat.S_IMODE((pki / "crl.pem").stat().st_mode) == 0o644
    (one,) = read_revocations(pki / "crl.pem").lists
    assert one.next_update_utc == read_certificates(pki / "ca.pem").certificates[0].not_valid_after_utc
    assert one.last_update_utc < NOW, "the clock of a server may be slow"
    assert [each.revocation_date_utc for each in one] == [NOW]


@pytest.mark.parametrize("later", [timedelta(0), timedelta(microseconds=9), timedelta(days=-3), timedelta(days=3)])
def test_a_later_list_says_so_whatever_the_clock_says(pki: Path, later: timedelta) -> None:
    """A server that holds both asks the later one."""
    revoke(pki, "a")
    (first,) = read_revocations(pki / "crl.pem").lists
    revoke_leaves(pki, ["b"], (), now=NOW + later)
    (second,) = read_revocations(pki / "crl.pem").lists
    assert second.last_update_utc > first.last_update_utc


def test_a_certificate_is_revoked_once(pki: Path) -> None:
    revoke(pki, "a", serials=(serial(pki / "client-a.pem"),))
    before = (pki / "crl.pem").read_bytes()
    assert revoke(pki, "a") == []
    assert (pki / "crl.pem").read_bytes() == before
    (one,) = read_revocations(pki / "crl.pem").lists
    assert len(one) == 1


def test_a_replaced_certificate_is_revoked_by_its_serial_number(pki: Path) -> None:
    old = pki / "old.pem"
    old.write_bytes((pki / "client-a.pem").read_bytes())
    rotate_leaves(pki, days=None, now=NOW)
    old.rename(pki / "old")
    revoke(pki, serials=(serial(pki / "old"),))
    assert not accepts(pki, "old") and accepts(pki, "client-a.pem")


def test_show_names_a_revoked_certificate(pki: Path) -> None:
    assert not any(one.problems for one in report_certificates(pki, now=NOW))
    revoke(pki, "a")
    faults = {Path(one.file).name: one.problems for one in report_certificates(pki, now=NOW) if one.problems}
    assert faults == {"client-a.pem": (f"It was revoked on {NOW:%Y-%m-%d %H:%M} UTC.",)}


def test_a_rotation_gives_a_revoked_client_no_new_certificate(pki: Path) -> None:
    revoke(pki, "a")
    stolen = (pki / "client-a.pem").read_bytes()
    done = rotate_leaves(pki, days=None, now=NOW)
    assert [file.name for file in done.revoked] == ["client-a.pem"] and not done.foreign
    assert (pki / "client-a.pem").read_bytes() == stolen
    assert accepts(pki, "client-b.pem") and not accepts(pki, "client-a.pem")


def test_the_list_covers_each_authority_while_they_change(pki: Path) -> None:
    revoke(pki, "a")
    former = (pki / "client-b.pem").read_bytes()
    assert [file.name for file in rotate_authority(pki, days=365, now=NOW)] == ["ca.pem", "ca.key", "crl.pem"]
    assert accepts(pki, "client-b.pem") and not accepts(pki, "client-a.pem")

    rotate_leaves(pki, days=None, now=NOW)
    (pki / "former").write_bytes(former)
    assert accepts(pki, "client-b.pem") and accepts(pki, "former") and not accepts(pki, "client-a.pem")
    issue_leaves(pki, [LeafRequest.client("c", days=9)], now=NOW)
    revoke(pki, "c")
    assert not accepts(pki, "client-c.pem") and not accepts(pki, "client-a.pem") and accepts(pki, "former")
    with pytest.raises(ConfigError, match=r"did not sign client-a\.pem.*--drop-old` ends all"):
        revoke(pki, "client-a.pem")

    # The revoked certificate of the former authority does not hold it back.
    assert [file.name for file in drop_old_authorities(pki)] == ["ca.pem", "crl.pem"]
    assert len(read_revocations(pki / "crl.pem").lists) == 1
    assert accepts(pki, "client-b.pem") and not accepts(pki, "client-c.pem")
    with pytest.raises(ssl.SSLError):
        shake_hands(
            pki / "server-localhost.pem", pki / "ca.pem", "localhost", client=pki / "former", clients=pki / "ca.pem"
        )


def test_no_list_is_made_that_would_shut_the_clients_of_a_former_authority_out(pki: Path) -> None:
    rotate_authority(pki, days=365, now=NOW)
    issue_leaves(pki, [LeafRequest.client("c", days=9)], now=NOW)
    with pytest.raises(ConfigError, match="whose key is gone, so no list can be made for it"):
        revoke(pki, "c")
    assert not (pki / "crl.pem").exists()
    rotate_leaves(pki, days=None, now=NOW)
    drop_old_authorities(pki)
    revoke(pki, "c")
    assert accepts(pki, "client-b.pem") and not accepts(pki, "client-c.pem")


def test_a_new_start_of_the_folder_begins_a_new_list(pki: Path) -> None:
    revoke(pki, "a")
    requests = [LeafRequest.server("localhost", days=30), LeafRequest.client("a", days=30)]
    init_folder(pki, requests, authority_days=365, now=NOW, force=True)
    assert accepts(pki, "client-a.pem")


def test_a_list_of_another_authority_of_the_same_name_counts_for_nothing(pki: Path) -> None:
    own = read_certificates(pki / "ca.pem").certificates[0]
    name = own.subject.rfc4514_string().removeprefix("CN=")
    foreign = Revocations().with_revoked(create_authority(name, now=NOW, days=9), [1], now=NOW)
    assert not foreign.covers(own) and not foreign.has(own, 1)


def test_a_name_must_fit_one_certificate_of_the_current_authority(pki: Path) -> None:
    issue_leaves(pki, [LeafRequest.server("a", days=9)], now=NOW)
    with pytest.raises(ConfigError, match=r"a fits client-a\.pem and server-a\.pem"):
        revoke(pki, "a")
    with pytest.raises(UnavailableError, match="has no certificate none"):
        revoke(pki, "none")
    stranger = sign_leaf(create_authority("other", now=NOW, days=90), LeafRequest.client("x", days=9), now=NOW)
    (pki / "client-x.pem").write_text(stranger.pem)
    with pytest.raises(ConfigError, match=r"did not sign client-x\.pem"):
        revoke(pki, "x")
    assert not (pki / "crl.pem").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "holds no list"), ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "cannot be parsed")],
)
def test_a_damaged_list_is_one_sentence(pki: Path, text: str, words: str) -> None:
    (pki / "crl.pem").write_text(text)
    with pytest.raises(ConfigError, match=words):
        revoke(pki, "a")
    with pytest.raises(ConfigError, match=words):
        report_certificates(pki, now=NOW)


def test_a_later_list_has_a_higher_number(pki: Path) -> None:
    """By which a server of other software knows the newer one."""
    authority = create_authority("x", now=NOW, days=9)
    first = Revocations().with_revoked(authority, [7], now=NOW)
    later = first.with_revoked(authority, [8], now=NOW + timedelta(hours=2))
    numbers = [one.extensions[0].value.crl_number for each in (first, later) for one in each.lists]
    assert numbers == [1, 2]
    assert all(later.has(authority.certificate, serial) for serial in (7, 8))
