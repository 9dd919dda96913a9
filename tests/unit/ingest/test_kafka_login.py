"""Client certificates and OAuth for Kafka: golden options for librdkafka and Java, files that cannot be used."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from pydantic import SecretStr

from ingest.clients import make_client
from ingest.contract.errors import ConfigError
from ingest.kafka_login import java_flags, user_name
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf, jvm_conf

URL = "https://login.example.org:8443/realms/iot/token?x=1"
KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gw")])
NOW = datetime.now(UTC)
CERTIFICATE = (
    x509.CertificateBuilder(NAME, NAME, KEY.public_key(), x509.random_serial_number(), NOW, NOW + timedelta(days=1))
    .sign(KEY, hashes.SHA256())
    .public_bytes(Encoding.PEM)
    .decode()
)


def key_text(form: PrivateFormat, encryption: KeySerializationEncryption | None = None) -> str:
    return KEY.private_bytes(Encoding.PEM, form, encryption or NoEncryption()).decode()


PKCS8 = key_text(PrivateFormat.PKCS8)
SECRET = SecretStr("canary-secret")


@pytest.fixture
def certified(tmp_path: Path) -> Callable[..., KafkaSettings]:
    """Settings with a client certificate: `key` is the text of the key file, `mode` its rights."""

    def make(key: str = PKCS8, mode: int = 0o600, **more: Any) -> KafkaSettings:
        (tmp_path / "gw.pem").write_text(f"subject=CN = gw\n{CERTIFICATE}\n# who signed it:\n{CERTIFICATE}")
        (tmp_path / "ca.pem").write_text(CERTIFICATE)
        file = tmp_path / "gw.key"
        file.write_text(key)
        file.chmod(mode)
        files = {"ssl_certificate_file": str(tmp_path / "gw.pem"), "ssl_key_file": str(file)}
        given = {"security_protocol": "SSL", "ssl_ca_file": str(tmp_path / "ca.pem"), **files, **more}
        return KafkaSettings(bootstrap_servers="kafka:9093", **given)

    return make


def test_librdkafka_gets_the_files(certified: Callable[..., KafkaSettings], tmp_path: Path) -> None:
    conf = client_conf(certified(ssl_key_password=SECRET, ssl_crl_file="/crl.pem"), client_id="tester")
    assert {name: value for name, value in conf.items() if name.startswith(("ssl.", "sasl.", "security."))} == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.crl.location": "/crl.pem",
        "ssl.certificate.location": str(tmp_path / "gw.pem"),
        "ssl.key.location": str(tmp_path / "gw.key"),
        "ssl.key.password": "canary-secret",
    }


@pytest.mark.parametrize(
    ("key", "more"),
    [
        pytest.param(PKCS8, {}, id="pkcs8"),
        pytest.param(key_text(PrivateFormat.TraditionalOpenSSL), {}, id="openssl"),
        pytest.param(
            key_text(PrivateFormat.PKCS8, BestAvailableEncryption(b"canary-secret")),
            {"ssl_key_password": SECRET},
            id="encrypted",
        ),
    ],
)
def test_java_gets_the_text_and_the_key_in_the_one_form_that_it_reads(
    certified: Callable[..., KafkaSettings], key: str, more: dict[str, Any]
) -> None:
    assert jvm_conf(certified(key, ssl_crl_file="/not/read", **more)) == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE + CERTIFICATE,
        "ssl.keystore.key": PKCS8,
    }


def test_a_certificate_and_a_password_log_in_together(certified: Callable[..., KafkaSettings]) -> None:
    both = certified(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="gw", sasl_password=SECRET
    )
    assert {"ssl.keystore.key", "sasl.jaas.config"} <= jvm_conf(both).keys()
    assert {"ssl.key.location", "sasl.password"} <= client_conf(both, client_id="tester").keys()


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        (PKCS8, {"mode": 0o640}, r"gw.key has mode 0640, so its group may .* Run `chmod 600 .*gw.key`"),
        (PKCS8, {"mode": 0o604}, "so other users may"),
    ],
)
def test_a_key_that_others_may_read_is_refused(
    certified: Callable[..., KafkaSettings], monkeypatch: pytest.MonkeyPatch, key: str, more: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr("ingest.private_file._ROOT", -1)  # the tests may run as root, whose group may read
    for build in (lambda s: client_conf(s, client_id="tester"), jvm_conf):
        with pytest.raises(ConfigError, match=words):
            build(certified(key, **more))


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        (CERTIFICATE, {}, "gw.key does not contain a private key in PEM form. Name"),
        (key_text(PrivateFormat.PKCS8, BestAvailableEncryption(b"other")), {}, "gw.key is encrypted. Set kafka.ssl_key_"),
        (key_text(PrivateFormat.PKCS8, BestAvailableEncryption(b"other")), {"ssl_key_password": SECRET}, "does not fit"),
        (PKCS8, {"ssl_key_password": SECRET}, "gw.key is not encrypted. Remove kafka.ssl_key_password"),
        (PKCS8, {"ssl_ca_file": "/no/such/file"}, "kafka.ssl_ca_file: /no/such/file cannot be read .No such file"),
    ],
)  # fmt: skip
def test_a_file_that_java_cannot_use_is_one_sentence_without_the_secret(
    certified: Callable[..., KafkaSettings], key: str, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        jvm_conf(certified(key, **more))
    assert "canary-secret" not in str(refusal.value)
    assert refusal.value.exit_code == 78


def test_a_ca_file_without_a_certificate_is_named(certified: Callable[..., KafkaSettings], tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(PKCS8)
    with pytest.raises(ConfigError, match=r"kafka.ssl_ca_file: .*key.pem does not contain a certificate"):
        jvm_conf(certified(ssl_ca_file=str(tmp_path / "key.pem")))


OTHER_KEY = (
    ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
)
LOCKED = key_text(PrivateFormat.PKCS8, BestAvailableEncryption(b"other"))


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        (PKCS8, {"ssl_certificate_file": "/no/such/file"}, "kafka.ssl_certificate_file /no/such/file: the Kafka client rej"),
        (CERTIFICATE, {}, r"kafka.ssl_key_file .*gw.key: the Kafka client rejects"),
        (LOCKED, {}, r"kafka.ssl_key_file .*gw.key: the Kafka client rejects"),
        (LOCKED, {"ssl_key_password": SECRET}, r"kafka.ssl_key_file .*gw.key: the Kafka client rejects"),
        (OTHER_KEY, {}, r"kafka.ssl_key_file .*gw.key: .*key values mismatch"),
    ],
)  # fmt: skip
def test_a_file_that_librdkafka_cannot_use_is_named(
    certified: Callable[..., KafkaSettings], key: str, more: dict[str, Any], words: str
) -> None:
    settings = certified(key, **more)
    with pytest.raises(ConfigError, match=words) as refusal:
        make_client(AdminClient, client_conf(settings, client_id="tester") | {"log_level": 0}, settings)
    assert "canary-secret" not in str(refusal.value)


OAUTH: dict[str, Any] = {
    "bootstrap_servers": "kafka:9093",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_username": "gw",
    "sasl_password": SECRET,
    "oauth_token_url": URL,
}


def test_librdkafka_asks_for_tokens(tmp_path: Path) -> None:
    conf = client_conf(
        KafkaSettings(**OAUTH, oauth_scope="kafka", oauth_ca_file=str(tmp_path / "idp.pem")), client_id="tester"
    )
    assert {name: value for name, value in conf.items() if name.startswith(("https.", "sasl."))} == {
        "https.ca.location": str(tmp_path / "idp.pem"),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "gw",
        "sasl.oauthbearer.client.secret": "canary-secret",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.scope": "kafka",
    }


def test_java_asks_for_tokens_without_classes_that_spark_lacks(tmp_path: Path) -> None:
    (tmp_path / "idp.pem").write_text(CERTIFICATE)
    classes = "org.apache.kafka.common.security.oauthbearer"
    trusted = CERTIFICATE.replace("\n", "\\n")
    settings = KafkaSettings(**OAUTH, oauth_scope="kafka", oauth_ca_file=str(tmp_path / "idp.pem"))
    assert jvm_conf(settings) == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{classes}.OAuthBearerLoginModule required ssl.truststore.type="PEM" '
        f'ssl.truststore.certificates="{trusted}";',
        "sasl.login.callback.handler.class": f"{classes}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.retriever.class": f"{classes}.ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.jwt.validator.class": f"{classes}.ClientJwtValidator",
        "sasl.oauthbearer.client.credentials.client.id": "gw",
        "sasl.oauthbearer.client.credentials.client.secret": "canary-secret",
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.scope": "kafka",
    }
    assert java_flags(settings) == (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={URL}",)
    assert java_flags(KafkaSettings()) == ()


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example.org/token",
        "file:///etc/passwd",
        "https:///token",
        "https://user@login.example.org/token",
        "https://login.example.org/a,file:///etc/passwd",
        "https://login.example.org/a b",
        'https://login.example.org/"',
        "https://login.example.org/token\n",
        "",
    ],
)
def test_only_one_https_url_is_asked_for_tokens(url: str) -> None:
    for build in (lambda s: client_conf(s, client_id="tester"), jvm_conf):
        with pytest.raises(ConfigError, match="one https URL"):
            build(KafkaSettings(**OAUTH | {"oauth_token_url": url}))


def test_an_error_names_the_user_as_far_as_it_is_known(certified: Callable[..., KafkaSettings]) -> None:
    assert user_name(KafkaSettings()) == "ANONYMOUS"
    assert user_name(KafkaSettings(**OAUTH)) == "gw"
    assert user_name(certified()).startswith("of certificate ")
    assert user_name(certified()).endswith("gw.pem")
