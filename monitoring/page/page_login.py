"""Login of the page: a token as bearer, a session cookie in exchange for it, or a user whom a trusted proxy names.

A session is a cookie that no script can read and no other site can send. It is signed with the token that it was given for, so
a new token in the file ends all sessions of the old one, and a restart of the monitor ends none.
"""

import hmac
import time
from collections.abc import Callable
from enum import IntEnum
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.page_api import PageError
from monitoring.page.page_tokens import may_write, needs_login, read_token

__all__ = ["PageLogin", "Role"]

SESSION_SECONDS: Final = 12 * 3600
"""Life of a session; an open page renews it."""
MOST_FAILED: Final = 10
FAILED_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 1000
"""Addresses whose failed logins are remembered; the oldest are forgotten first."""

OPEN: Final = frozenset({"/", "/healthz", "/api/session", "/api/login", "/api/logout"})
"""Paths that need no login. The page's own files and the runbooks are the same in every installation, and show no data."""
OPEN_FOLDERS: Final = ("/assets/", "/runbooks/")


class Role(IntEnum):
    """Rights of a request; each role has those of the smaller ones."""

    NOBODY = 0
    READER = 1
    WRITER = 2

    @property
    def word(self) -> str:
        """Word for the page: none, read or write."""
        return ("none", "read", "write")[self]


