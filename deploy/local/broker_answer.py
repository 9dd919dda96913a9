"""Answer of an MQTT broker to one CONNECT, without a client library: whether it accepts a user."""

import secrets
import socket
import ssl
import struct
from contextlib import ExitStack

__all__ = ["connect_accepted"]


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
    """Return whether a broker accepts this user: CONNECT with a clean session, CONNACK, DISCONNECT.

    Args:
        host: host of the broker.
        port: port of the listener.
        level: 4 for MQTT 3.1.1, 5 for MQTT 5.
        name: name of the user.
        password: password of the user.
        timeout: seconds for each step.
        context: TLS context; None without TLS.
    """
    properties = b"\0" if level == 5 else b""
    # Use a new client id each time. rumqttd 0.20 (in iotcore 0.4) keeps the id of a client that left before its CONNACK, as
    # after a timeout here. If the id comes again, its listener accepts no client any more.
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
