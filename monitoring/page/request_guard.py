"""Access checks of the page: host names against DNS rebinding, methods, sizes and the token. Also headers, and errors as answers.

No cross-origin request is allowed. A script of another site cannot read answers or send a token. Browsers mark its requests as
cross-site, so it cannot use up the connections of the page's viewers either.
"""

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitoring.page.page_api import PageError
from monitoring.page.snapshot_broadcaster import encode_ascii_json

__all__ = ["HEADERS", "MOST_BODY_BYTES", "RequestGuard", "check_token", "error_response", "read_token"]

MOST_BODY_BYTES: Final = 64 * 1024
METHODS: Final = ("GET", "HEAD", "POST")
FOR_MACHINES: Final = frozenset({"/metrics", "/healthz"})
"""Paths allowed under any host name, since Prometheus and Kubernetes use their own names for this machine. They return figures
of the pipeline but no payload, device or secret, so DNS rebinding gains nothing here."""

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


class RequestGuard:
    """Middleware that checks every request before the app handles it.

    Args:
        app: the guarded app.
        hosts: host names that browsers may use, besides this machine's own addresses.
        count: called with the status of each answer.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], count: Callable[[int], None]) -> None:
        self._app, self._count = app, count
        self._hosts = {"localhost", *(host.lower().rstrip(".") for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject the request."""
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
            raise PageError(405, f"Method not allowed: use {', '.join(METHODS)}.")
        named = host_name(headers)
        if scope["path"] not in FOR_MACHINES and not self._is_ours(named, scope.get("server")):
            sentence = f"Host {named[:100]!r} is not allowed. Add it to monitoring.page_hosts to allow it."
            raise PageError(403, sentence)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            raise PageError(403, "Cross-site requests are not allowed; other sites may only link here.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MOST_BODY_BYTES:
            raise PageError(413, f"The request body is too large: at most {MOST_BODY_BYTES} bytes are allowed.")

    def _is_ours(self, name: str, server: tuple[str, int | None] | None) -> bool:
        """Return whether the host is allowed, or an address of this machine, which no DNS server can point elsewhere."""
        if name in self._hosts:
            return True
        with suppress(ValueError):
            address = ipaddress.ip_address(name)
            return address.is_loopback or (server is not None and address == ipaddress.ip_address(server[0]))
        return False


def error_response(error: PageError) -> Response:
    """Return an error as JSON, `{"error": sentence}`, in place of an answer."""
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return Response(encode_ascii_json({"error": str(error)}), error.status, headers, media_type="application/json")


def host_name(headers: Headers) -> str:
    """Return the host that the browser requested, without port; empty if it names none or several."""
    named = headers.getlist("host")
    if len(named) != 1:
        return ""
    text = named[0].strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def read_token(file: str | None) -> str | None:
    """Return the token that allows redrives, or None without one. It is read at each use, so a new token applies at once."""
    if file is None:
        return None
    with suppress(OSError, ValueError):
        lines = Path(file).read_text("utf-8").splitlines()
        return (lines[0].strip() or None) if lines else None
    return None


def check_token(headers: Headers, file: str | None) -> None:
    """Check the token of a request.

    Raises:
        PageError: the monitor has no token (403), or the request has none or a wrong one (401).
    """
    token = read_token(file)
    if token is None:
        sentence = (
            "This page is read-only. To allow redrives, write a token into a file, set monitoring.page_token_file to it, and "
            "open the page with #token=... at the end of its address."
        )
        raise PageError(403, sentence)
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(_digest(given.strip()), _digest(token)):
        raise PageError(
            401, "The page's token is missing or wrong. Open the page with #token=... at the end of its address."
        )


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