class PageLogin:
    """Rights of requests by the settings of one page. Use it on the server's thread only.

    Args:
        settings: tokens, and the trusted proxy.
        now: wall clock in epoch seconds, for the end of sessions and the pause after failed logins.
    """

    def __init__(self, settings: MonitoringSettings, *, now: Callable[[], float] = time.time) -> None:
        self._settings, self._now = settings, now
        self._proxies = [ip_network(text, strict=False) for text in settings.proxy_addresses]
        self._failed = _FailedLogins(now)
        # Browsers send a cookie to every port of a host: two monitors on one host have two cookies.
        self._cookie = f"tidegate-page-{settings.page_port}"

    @property
    def is_needed(self) -> bool:
        """True if reading needs a login."""
        return needs_login(self._settings)

    def role(self, scope: Scope) -> Role:
        """Return the rights of a request by its cookie or its user; a bearer token is not looked at."""
        asked = HTTPConnection(scope)
        least = Role.NOBODY if self.is_needed else Role.READER
        return max(least, self._role_of_user(asked), self._role_of_cookie(asked))

    def check_read(self, scope: Scope) -> None:
        """Check that a request may see its path.

        Raises:
            PageError: it needs a login (401), or its address has failed too often (429).
        """
        path = scope["path"]
        if path in OPEN or path.startswith(OPEN_FOLDERS) or self.role(scope) >= Role.READER:
            return
        if self._role_of_bearer(HTTPConnection(scope)) < Role.READER:
            raise PageError(401, "This page needs a login. Open it with #token=... at the end of its address.")

    def still_reads(self, scope: Scope) -> bool:
        """Return whether a request that was let in still may read: its session may end, and its token may change."""
        try:
            self.check_read(scope)
        except PageError:
            return False
        return True

    def check_write(self, scope: Scope) -> str:
        """Check that a request may change something, and return who asks, for the log.

        Raises:
            PageError: nobody may write (403), a reader may not (403), a token is missing or wrong (401), or the address has
                failed too often (429).
        """
        asked = HTTPConnection(scope)
        user = self._user(asked)
        if self._role_of_user(asked) is Role.WRITER:
            return f"user {user!r}"
        if not may_write(self._settings):
            sentence = (
                "This page is read-only. To allow redrives, write a token into a file, set monitoring.page_token_file to it, "
                "and open the page with #token=... at the end of its address."
            )
            raise PageError(403, sentence)
        role = max(self.role(scope), self._role_of_bearer(asked))
        if role is Role.WRITER:
            return "the holder of the page's token"
        if role is Role.READER and self.is_needed:
            raise PageError(
                403, "This login may only read. Log in with the token in monitoring.page_token_file to redrive."
            )
        raise PageError(401, _WRONG)

    def log_in(self, scope: Scope) -> tuple[Role, str]:
        """Return the role of the bearer token, and the `Set-Cookie` of a session with it.

        Raises:
            PageError: the token is missing or wrong (401), or the address has failed too often (429).
        """
        asked = HTTPConnection(scope)
        role = self._role_of_bearer(asked)
        if role is Role.NOBODY:
            raise PageError(401, _WRONG)
        return role, self._session(asked, role)

    def renewed(self, scope: Scope) -> str | None:
        """Return the `Set-Cookie` that renews the request's session; None if it has none."""
        asked = HTTPConnection(scope)
        role = self._role_of_cookie(asked)
        return self._session(asked, role) if role else None

    def log_out(self, scope: Scope) -> str:
        """Return the `Set-Cookie` that ends the session in this browser."""
        return self._set_cookie(HTTPConnection(scope), "", 0)

    def _session(self, asked: HTTPConnection, role: Role) -> str:
        until = int(self._now()) + SESSION_SECONDS
        return self._set_cookie(asked, f"{role.word}.{until}.{self._signature(role, until)}", SESSION_SECONDS)

    def _set_cookie(self, asked: HTTPConnection, value: str, seconds: int) -> str:
        # The browser itself reports how it reached the page. The monitor sees only what a proxy forwards.
        secure = "; Secure" if asked.headers.get("origin", "").startswith("https://") else ""
        return f"{self._cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _role_of_cookie(self, asked: HTTPConnection) -> Role:
        word, _, rest = asked.cookies.get(self._cookie, "").partition(".")
        until, _, signature = rest.partition(".")
        role = next((each for each in (Role.WRITER, Role.READER) if each.word == word), Role.NOBODY)
        if role is Role.NOBODY or not (until.isascii() and until.isdecimal()) or len(until) > 12:
            return Role.NOBODY
        wanted = self._signature(role, int(until))
        is_ours = wanted is not None and hmac.compare_digest(signature.encode(), wanted.encode())
        return role if is_ours and self._now() < int(until) else Role.NOBODY

    def _signature(self, role: Role, until: int) -> str | None:
        """Return what only the holder of the role's token can make; None if there is no such token."""
        token = self._token(role)
        message = f"{self._cookie} {role.word} {until}".encode()
        return None if token is None else hmac.new(token.encode(), message, sha256).hexdigest()

    def _token(self, role: Role) -> str | None:
        settings = self._settings
        return read_token(settings.page_token_file if role is Role.WRITER else settings.read_token_file)

    def _role_of_bearer(self, asked: HTTPConnection) -> Role:
        """Return the role of a bearer token; a wrong token counts as a failed login of its address.

        Raises:
            PageError: this address has failed too often.
        """
        kind, _, given = asked.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given.strip():
            return Role.NOBODY
        address = _network(asked.client.host if asked.client else "")
        self._failed.check(address)
        for role in (Role.WRITER, Role.READER):
            token = self._token(role)
            if token is not None and hmac.compare_digest(_digest(given.strip()), _digest(token)):
                return role
        self._failed.note(address)
        return Role.NOBODY

    def _role_of_user(self, asked: HTTPConnection) -> Role:
        if (user := self._user(asked)) is None:
            return Role.NOBODY
        return Role.WRITER if user in self._settings.proxy_write_users else Role.READER

    def _user(self, asked: HTTPConnection) -> str | None:
        """Return the user whom a trusted proxy names; None if it names none, or several."""
        header = self._settings.proxy_user_header
        if header is None or asked.client is None:
            return None
        try:
            peer = ip_address(asked.client.host)
        except ValueError:
            return None
        if isinstance(peer, IPv6Address) and peer.ipv4_mapped is not None:
            peer = peer.ipv4_mapped
        named = asked.headers.getlist(header)
        is_trusted = any(peer in network for network in self._proxies)
        return (named[0].strip() or None) if is_trusted and len(named) == 1 else None


_WRONG: Final = "The page's token is missing or wrong. Open the page with #token=... at the end of its address."


class _FailedLogins:
    """Failed logins by address: after too many within a minute, the address waits for the next minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counts: dict[str, tuple[int, float]] = {}

    def check(self, address: str) -> None:
        count, since = self._counts.get(address, (0, 0.0))
        if count >= MOST_FAILED and 0 <= self._now() - since < FAILED_SECONDS:
            raise PageError(429, f"Too many failed logins from this address. Try again in {FAILED_SECONDS:g} s.")

    def note(self, address: str) -> None:
        now = self._now()
        count, since = self._counts.pop(address, (0, now))
        self._counts[address] = (count + 1, since) if 0 <= now - since < FAILED_SECONDS else (1, now)
        while len(self._counts) > MOST_ADDRESSES:
            del self._counts[next(iter(self._counts))]


def _network(host: str) -> str:
    """Return the address, and of IPv6 its network: one client has all addresses of a /64."""
    if ":" not in host:
        return host
    return str(ip_network(f"{host.partition('%')[0]}/64", strict=False))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
