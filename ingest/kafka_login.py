"""Login and encryption towards Kafka: contradictions in the settings, and the options for librdkafka and for Java."""

import re
from collections.abc import Mapping
from typing import Final

from ingest.client_certificate import check_key_file, read_certificates, read_key
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings

__all__ = ["OAUTH", "check_login", "java_flags", "java_login", "librdkafka_login", "user_name"]

OAUTH: Final = "OAUTHBEARER"
_FILES: Final = {
    "ssl_ca_file": "ssl.ca.location",
    "ssl_crl_file": "ssl.crl.location",
    "ssl_certificate_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
    "oauth_ca_file": "https.ca.location",
}
"""Setting to librdkafka's option."""
_SSL_ONLY: Final = ("ssl_ca_file", "ssl_crl_file", "ssl_certificate_file", "ssl_key_file", "ssl_key_password")
_OAUTH_ONLY: Final = ("oauth_token_url", "oauth_scope", "oauth_ca_file")
_TOKEN_URL: Final = re.compile(r"https://[A-Za-z0-9._:\[\]-]+(?:/[^\s,@\"\\]*)?")
"""One https URL without user name: Kafka's Java client also opens file URLs, and separates allowed URLs by commas."""
_LOGIN_MODULES: Final = {"PLAIN": "plain.PlainLoginModule", OAUTH: "oauthbearer.OAuthBearerLoginModule"}
_OAUTH_CLASSES: Final = "org.apache.kafka.common.security.oauthbearer"


def user_name(settings: KafkaSettings) -> str:
    """Return the name of the Kafka user for people; that of a client certificate is known to the brokers only."""
    if settings.ssl_certificate_file and not settings.sasl_username:
        return f"of certificate {settings.ssl_certificate_file}"
    return settings.sasl_username or "ANONYMOUS"


def librdkafka_login(settings: KafkaSettings) -> dict[str, str]:
    """Return librdkafka's options for login and encryption; the settings passed `check_login`."""
    conf = {option: file for name, option in _FILES.items() if (file := getattr(settings, name)) is not None}
    if settings.ssl_key_password is not None:
        conf["ssl.key.password"] = settings.ssl_key_password.get_secret_value()
    if not (settings.sasl_mechanism and settings.sasl_username and settings.sasl_password):
        return conf
    conf["sasl.mechanism"] = settings.sasl_mechanism
    secret = settings.sasl_password.get_secret_value()
    if settings.sasl_mechanism != OAUTH:
        return conf | {"sasl.username": settings.sasl_username, "sasl.password": secret}
    return conf | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": settings.sasl_username,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": settings.oauth_token_url or "",
        **({"sasl.oauthbearer.scope": settings.oauth_scope} if settings.oauth_scope else {}),
    }


def java_login(settings: KafkaSettings) -> dict[str, str]:
    """Return Java's options for login and encryption; the settings passed `check_login`.

    Certificates and the private key are given as text. Kafka's client treats such options as passwords and does not log them.

    Raises:
        ConfigError: a file cannot be read, or does not contain what it should.
    """
    conf: dict[str, str] = {}
    if settings.ssl_ca_file:
        conf |= _trusted(settings.ssl_ca_file, "kafka.ssl_ca_file")
    if settings.ssl_certificate_file:
        conf |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": read_certificates(
                settings.ssl_certificate_file, "kafka.ssl_certificate_file"
            ),
            "ssl.keystore.key": read_key(settings),
        }
    if settings.sasl_mechanism and settings.sasl_username and settings.sasl_password:
        secret = settings.sasl_password.get_secret_value()
        conf["sasl.mechanism"] = settings.sasl_mechanism
        if settings.sasl_mechanism == OAUTH:
            return conf | _java_oauth(settings, settings.sasl_username, secret)
        conf["sasl.jaas.config"] = _jaas(
            settings.sasl_mechanism, {"username": settings.sasl_username, "password": secret}
        )
    return conf


def java_flags(settings: KafkaSettings) -> tuple[str, ...]:
    """Return the flags that a JVM with Kafka clients needs: Kafka asks only listed URLs for tokens, and lists none itself."""
    if settings.sasl_mechanism != OAUTH or settings.oauth_token_url is None:
        return ()
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={settings.oauth_token_url}",)


