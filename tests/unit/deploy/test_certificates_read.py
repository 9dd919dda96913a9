"""Certificate files of anybody: ended, of another key, of an unknown authority, with a chain, torn, and no certificate at all."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.certificates.issue import KeyedCertificate, LeafRequest, SigningKey, create_authority, sign_leaf
from deploy.certificates.read import CertificateReport, read_certificates, report_certificates
from ingest.contract.errors import ConfigError, UnavailableError

NOW = datetime.now(UTC).replace(microsecond=0)
SERVER = LeafRequest.server("localhost,127.0.0.1", days=30)
AUTHORITY = create_authority("authority", now=NOW, days=100)
LEAF = sign_leaf(AUTHORITY, SERVER, now=NOW)
DER = LEAF.certificate.public_bytes(serialization.Encoding.DER)


def write(file: Path, text: str | bytes) -> Path:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(0o600)
    return file


def one(path: Path, bundle: Path | None = None, now: datetime = NOW) -> CertificateReport:
    (report,) = report_certificates(path, bundle=bundle, now=now)
    return report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "ca.pem", AUTHORITY.certificate_pem)
    return tmp_path


def test_a_report_has_all_that_a_person_asks_for(folder: Path) -> None:
    report = one(write(folder / "server.pem", LEAF.pem))
    assert report == CertificateReport(
        file=str(folder / "server.pem"),
        subject="CN=localhost",
        names=("localhost", "127.0.0.1"),
        issuer="CN=authority",
        serial=f"{LEAF.certificate.serial_number:x}",
        begins_at=NOW - timedelta(hours=1),
        ends_at=NOW + timedelta(days=30),
        days_left=30,
        usage=("server", "client"),
        key="EC secp256r1",
        key_fits=True,
        verifies=True,
        problems=(),
    )


def test_an_authority_trusts_itself_where_it_is_the_bundle(folder: Path) -> None:
    report = one(folder / "ca.pem")
    assert (report.usage, report.verifies, report.key_fits, report.problems) == (("authority",), True, None, ())


@pytest.mark.parametrize(
    ("later", "left", "problem"),
    [(29.99, 0, None), (30, 0, "It ended on"), (31, -1, "It ended on"), (-1, 31, "It begins only on")],
)
def test_the_time_of_a_certificate_is_judged(later: float, left: int, problem: str | None, folder: Path) -> None:
    report = one(write(folder / "server.pem", LEAF.pem), now=NOW + timedelta(days=later))
    assert report.days_left == left
    assert bool(report.problems) is (problem is not None)
    assert not problem or report.problems[0].startswith(problem)


def test_a_leaf_of_an_authority_that_ended_does_not_verify(tmp_path: Path) -> None:
    write(tmp_path / "ca.pem", create_authority("authority", now=NOW, days=100).certificate_pem)
    late = NOW + timedelta(days=101)
    leaf = write(tmp_path / "leaf.pem", LEAF.pem)
    assert (
        "Its authority CN=authority is not valid now."
        in one(leaf, write(tmp_path / "own", AUTHORITY.pem), late).problems
    )


def test_a_key_in_a_file_of_its_own_is_found_and_compared(folder: Path) -> None:
    other = sign_leaf(AUTHORITY, SERVER, now=NOW)
    public = write(folder / "server.crt", LEAF.certificate_pem)
    assert one(public).key_fits is None
    write(folder / "server.key", LEAF.pem)
    assert one(public).key_fits is True
    write(folder / "server.key", other.pem)
    report = one(public)
    assert (report.key_fits, report.problems) == (False, ("The private key belongs to another certificate.",))
    wrong = write(folder / "mixed.pem", other.pem.partition("-----BEGIN CERT")[0] + LEAF.certificate_pem)
    assert one(wrong).key_fits is False


def test_a_key_that_others_may_read_is_a_problem(folder: Path) -> None:
    file = write(folder / "server.pem", LEAF.pem)
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        assert one(file).problems == (
            "Other users have rights on server.pem, which holds a private key: run chmod 600.",
        )
    public = write(folder / "server.crt", LEAF.certificate_pem)
    public.chmod(0o644)
    assert one(public).problems == ()


def test_a_key_with_a_password_is_not_judged(folder: Path) -> None:
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    report = one(write(folder / "server.pem", LEAF.key.private_bytes(*form).decode() + LEAF.certificate_pem))
    assert (report.key_fits, report.problems) == (None, ())


def test_an_authority_of_the_same_name_is_another_one(folder: Path) -> None:
    other = create_authority("authority", now=NOW, days=100)
    stranger = write(folder / "stranger.pem", sign_leaf(other, SERVER, now=NOW).pem)
    report = one(stranger)
    assert report.verifies is False
    assert report.problems == ("No trusted authority signed it: its issuer is CN=authority.",)
    assert one(stranger, write(folder / "other.ca", other.certificate_pem)).verifies
    alone = write(folder / "alone.pem", other.certificate_pem)
    assert one(alone).verifies is False, "it signed itself, but nobody trusts it"


def test_without_a_bundle_nobody_says_that_a_certificate_verifies(tmp_path: Path) -> None:
    report = one(write(tmp_path / "server.pem", LEAF.pem))
    assert (report.verifies, report.problems) == (None, ())


def intermediate(
    name: str, signer: KeyedCertificate, *, is_authority: bool = True, key: SigningKey | None = None
) -> KeyedCertificate:
    key = key or ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(signer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=50))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
        .sign(signer.key, hashes.SHA256())
    )
    return KeyedCertificate(certificate, key)


@pytest.mark.parametrize("is_authority", [True, False])
def test_a_chain_leads_to_the_authority_by_authorities_only(is_authority: bool, folder: Path) -> None:
    middle = intermediate("middle", AUTHORITY, is_authority=is_authority)
    leaf = sign_leaf(middle, SERVER, now=NOW)
    whole, alone = folder / "whole.pem", folder / "alone.pem"
    write(whole, leaf.pem + middle.certificate_pem)
    write(alone, leaf.pem)
    assert [one.verifies for one in report_certificates(whole, now=NOW)] == [is_authority, True]
    assert [one.key_fits for one in report_certificates(whole, now=NOW)] == [True, None]
    assert one(alone).verifies is False


def test_two_authorities_that_sign_each_other_end(folder: Path) -> None:
    first = intermediate("a", AUTHORITY)
    second = intermediate("b", first)
    again = intermediate("a", second, key=first.key)
    text = sign_leaf(first, SERVER, now=NOW).pem + again.certificate_pem + second.certificate_pem
    report = report_certificates(write(folder / "circle.pem", text), now=NOW)[0]
    assert report.problems == ("Its chain of authorities has no end.",)


def test_other_kinds_of_keys_and_a_certificate_without_usage_are_shown(folder: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ü, Ltd")])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(255)
        .not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1)).sign(key, None)
    )  # fmt: skip
    report = one(write(folder / "odd.der", certificate.public_bytes(serialization.Encoding.DER)))
    assert (report.subject, report.usage, report.key, report.serial) == (r"O=Ü\, Ltd", ("any",), "Ed25519", "ff")


def test_a_folder_shows_its_bundle_first_and_leaves_other_files_out(folder: Path) -> None:
    for name in ("b.crt", "a.cer", "c.der", "z.pem"):
        write(folder / name, DER if name == "c.der" else LEAF.certificate_pem)
    write(folder / "notes.txt", LEAF.certificate_pem)
    write(folder / "dh.pem", "-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----\n")
    (folder / "sub.pem").mkdir()
    found = [Path(one.file).name for one in report_certificates(folder, now=NOW)]
    assert found == ["ca.pem", "a.cer", "b.crt", "c.der", "z.pem"]


def test_a_path_without_a_certificate_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"cannot be read \(No such file or directory\)"):
        report_certificates(tmp_path / "none", now=NOW)
    with pytest.raises(UnavailableError, match=r"holds no file with a certificate \(\.pem, \.crt"):
        report_certificates(tmp_path, now=NOW)
    for text in (b"", b"hello", b"\xff\xfe", LEAF.pem.partition("-----BEGIN CERT")[0].encode()):
        with pytest.raises(UnavailableError, match="holds no certificate"):
            report_certificates(write(tmp_path / "x.pem", text), now=NOW)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anywhere")
def test_a_file_without_permission_is_one_sentence(folder: Path) -> None:
    write(folder / "x.pem", LEAF.pem).chmod(0)
    with pytest.raises(UnavailableError, match=r"x\.pem cannot be read \(Permission denied\)"):
        report_certificates(folder, now=NOW)


@pytest.mark.parametrize("label", ["CERTIFICATE", "PRIVATE " + "KEY"])
def test_a_torn_block_is_a_sentence_with_the_file(label: str, folder: Path) -> None:
    torn = write(folder / "torn.pem", f"-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n")
    with pytest.raises(ConfigError, match=r"torn\.pem holds a certificate or a key that cannot be parsed"):
        report_certificates(folder, now=NOW)
    with pytest.raises(ConfigError):
        read_certificates(torn)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, len(DER) - 1), byte=st.integers(0, 255), cut=st.integers(0, len(DER)), is_cut=st.booleans())
def test_no_byte_is_an_unexpected_error(at: int, byte: int, cut: int, is_cut: bool, tmp_path: Path) -> None:
    data = bytearray(DER)
    data[at] = byte
    file = write(tmp_path / "x.der", bytes(data[:cut] if is_cut else data))
    try:
        reports = report_certificates(file, bundle=file, now=NOW)
    except (ConfigError, UnavailableError):
        return
    assert len(reports) == 1
