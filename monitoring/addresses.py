"""Format of hosts and `/metrics` addresses, in one place for all code that requests, links, shows or judges them."""

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Address", "is_loopback", "parse_address", "reached_at"]

EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - looked up, never bound
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server; `netloc` always includes the port, and an IPv6 address is in brackets."""

    scheme: str
    netloc: str
    path: str

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.netloc}{self.path}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server at this address or name; an IPv6 address may be in brackets."""
    host = host.strip().strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def reached_at(host: str, port: int) -> str:
    """Return `host:port` as in a URL; a server bound to every address is reached over loopback."""
    host = EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, *, path: str = "/metrics") -> Address:
    """Parse `host:port` or a URL; without a path, use `path`.

    Raises:
        ValueError: the text is neither.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or PORTS[parts.scheme]
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment or text != text.strip():
            raise ValueError
    except (ValueError, KeyError):
        # The message does not repeat the text: a URL may hold a password.
        msg = "invalid address: use host:port or http(s)://host:port/path, without user, query or spaces"
        raise ValueError(msg) from None
    return Address(parts.scheme, reached_at(parts.hostname, port), parts.path if parts.path.strip("/") else path)
