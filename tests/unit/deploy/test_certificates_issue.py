"""Our authority and its certificates, as the library reads them and as OpenSSL accepts them."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from deploy.certificates.issue import KeyedCertificate, LeafRequest, create_authority, sign_leaf
from ingest.contract.errors import ConfigError
from tests.support.handshake import shake_hands

NOW = datetime.now(UTC)
SERVER = LeafRequest.server("Kafka-1.example.org, 10.0.0.1, [::1],*.example.net", days=30)


@pytest.fixture(scope="module")
def authority() -> KeyedCertificate:
    return create_authority("authority", now=NOW, days=100)


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> x509.Extension[x509.ExtensionType]:
    return certificate.extensions.get_extension_for_class(kind)


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_openssl_accepts_server_and_client_under_each_name(authority: KeyedCertificate, tmp_path: Path) -> None:
    bundle = write(tmp_path, "ca.pem", authority.certificate_pem)
    server = write(tmp_path, "server.pem", sign_leaf(authority, SERVER, now=NOW).pem)
    client = write(tmp_path, "client.pem", sign_leaf(authority, LeafRequest.client("gw", days=9), now=NOW).pem)
    for name in ("kafka-1.example.org", "KAFKA-1.example.org", "10.0.0.1", "::1", "a.example.net"):
        seen = shake_hands(server, bundle, name, client=client, clients=bundle)
        assert seen["subject"] == ((("commonName", "gw"),),)
    assert shake_hands(server, bundle, "10.0.0.1", client=server, clients=bundle), "Kafka's nodes are clients too"
    for name in ("kafka-2.example.org", "10.0.0.2", "example.net", "a.b.example.net"):
        with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|not valid for"):
            shake_hands(server, bundle, name)


def test_openssl_refuses_a_client_as_server_another_authority_and_an_end(
    authority: KeyedCertificate, tmp_path: Path
) -> None:
    bundle = write(tmp_path, "ca.pem", authority.certificate_pem)
    named = LeafRequest("gw", ("localhost",), 9)
    server = write(tmp_path, "server.pem", sign_leaf(authority, named, now=NOW).pem)
    client = write(tmp_path, "client.pem", sign_leaf(authority, LeafRequest.client("gw", days=9), now=NOW).pem)
    other = create_authority("authority", now=NOW, days=100)
    stranger = write(tmp_path, "stranger.pem", sign_leaf(other, named, now=NOW).pem)
    ended = write(tmp_path, "ended.pem", sign_leaf(authority, named, now=NOW - timedelta(days=10)).pem)
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        shake_hands(client, bundle, "localhost")
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        shake_hands(stranger, bundle, "localhost")
    with pytest.raises(ssl.SSLError, match="expired"):
        shake_hands(ended, bundle, "localhost")
    with pytest.raises(ssl.SSLError):
        shake_hands(server, bundle, "localhost", clients=bundle)
    with pytest.raises(ssl.SSLError):
        shake_hands(server, bundle, "localhost", client=stranger, clients=bundle)


def test_a_leaf_says_what_it_is_for(authority: KeyedCertificate) -> None:
    leaf = sign_leaf(authority, SERVER, now=NOW).certificate
    assert leaf.subject.rfc4514_string() == "CN=kafka-1.example.org"
    assert leaf.issuer == authority.certificate.subject
    usage = extension(leaf, x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}  # type: ignore[call-overload]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka-1.example.org", "*.example.net"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    basic = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical and not basic.value.ca
    client = sign_leaf(authority, LeafRequest.client("gw", days=1), now=NOW).certificate
    assert list(client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    with pytest.raises(x509.ExtensionNotFound):
        extension(client, x509.SubjectAlternativeName)


def test_an_authority_signs_certificates_and_no_other_authority(authority: KeyedCertificate) -> None:
    basic = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical and basic.value.ca and basic.value.path_length == 0
    usage = authority.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign and usage.crl_sign and not usage.digital_signature


def test_a_certificate_begins_before_now_and_ends_after_its_days(authority: KeyedCertificate) -> None:
    leaf = sign_leaf(authority, SERVER, now=NOW).certificate
    assert leaf.not_valid_before_utc == NOW.replace(microsecond=0) - timedelta(hours=1)
    assert leaf.not_valid_after_utc == NOW.replace(microsecond=0) + timedelta(days=30)


def test_serial_numbers_and_keys_are_never_the_same(authority: KeyedCertificate) -> None:
    leaves = [sign_leaf(authority, SERVER, now=NOW) for _ in range(20)]
    serials = {leaf.certificate.serial_number for leaf in leaves}
    assert len(serials) == 20
    assert all(0 < serial < 2**159 for serial in serials)
    assert len({leaf.pem.partition("-----END")[0] for leaf in leaves}) == 20


def test_a_key_is_pkcs_8_of_the_wanted_kind(authority: KeyedCertificate, tmp_path: Path) -> None:
    leaf = sign_leaf(authority, SERVER, now=NOW)
    assert leaf.pem.startswith("-----BEGIN " + "PRIVATE KEY-----\n")
    assert isinstance(leaf.key, ec.EllipticCurvePrivateKey) and isinstance(leaf.key.curve, ec.SECP256R1)
    old = sign_leaf(authority, LeafRequest.server("localhost", days=1, key_kind="rsa"), now=NOW)
    assert isinstance(old.key, rsa.RSAPrivateKey) and old.key.key_size == 3072
    assert old.certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_encipherment
    server = write(tmp_path, "server.pem", old.pem)
    assert shake_hands(server, write(tmp_path, "ca.pem", authority.certificate_pem), "localhost") is None


def test_a_leaf_that_would_outlive_its_authority_is_not_signed(authority: KeyedCertificate) -> None:
    assert sign_leaf(authority, LeafRequest.client("gw", days=100), now=NOW)
    with pytest.raises(
        ConfigError, match=r"101 days would end after its authority.*--days 100 or less.*rotate DIR --ca"
    ):
        sign_leaf(authority, LeafRequest.client("gw", days=101), now=NOW)
    with pytest.raises(ConfigError, match="--days 40 or less"):
        sign_leaf(authority, LeafRequest.client("gw", days=60), now=NOW + timedelta(days=59, hours=1))
    for late in (99.5, 100, 3000):
        with pytest.raises(ConfigError, match="too soon to sign"):
            sign_leaf(authority, LeafRequest.client("gw", days=1), now=NOW + timedelta(days=late))


@pytest.mark.parametrize(
    "names",
    ["", " ", "a,,b", "a b", "a:9093", "https://a", "a_b.ex ample", "10.0.0.256", "1.2.3", "::g", "*", "*.", "a.*.b",
     "-a", "a-", "a..b", "a.", "münchen.example", "a\nb", "a" * 64, "a/b", "[::1]:80"],
)  # fmt: skip
def test_a_text_that_is_not_a_host_is_rejected(names: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name or an IP address"):
        LeafRequest.server(names, days=1)


def test_a_long_name_needs_a_short_one_before_it() -> None:
    long = ".".join(["a" * 30] * 3)
    with pytest.raises(ConfigError, match="more than 64 characters"):
        LeafRequest.server(long, days=1)
    assert LeafRequest.server(f"short,{long},short", days=1).names == ("short", long)


@pytest.mark.parametrize(
    "name", ["", "a,b", "a/b", "a+b", "a#", "$a", "-a", ".a", "a b", "ä", "a" * 65, 'a"', "a=b", "a\n"]
)
def test_a_client_has_a_name_without_a_meaning_elsewhere(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a client"):
        LeafRequest.client(name, days=1)


@pytest.mark.parametrize("name", ["gateway", "sim-03", "aa:bb:cc:00:11:22", "meter_1@north.example", "7", "A" * 64])
def test_usual_names_of_devices_are_names_of_clients(name: str, authority: KeyedCertificate) -> None:
    leaf = sign_leaf(authority, LeafRequest.client(name, days=1), now=NOW)
    assert leaf.certificate.subject.rfc4514_string() == f"CN={name}"
