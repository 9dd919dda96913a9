"""Small pieces of MQTT and of mosquitto's files that the embedded broker needs and that need no library."""

import base64
import hashlib
import os
import secrets
import socket
import ssl
import struct
from contextlib import ExitStack

from ingest.contract.errors import ConfigError

__all__ = ["check_user", "connect_accepted", "password_line"]

# The count of mosquitto_passwd 2.0; the file holds salted hashes of random passwords and is readable by one user.
ITERATIONS = 101
SALT_BYTES = 12


def check_user(name: str, password: str) -> None:
    """Refuse what a password file or a CONNECT packet cannot hold.

    Raises:
        ConfigError: names the letter.
    """
    bad = next((letter for letter in name if letter in ":\n\r\0"), None)
    if not name or bad is not None:
        message = f"The MQTT user name {name!r} is empty or holds {bad!r}; use letters, digits, '.', '_' and '-'."
        raise ConfigError(message)
    if not password or any(letter in "\n\r\0" for letter in password):
        message = f"The password of the MQTT user {name!r} is empty or holds a line break; choose another."
        raise ConfigError(message)


def password_line(name: str, password: str) -> str:
    """One line of mosquitto's password file: PBKDF2 with SHA-512."""
    salt = os.urandom(SALT_BYTES)
    hashed = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"{name}:$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(hashed).decode()}\n"


def connect_accepted(
    host: str,
    port: int,
    *,
    level: int,
    name: str,
    password: str,
    timeout: float,
    context: ssl.SSLContext | None = None,
) -> bool:
    """Return whether a broker lets this user in: CONNECT with a clean session, look at CONNACK, DISCONNECT.

    Args:
        host: of the broker.
        port: of the listener.
        level: 4 for MQTT 3.1.1, 5 for MQTT 5.
        name: the user.
        password: the user's password.
        timeout: seconds for each step.
        context: for TLS.
    """
    properties = b"\0" if level == 5 else b""
    # Never the same twice: rumqttd 0.20 (in iotcore 0.4) keeps the id of a client that went before its CONNACK, as a
    # look that ran out of time does, and when the id comes again its listener lets no client in any more.
    client_id = f"tidegate-probe-{secrets.token_hex(8)}"
    payload = _text(client_id) + _text(name) + _text(password)
    # Flags: user name, password, clean session; keep-alive 10 s.
    body = _text("MQTT") + struct.pack(">BBH", level, 0b1100_0010, 10) + properties + payload
    try:
        with ExitStack() as parts:
            connection = parts.enter_context(socket.create_connection((host, port), timeout=timeout))
            if context is not None:
                connection = parts.enter_context(context.wrap_socket(connection, server_hostname=host))
            connection.sendall(b"\x10" + _length(len(body)) + body)
            answer = connection.recv(4)
            connection.sendall(b"\xe0\x00")
    except OSError:
        return False
    return len(answer) == 4 and answer[0] == 0x20 and answer[3] == 0


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def _length(size: int) -> bytes:
    out = b""
    while True:
        size, low = divmod(size, 128)
        out += bytes([low | (128 if size else 0)])
        if not size:
            return out
