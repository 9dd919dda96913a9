"""A token server on this machine: https, client credentials, signed tokens; and its public key for the brokers."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.authority import Authority

SECRET = "oauth-secret"


def _text(content: bytes | dict[str, Any]) -> str:
    content = json.dumps(content).encode() if isinstance(content, dict) else content
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@dataclass
class TokenServer:
    """Gives a token for every client that knows SECRET.

    Attributes:
        asked: client ids that asked, in order; those with another secret begin with `wrong `.
        jwks: file with its public key, for the brokers.
    """

    jwks: Path
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        public = {name: _text(value.to_bytes((value.bit_length() + 7) // 8)) for name, value in
                  (("n", numbers.n), ("e", numbers.e))}  # fmt: skip
        self.jwks.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", **public}]}))

    def token(self, client: str) -> str:
        """Return a token that says who the client is, for five minutes."""
        now = int(time.time())
        claims = {"sub": client, "iat": now, "exp": now + 300, "aud": "kafka", "scope": "kafka"}
        body = f"{_text({'alg': 'RS256', 'kid': 'k', 'typ': 'JWT'})}.{_text(claims)}"
        return f"{body}.{_text(self._key.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the answer to a request with this header."""
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        self.asked.append(client if secret == SECRET else f"wrong {client}")
        if secret != SECRET:
            return 401, {"error": "invalid_client", "error_description": "the secret does not fit"}
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": 300}


@contextmanager
def open_token_server(folder: Path, authority: Authority) -> Iterator[TokenServer]:
    """Run a token server while the block runs."""
    server = TokenServer(folder / "jwks.json")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, content = server.answer(self.headers.get("Authorization", ""))
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.socket = authority.server().wrap_socket(listener.socket, server_side=True)
    server.url = f"https://localhost:{listener.server_address[1]}/token"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
