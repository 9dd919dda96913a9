"""Access checks of the page: host names against DNS rebinding, methods, sizes and the login. Also headers, and errors as answers.

No cross-origin request is allowed. A script of another site cannot read answers or send a token. Browsers mark its requests as
cross-site, so it cannot use up the connections of the page's viewers either. A form of another site, or of another port of this
host, cannot use a viewer's session.
"""

import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitoring.page.page_api import PageError
from monitoring.page.page_login import PageLogin
from monitoring.page.snapshot_broadcaster import encode_ascii_json

__all__ = ["HEADERS", "MOST_BODY_BYTES", "RequestGuard", "error_response"]

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
        login: checks who may read.
        count: called with the status of each answer.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], login: PageLogin, count: Callable[[int], None]) -> None:
        self._app, self._login, self._count = app, login, count
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
        if _is_foreign(scope["method"], headers):
            raise PageError(403, "Cross-site requests are not allowed; other sites may only link here.")
        self._login.check_read(scope)
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


def _is_foreign(method: str, headers: Headers) -> bool:
    """Return whether another site sent this request. Another site may link here, but not send a form here."""
    site = headers.get("sec-fetch-site")
    if site in ("cross-site", "same-site"):
        return method == "POST" or headers.get("sec-fetch-mode") != "navigate"
    # Over plain HTTP, browsers name only the origin. Behind a proxy with TLS its host may differ, but there they name the site.
    origin = headers.get("origin")
    if method != "POST" or site is not None or origin is None:
        return False
    return origin.partition("://")[2] != headers.get("host")


def error_response(error: PageError) -> Response:
    """Return an error as JSON, `{"error": sentence}`, in place of an answer."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "60"}}.get(error.status)
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
