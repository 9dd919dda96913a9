"""A folder of certificates: what is written with which rights, what is never written over, and rotations without a gap."""

import os
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from deploy.certificates import folder as certificates
from deploy.certificates import issue
from deploy.certificates.folder import (
    drop_old_authorities,
    init_folder,
    issue_leaves,
    rotate_authority,
    rotate_leaves,
    write_authority,
)
from deploy.certificates.issue import LeafRequest, create_authority, sign_leaf
from deploy.certificates.read import read_certificates, report_certificates
from ingest.contract.errors import ConfigError, UnavailableError
from tests.support.handshake import shake_hands

NOW = datetime.now(UTC).replace(microsecond=0)
SERVER = LeafRequest.server("localhost,127.0.0.1", days=30)
CLIENT = LeafRequest.client("gateway", days=30)
BOTH = ("server-localhost.pem", "client-gateway.pem")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    init_folder(tmp_path / "pki", [SERVER, CLIENT], authority_days=365, now=NOW)
    return tmp_path / "pki"


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def accepts(folder: Path, bundle: bytes, leaf: bytes) -> bool:
    """Whether a client with this bundle accepts a server with this certificate."""
    trusted, server = folder.parent / "trusted", folder.parent / "shown"
    trusted.write_bytes(bundle)
    server.write_bytes(leaf)
    try:
        shake_hands(server, trusted, "localhost")
    except ssl.SSLCertVerificationError:
        return False
    return True


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_keys_are_private_and_the_bundle_is_public_whatever_the_umask(mask: int, tmp_path: Path) -> None:
    folder = tmp_path
    with umask(mask):
        written = init_folder(folder, [SERVER, CLIENT], authority_days=365, now=NOW)
        rotate_leaves(folder, days=None, now=NOW)
        rotate_authority(folder, days=365, now=NOW)
    assert [file.name for file in written] == ["ca.pem", "ca.key", *BOTH]
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, BOTH[0]: 0o600, BOTH[1]: 0o600}
    assert b"PRIVATE KEY" not in (folder / "ca.pem").read_bytes()


def test_a_new_folder_is_its_owners_alone(made: Path) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_openssl_accepts_what_is_made(made: Path) -> None:
    bundle = made / "ca.pem"
    assert shake_hands(made / BOTH[0], bundle, "127.0.0.1", client=made / BOTH[1], clients=bundle)
    assert not [one.problems for one in report_certificates(made, now=NOW) if one.problems]


def test_existing_files_are_replaced_by_force_only_and_nothing_else_is_written(made: Path) -> None:
    before = content(made)
    more = LeafRequest.client("more", days=1)
    with pytest.raises(
        ConfigError, match=r"already has ca\.pem, ca\.key, client-gateway\.pem\. Name another folder, or give --force"
    ):
        init_folder(made, [more, CLIENT], authority_days=365, now=NOW)
    with pytest.raises(ConfigError, match=r"already has client-gateway\.pem\."):
        issue_leaves(made, [more, CLIENT], now=NOW)
    with pytest.raises(ConfigError, match="more is named twice"):
        issue_leaves(made, [more, more], now=NOW)
    assert content(made) == before
    issue_leaves(made, [more, CLIENT], now=NOW, force=True)
    after = content(made)
    assert {name for name in before if before[name] != after[name]} == {"client-gateway.pem"}
    init_folder(made, [CLIENT], authority_days=365, now=NOW, force=True)
    assert content(made)["ca.pem"] != before["ca.pem"]


def test_a_key_alone_also_keeps_a_folder_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "ca.key").write_text("mine")
    with pytest.raises(ConfigError, match=r"already has ca\.key"):
        init_folder(tmp_path, [CLIENT], authority_days=1, now=NOW)
    assert content(tmp_path) == {"ca.key": b"mine"}


def test_a_certificate_that_would_outlive_its_authority_leaves_the_folder_as_it_is(tmp_path: Path, made: Path) -> None:
    with pytest.raises(ConfigError, match="would end after its authority"):
        init_folder(tmp_path / "new", [SERVER], authority_days=29, now=NOW)
    assert not (tmp_path / "new").exists()
    before = content(made)
    with pytest.raises(ConfigError, match="would end after its authority"):
        issue_leaves(made, [LeafRequest.client("more", days=366)], now=NOW)
    with pytest.raises(ConfigError, match="would end after its authority"):
        rotate_leaves(made, days=None, now=NOW + timedelta(days=350))
    assert content(made) == before


