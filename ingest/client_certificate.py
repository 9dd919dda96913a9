"""Certificates and private keys in PEM files, as text for Java: an executor on another machine then needs no file."""

import re
from typing import Final

from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from ingest.private_file import read_private

__all__ = ["check_key_file", "read_certificates", "read_key"]

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
KEY_SETTING: Final = "kafka.ssl_key_file"


def read_certificates(file: str, setting: str) -> str:
    """Return the certificates of a PEM file, one after the other, without the comments between them.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            text = opened.read()
    except OSError as error:
        message = f"{setting}: {file} cannot be read ({error.strerror}). Name a PEM file that this user may read."
        raise ConfigError(message) from error
    found = _CERTIFICATE.findall(text)
    if not found:
        message = f"{setting}: {file} does not contain a certificate. Name a PEM file with BEGIN CERTIFICATE in it."
        raise ConfigError(message)
    return "".join(f"{one}\n" for one in found)


def check_key_file(settings: KafkaSettings) -> None:
    """Check that only its owner may read the private key; nothing without one.

    Raises:
        ConfigError: the file cannot be read, or others may read it.
    """
    if settings.ssl_key_file is not None:
        read_private(settings.ssl_key_file, KEY_SETTING)


def read_key(settings: KafkaSettings) -> str:
    """Return the private key of the settings as PKCS#8 without a password.

    Java reads no other form: it knows neither OpenSSL's own forms (BEGIN RSA or EC PRIVATE KEY) nor the encryption that
    OpenSSL uses by default (PBES2).

    Raises:
        ConfigError: the file cannot be read, others may read it, it holds no private key, or the password does not fit.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    file = settings.ssl_key_file or ""
    password = settings.ssl_key_password
    content = read_private(file, KEY_SETTING).encode("utf-8")
    try:
        key = load_pem_private_key(content, None if password is None else password.get_secret_value().encode("utf-8"))
    except TypeError:
        wrong = "is encrypted. Set" if password is None else "is not encrypted. Remove"
        message = f"{KEY_SETTING}: {file} {wrong} kafka.ssl_key_password."
        raise ConfigError(message) from None
    except (ValueError, UnsupportedAlgorithm):
        fits = "" if password is None else ", or kafka.ssl_key_password does not fit"
        message = (
            f"{KEY_SETTING}: {file} does not contain a private key in PEM form{fits}. Name the PEM file with the key."
        )
        raise ConfigError(message) from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
