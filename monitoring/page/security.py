"""Who may ask what: host names against DNS rebinding, methods, sizes, the token; and the headers of every answer.

No cross-origin request is ever allowed: what another site's script sends here it cannot read, it cannot send a token, and
browsers say whose script it is, so that it cannot take the places of those who follow the page either.
"""

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitoring.page.answers import PageError
from monitoring.page.json_response import error_response

__all__ = ["HEADERS", "MOST_BODY_BYTES", "Guard", "check_token", "read_token"]

MOST_BODY_BYTES: Final = 64 * 1024
METHODS: Final = ("GET", "HEAD", "POST")
FOR_MACHINES: Final = frozenset({"/metrics", "/healthz"})
"""Asked under any host name: Prometheus and Kubernetes use names of their own for this machine. They tell figures of the
pipeline and no payload, no device and no secret, so that nothing is gained by pointing another name here."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Stands before the whole app.

    Args:
        app: what it guards.
        hosts: names under which browsers may ask, besides this machine's own addresses.
        count: told the status of each answer.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], count: Callable[[int], None]) -> None:
        self._app, self._count = app, count
        self._hosts = {"localhost", *(host.lower().rstrip(".") for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app: ASGIApp = self._app
        try:
            self._check(scope)
        except PageError as error:
            app = error_response(error)
        await app(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if scope["method"] not in METHODS:
            raise PageError(405, f"This page knows {', '.join(METHODS)} only.")
        named = host_name(headers)
        if scope["path"] not in FOR_MACHINES and not self._is_ours(named, scope.get("server")):
            sentence = (
                f"The page was asked for as {named[:100]!r}; name this host in monitoring.page_hosts to allow it."
            )
            raise PageError(403, sentence)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            raise PageError(403, "Another site's page asked for this; only links from there are followed.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BODY_BYTES:
            raise PageError(413, f"A request's body may have {MOST_BODY_BYTES} bytes.")

    def _is_ours(self, name: str, server: tuple[str, int | None] | None) -> bool:
        """A name that was allowed, or an address of this machine itself: no DNS server can make that point elsewhere."""
        if name in self._hosts:
            return True
        with suppress(ValueError):
            address = ipaddress.ip_address(name)
            return address.is_loopback or (server is not None and address == ipaddress.ip_address(server[0]))
        return False


def host_name(headers: Headers) -> str:
    """The host that the browser asked for, without port; empty where it names none or several."""
    named = headers.getlist("host")
    if len(named) != 1:
        return ""
    text = named[0].strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def read_token(file: str | None) -> str | None:
    """The token that allows redrives; None where there is none. Read at each use, so that a new one holds at once."""
    if file is None:
        return None
    with suppress(OSError, ValueError):
        lines = Path(file).read_text("utf-8").splitlines()
        return (lines[0].strip() or None) if lines else None
    return None


def check_token(headers: Headers, file: str | None) -> None:
    """Let the request pass.

    Raises:
        PageError: there is no token here (403), or the request has no or another one (401).
    """
    token = read_token(file)
    if token is None:
        sentence = (
            "This page only shows: write a token into a file, name the file in monitoring.page_token_file, and open the "
            "page with #token=... behind its address."
        )
        raise PageError(403, sentence)
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip()), _digest(token)):
        raise PageError(401, "The page's token is missing or wrong; open the page with #token=... behind its address.")


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
