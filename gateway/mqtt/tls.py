"""TLS of MQTT connections: the context with the certificates of the settings, and the causes of failures in words."""

import ssl
from pathlib import Path
from typing import Final

from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError

__all__ = ["client_context", "fault_text", "pending_alert", "tls_fault"]

_UNKNOWN_AUTHORITY: Final = (
    "mqtt.ca_file does not contain the authority that signed its certificate; set mqtt.ca_file to the certificate of that "
    "authority"
)
_NO_LIST: Final = (
    "mqtt.crl_file has no valid list of the authority that signed its certificate; set mqtt.crl_file to the current list of that "
    "authority"
)
_CERTIFICATES: Final = {
    3: _NO_LIST,
    8: _NO_LIST,
    9: "its certificate is not valid yet; check the clocks of both machines",
    10: "its certificate has expired; renew the certificate at the broker",
    11: _NO_LIST,
    12: "the list in mqtt.crl_file has ended; replace it by a newer one of the same authority",
    18: "its certificate is self-signed; set mqtt.ca_file to this certificate if you trust it",
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    23: "its certificate is revoked; give the broker a new certificate",
    62: "its certificate is for another host; set mqtt.host to a name of the certificate",
    64: "its certificate is for another address; set mqtt.host to a name of the certificate",
}
"""OpenSSL's verify codes, and what they mean for the broker's certificate."""
_OLD_TLS: Final = "it offers only TLS versions before 1.2; enable TLS 1.2 or 1.3 at the broker"
_NO_TLS: Final = "it does not speak TLS on this port; set mqtt.port to its TLS port, often 8883"
_REFUSED: Final = "it refuses the client certificate (mqtt.cert_file)"
_HANDSHAKES: Final = {
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
    "ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNEXPECTED_EOF": _NO_TLS,
    "CERTIFICATE_REQUIRED": "it asks for a client certificate; set mqtt.cert_file and mqtt.key_file",
    "ALERT_CERTIFICATE_EXPIRED": f"{_REFUSED}, which has expired; renew it",
    "ALERT_CERTIFICATE_REVOKED": f"{_REFUSED}, which is revoked; use another one",
    "ALERT_UNKNOWN_CA": f"{_REFUSED}, whose authority the broker does not know; use one of an authority that it knows",
    "ALERT_BAD_CERTIFICATE": f"{_REFUSED} as invalid; look in the broker's log",
    "ALERT_CERTIFICATE_UNKNOWN": f"{_REFUSED} for a reason that it does not name; look in the broker's log",
    "ALERT_UNSUPPORTED_CERTIFICATE": f"{_REFUSED}, because it does not take this kind; look in the broker's log",
}
"""Parts of OpenSSL's reasons, and what they mean for the connection."""


def client_context(settings: MqttSettings) -> ssl.SSLContext:
    """Return the TLS context of a client: it checks the broker's certificate and host name, and presents its own certificate.

    Versions before TLS 1.2 are rejected.

    Raises:
        ConfigError: a file of the settings cannot be read, is not what its setting says, or its password is wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.ca_file is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(settings.ca_file)
    except (OSError, ValueError) as error:
        message = (
            f"mqtt.ca_file: cannot use {settings.ca_file} ({error}): wanted a PEM file with the certificate of the "
            "authority that signed the broker's certificate"
        )
        raise ConfigError(message) from error
    if settings.crl_file is not None:
        _load_revocations(context, settings.crl_file)
    if settings.cert_file is not None and settings.key_file is not None:
        _load_certificate(context, settings, settings.cert_file, settings.key_file)
    return context


def _load_revocations(context: ssl.SSLContext, file: str) -> None:
    wanted = "a PEM file with a list of revoked certificates"
    before = context.cert_store_stats()["crl"]
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        message = f"mqtt.crl_file: cannot use {file} ({error}): wanted {wanted}"
        raise ConfigError(message) from error
    if context.cert_store_stats()["crl"] == before:
        # A file of certificates would otherwise be trusted here, and nothing checked.
        message = f"mqtt.crl_file: {file} has no such list: wanted {wanted}"
        raise ConfigError(message)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, settings: MqttSettings, cert_file: str, key_file: str) -> None:
    _read(cert_file, "cert_file", "the client certificate")
    key = _read(key_file, "key_file", "the private key of mqtt.cert_file")
    secret = settings.key_password.get_secret_value() if settings.key_password is not None else ""
    try:
        # Without a password given here, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert_file, key_file, password=lambda: secret)
    except (OSError, ValueError) as error:
        if "MISMATCH" in str(error):
            message = (
                f"mqtt.key_file: {key_file} is not the private key of the certificate {cert_file} (mqtt.cert_file)"
            )
        elif b"ENCRYPTED" in key:
            fault = "does not open" if secret else "is not set, and it is needed for"
            message = (
                f"mqtt.key_password {fault} the encrypted key {key_file} (mqtt.key_file): set the password of this key"
            )
        else:
            message = (
                f"mqtt.cert_file, mqtt.key_file: cannot use {cert_file} with {key_file} ({error}): wanted PEM files with the "
                "client certificate and its private key"
            )
        raise ConfigError(message) from error


def _read(file: str, setting: str, wanted: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        message = f"mqtt.{setting}: cannot read {file} ({error.strerror or error}): wanted a PEM file with {wanted}"
        raise ConfigError(message) from error


def fault_text(error: BaseException, *, presents_certificate: bool) -> str:
    """Return why a broker cannot be reached, for people; arguments as for `tls_fault`."""
    found = tls_fault(error, presents_certificate=presents_certificate)
    return found or str(error) or type(error).__name__


def tls_fault(error: BaseException, *, presents_certificate: bool) -> str:
    """Return the cause of a failed TLS connection and the next step; empty if TLS is not the cause.

    Args:
        error: raised by the handshake, or by the first read after it.
        presents_certificate: whether the settings name a client certificate.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATES.get(error.verify_code, f"its certificate is not valid ({error.verify_message})")
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = str(error).upper().replace(" ", "_")
    if "HANDSHAKE_FAILURE" in reason and not presents_certificate:
        # TLS 1.2 has no alert of its own for a missing certificate.
        reason = "CERTIFICATE_REQUIRED"
    return next((why for name, why in _HANDSHAKES.items() if name in reason), "")


def pending_alert(sock: object) -> OSError | None:
    """Return the TLS alert that waits on a connection whose write has failed; None if there is none.

    With TLS 1.3 the broker refuses a client certificate after the client's handshake. It may close the connection before the
    client writes, and then the write fails before a read shows the alert.
    """
    if isinstance(sock, ssl.SSLSocket):
        try:
            sock.recv(1)
        except ssl.SSLWantReadError:
            return None
        except OSError as error:
            return error
    return None