def _java_oauth(settings: KafkaSettings, client_id: str, secret: str) -> dict[str, str]:
    trusted = _trusted(settings.oauth_ca_file, "kafka.oauth_ca_file") if settings.oauth_ca_file else {}
    return {
        # The token request takes its own authorities from here, apart from those of the brokers.
        "sasl.jaas.config": _jaas(OAUTH, trusted),
        "sasl.login.callback.handler.class": f"{_OAUTH_CLASSES}.OAuthBearerLoginCallbackHandler",
        # The defaults of both load classes of jose4j, which Spark does not have.
        "sasl.oauthbearer.jwt.retriever.class": f"{_OAUTH_CLASSES}.ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH_CLASSES}.ClientJwtValidator",
        "sasl.oauthbearer.client.credentials.client.id": client_id,
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": settings.oauth_token_url or "",
        **({"sasl.oauthbearer.scope": settings.oauth_scope} if settings.oauth_scope else {}),
    }


def _trusted(file: str, setting: str) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": read_certificates(file, setting)}


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES.get(mechanism, "scram.ScramLoginModule")
    given = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.{module} required{given};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def check_login(settings: KafkaSettings) -> None:
    """Check that the security settings fit each other.

    Raises:
        ConfigError: they contradict each other, or others may read the private key.
    """
    _check_sasl(settings)
    _check_tls(settings)
    _check_oauth(settings)
    check_key_file(settings)


def _check_sasl(settings: KafkaSettings) -> None:
    uses_sasl = settings.security_protocol.startswith("SASL")
    if uses_sasl and not (settings.sasl_mechanism and settings.sasl_username and settings.sasl_password):
        message = (
            f"kafka.security_protocol is {settings.security_protocol}, which needs kafka.sasl_mechanism, "
            "kafka.sasl_username and kafka.sasl_password: set all three."
        )
        raise ConfigError(message)
    if not uses_sasl and (settings.sasl_mechanism or settings.sasl_username or settings.sasl_password):
        instead = "only the client certificate would log in" if settings.ssl_certificate_file else (
            "the connection would be anonymous"
        )  # fmt: skip
        message = (
            f"kafka.security_protocol is {settings.security_protocol}, so the kafka.sasl_* settings would be ignored "
            f"and {instead}: use SASL_SSL, or remove them."
        )
        raise ConfigError(message)
    if settings.security_protocol == "SASL_PLAINTEXT" and settings.sasl_mechanism in ("PLAIN", OAUTH):
        what = "token" if settings.sasl_mechanism == OAUTH else "password"
        message = (
            f"kafka.sasl_mechanism {settings.sasl_mechanism} over SASL_PLAINTEXT sends the {what} unencrypted over the "
            "network: use SASL_SSL, or a SCRAM mechanism."
        )
        raise ConfigError(message)


def _check_tls(settings: KafkaSettings) -> None:
    given = [name for name in _SSL_ONLY if getattr(settings, name) is not None]
    if given and not settings.security_protocol.endswith("SSL"):
        names = " and ".join(f"kafka.{name}" for name in given)
        encrypted = "SASL_SSL" if settings.security_protocol.startswith("SASL") else "SSL"
        message = (
            f"{names} {'is' if len(given) == 1 else 'are'} set, but kafka.security_protocol {settings.security_protocol} does "
            f"not encrypt: use {encrypted}, or remove {names}."
        )
        raise ConfigError(message)
    pair = {name: getattr(settings, name) for name in ("ssl_certificate_file", "ssl_key_file")}
    if len(missing := [name for name, value in pair.items() if not value]) == 1:
        (there,) = pair.keys() - missing
        message = f"kafka.{there} is set without kafka.{missing[0]}: a client certificate needs both."
        raise ConfigError(message)
    if settings.ssl_key_password is not None and not settings.ssl_key_file:
        message = "kafka.ssl_key_password is set without kafka.ssl_key_file: name the key, or remove the password."
        raise ConfigError(message)


def _check_oauth(settings: KafkaSettings) -> None:
    given = [f"kafka.{name}" for name in _OAUTH_ONLY if getattr(settings, name) is not None]
    if settings.sasl_mechanism != OAUTH:
        if given:
            names = " and ".join(given)
            message = f"{names} would be ignored: set kafka.sasl_mechanism to {OAUTH}, or remove {names}."
            raise ConfigError(message)
        return
    if not settings.oauth_token_url or not _TOKEN_URL.fullmatch(settings.oauth_token_url):
        message = (
            f"kafka.sasl_mechanism {OAUTH} needs the token endpoint: set kafka.oauth_token_url to one https URL without user "
            "name and comma, such as https://login.example.org/token."
        )
        raise ConfigError(message)