@pytest.fixture
def short_rsa(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of key matters here, and a long one takes long to make."""
    monkeypatch.setattr(issue, "RSA_BITS", 2048)


@pytest.mark.usefixtures("short_rsa")
def test_a_rotation_keeps_names_kind_and_length_and_changes_key_and_serial(made: Path) -> None:
    issue_leaves(made, [LeafRequest.server("old.example,10.0.0.1", days=7, key_kind="rsa")], now=NOW)
    before = {one.file: one for one in report_certificates(made, now=NOW)}
    texts = content(made)
    later = NOW + timedelta(days=20)
    done = rotate_leaves(made, days=None, now=later)
    assert {file.name for file in done.written} == {*BOTH, "server-old.example.pem"} and done.foreign == ()
    after = {one.file: one for one in report_certificates(made, now=later)}
    for file in map(str, done.written):
        old, new = before[file], after[file]
        assert (new.subject, new.names, new.usage, new.key) == (old.subject, old.names, old.usage, old.key)
        assert new.serial != old.serial and new.ends_at - old.ends_at == timedelta(days=20)
        assert new.key_fits and new.verifies and not new.problems
        assert content(made)[Path(file).name].partition(b"END")[0] != texts[Path(file).name].partition(b"END")[0]
    assert content(made)["ca.pem"] == texts["ca.pem"] and content(made)["ca.key"] == texts["ca.key"]
    rotate_leaves(made, days=3, now=later)
    assert {one.days_left for one in report_certificates(made / BOTH[0], now=later)} == {3}


def test_a_certificate_of_another_authority_is_left_as_it_is(made: Path) -> None:
    other = create_authority("Another one", now=NOW, days=90)
    (made / "bought.pem").write_text(sign_leaf(other, SERVER, now=NOW).pem)
    (made / "bought.crt").write_text(sign_leaf(other, SERVER, now=NOW).certificate_pem)
    (made / "dh.pem").write_text("-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n")
    locked = issue_leaves(made, [LeafRequest.client("locked", days=1)], now=NOW)[0]
    key = read_certificates(locked).key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    protected = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    public = read_certificates(locked).certificates[0].public_bytes(Encoding.PEM)
    locked.write_bytes(protected + public)
    before = content(made)
    done = rotate_leaves(made, days=None, now=NOW)
    assert [file.name for file in done.foreign] == ["bought.pem", "client-locked.pem"]
    after = content(made)
    assert {name for name in before if before[name] != after[name]} == set(BOTH)


def test_a_new_authority_overlaps_with_the_former_one(made: Path) -> None:
    """Each step of the rotation works with peers that did not take it yet.

    bundle of a peer   old          old+new          old+new          new
    certificate        old          old              new              new
    step                    --ca            rotate         --drop-old
    """
    old_bundle, old = content(made)["ca.pem"], content(made)[BOTH[0]]
    assert [file.name for file in rotate_authority(made, days=3650, now=NOW)] == ["ca.pem", "ca.key"]
    both = content(made)["ca.pem"]
    assert content(made)[BOTH[0]] == old, "no peer trusts the new authority yet"
    assert accepts(made, both, old) and accepts(made, old_bundle, old)
    with pytest.raises(
        ConfigError, match=r"signed client-gateway\.pem, server-localhost\.pem\. Run `tidegate certs rotate"
    ):
        drop_old_authorities(made)

    rotate_leaves(made, days=None, now=NOW)
    new = content(made)[BOTH[0]]
    assert content(made)["ca.pem"] == both
    assert accepts(made, both, new) and accepts(made, both, old) and not accepts(made, old_bundle, new)

    assert [file.name for file in drop_old_authorities(made)] == ["ca.pem"]
    alone = content(made)["ca.pem"]
    assert accepts(made, alone, new) and not accepts(made, alone, old)
    assert drop_old_authorities(made) == []
    assert not [one.problems for one in report_certificates(made, now=NOW) if one.problems]


def test_a_public_certificate_of_the_former_authority_also_keeps_it(made: Path) -> None:
    """The folder may hold certificates whose keys are on the servers only."""
    rotate_authority(made, days=365, now=NOW)
    former = read_certificates(made / BOTH[0]).certificates[0]
    rotate_leaves(made, days=None, now=NOW)
    (made / "elsewhere.pem").write_bytes(former.public_bytes(Encoding.PEM))
    with pytest.raises(ConfigError, match=r"signed elsewhere\.pem"):
        drop_old_authorities(made)


@pytest.mark.usefixtures("short_rsa")
def test_an_authority_that_ended_is_replaced_with_its_certificates_and_the_kind_of_key_stays(tmp_path: Path) -> None:
    old = create_authority("old", now=NOW, days=10, key_kind="rsa")
    write_authority(tmp_path, old)
    issue_leaves(tmp_path, [LeafRequest.server("localhost", days=10)], now=NOW)
    late = NOW + timedelta(days=11)
    with pytest.raises(ConfigError, match="too soon to sign"):
        rotate_leaves(tmp_path, days=None, now=late)
    rotate_authority(tmp_path, days=50, now=late)
    assert isinstance(read_certificates(tmp_path / "ca.key").key, rsa.RSAPrivateKey)
    reports = report_certificates(tmp_path / "ca.pem", now=late)
    assert len({one.subject for one in reports}) == 2
    assert [one.key_fits for one in reports] == [True, None]
    assert [file.name for file in rotate_leaves(tmp_path, days=None, now=late).written] == ["server-localhost.pem"]
    drop_old_authorities(tmp_path)
    assert not [one.problems for one in report_certificates(tmp_path, now=late) if one.problems]


def test_a_rotation_of_the_authority_that_is_killed_in_the_middle_leaves_a_folder_that_works(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(certificates, "key_pem", lambda key: 1 / 0)  # after the bundle, before the key
        with pytest.raises(ZeroDivisionError):
            rotate_authority(made, days=365, now=NOW)
    assert len(read_certificates(made / "ca.pem").certificates) == 2
    rotate_leaves(made, days=None, now=NOW)
    assert accepts(made, content(made)["ca.pem"], content(made)[BOTH[0]])
    drop_old_authorities(made)
    assert accepts(made, content(made)["ca.pem"], content(made)[BOTH[0]])


def test_no_file_is_ever_half_written(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(made)

    def full(_self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device", "x")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        for change in (
            lambda: rotate_leaves(made, days=None, now=NOW),
            lambda: rotate_authority(made, days=365, now=NOW),
            lambda: issue_leaves(made, [LeafRequest.client("more", days=1)], now=NOW),
        ):
            with pytest.raises(UnavailableError, match=r"cannot be used \(No space left on device\)"):
                change()
    assert {name: text for name, text in content(made).items() if not name.startswith(".")} == before


@pytest.mark.parametrize("change", ["issue", "rotate", "drop"])
def test_what_is_missing_or_wrong_is_named_with_the_next_step(change: str, made: Path, tmp_path: Path) -> None:
    def run(folder: Path = made) -> object:
        if change == "issue":
            return issue_leaves(folder, [LeafRequest.client("more", days=1)], now=NOW)
        return rotate_leaves(folder, days=None, now=NOW) if change == "rotate" else drop_old_authorities(folder)

    with pytest.raises(UnavailableError, match=r"no authority: ca\.pem is missing"):
        run(tmp_path / "none")
    key = (made / "ca.key").read_bytes()
    (made / "ca.key").unlink()
    with pytest.raises(
        UnavailableError, match=r"ca\.key, the authority's key, is missing.*Restore it, or make a new authority"
    ):
        run()
    (made / "ca.key").write_text("no key")
    with pytest.raises(ConfigError, match="holds no EC or RSA key"):
        run()
    other = create_authority("other", now=NOW, days=1)
    (made / "ca.key").write_text(other.pem)
    with pytest.raises(ConfigError, match=r"fits no certificate of ca\.pem"):
        run()
    (made / "ca.key").write_bytes(key)
    (made / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"ca\.pem holds no certificate"):
        run()


def test_a_lost_key_is_replaced_by_a_new_authority_with_overlap(made: Path) -> None:
    (made / "ca.key").unlink()
    rotate_authority(made, days=365, now=NOW)
    assert accepts(made, content(made)["ca.pem"], content(made)[BOTH[0]])
    rotate_leaves(made, days=None, now=NOW)
    drop_old_authorities(made)
    assert accepts(made, content(made)["ca.pem"], content(made)[BOTH[0]])


def test_a_folder_without_a_certificate_to_rotate_says_so(tmp_path: Path) -> None:
    init_folder(tmp_path, [], authority_days=1, now=NOW)
    with pytest.raises(UnavailableError, match="has no certificate with a key that its authority signed"):
        rotate_leaves(tmp_path, days=None, now=NOW)


def test_a_wildcard_has_a_file_name_without_a_star(tmp_path: Path) -> None:
    files = init_folder(tmp_path, [LeafRequest.server("*.example.org,::1", days=1)], authority_days=1, now=NOW)
    assert files[-1].name == "server-_.example.org.pem"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_folder_is_one_sentence(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="cannot be used"):
        init_folder(tmp_path / place, [CLIENT], authority_days=30, now=NOW)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write anywhere")
def test_a_folder_without_permission_is_one_sentence(made: Path) -> None:
    made.chmod(0)
    for change in (
        lambda: init_folder(made, [CLIENT], authority_days=30, now=NOW),
        lambda: rotate_leaves(made, days=None, now=NOW),
    ):
        with pytest.raises(UnavailableError, match=r"cannot be used \(Permission denied\)"):
            change()
    for path in (made, made / "ca.pem"):
        with pytest.raises(UnavailableError, match="Permission denied"):
            report_certificates(path, now=NOW)
    made.chmod(0o700)
