"""How a host and an address of `/metrics` are written: once, for everyone who asks, links or shows."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Address", "parse_address", "reached_at"]

EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - looked up, never bound
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is asked; `netloc` always names the port, and an IPv6 address in brackets."""

    scheme: str
    netloc: str
    path: str

    @property
    def url(self) -> str:
        """All of it."""
        return f"{self.scheme}://{self.netloc}{self.path}"


def reached_at(host: str, port: int) -> str:
    """`host:port` as it stands in a URL; a server that is bound to every address is reached by loopback."""
    host = EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, *, path: str = "/metrics") -> Address:
    """`host:port` or a URL; without a path it means `path`.

    Raises:
        ValueError: it is neither.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or PORTS[parts.scheme]
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment or text != text.strip():
            raise ValueError
    except (ValueError, KeyError):
        # Not repeated: a URL may hold a password.
        msg = "an address is host:port or http(s)://host:port/path, without user, query or spaces"
        raise ValueError(msg) from None
    return Address(parts.scheme, reached_at(parts.hostname, port), parts.path if parts.path.strip("/") else path)
