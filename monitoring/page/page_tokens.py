"""Tokens of the page, and the login that its settings ask for. Reading and writing are apart."""

import stat
from contextlib import suppress
from pathlib import Path

from monitoring.addresses import is_loopback
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["exposure_fault", "login_fault", "may_write", "needs_login", "read_token"]


def read_token(file: str | None) -> str | None:
    """Return the token in a file, or None without one. It is read at each use, so a new token applies at once."""
    if file is None:
        return None
    with suppress(OSError, ValueError):
        lines = Path(file).read_text("utf-8").splitlines()
        return (lines[0].strip() or None) if lines else None
    return None


def needs_login(settings: MonitoringSettings) -> bool:
    """Return whether reading the page needs a login."""
    return settings.read_token_file is not None or settings.proxy_user_header is not None


def may_write(settings: MonitoringSettings) -> bool:
    """Return whether anybody may redrive from the page."""
    return read_token(settings.page_token_file) is not None or bool(settings.proxy_write_users)


def login_fault(settings: MonitoringSettings) -> str | None:
    """Return why the network could read the page without a login, with the next step; None if it could not. Opens no file."""
    if not is_loopback(settings.host) and not needs_login(settings):
        return (
            f'monitoring.host = "{settings.host}" would show the page to the network without a login. Set '
            "monitoring.read_token_file to a file that holds a token, or monitoring.proxy_user_header and "
            'monitoring.proxy_addresses for a proxy that logs users in. Or set monitoring.host to "127.0.0.1".'
        )
    return None


def exposure_fault(settings: MonitoringSettings) -> str | None:
    """Return why this machine must not serve the page with these settings, with the next step; None if it may serve it."""
    if fault := login_fault(settings):
        return fault
    for name in ("read_token_file", "page_token_file"):
        file: str | None = getattr(settings, name)
        if file is not None and (fault := _file_fault(Path(file))):
            return f"monitoring.{name}: {fault}"
    reads = read_token(settings.read_token_file)
    if settings.read_token_file is not None and reads is None:
        return (
            f"monitoring.read_token_file: {settings.read_token_file} holds no token that this user can read, so nobody could "
            "log in. Write a random token into its first line."
        )
    if reads is not None and reads == read_token(settings.page_token_file):
        return (
            "monitoring.read_token_file and monitoring.page_token_file hold the same token, so each reader could write. Use "
            "two tokens."
        )
    return None


def _file_fault(file: Path) -> str | None:
    """Return the fault of a token file that all users of the machine may read or replace; a missing one has none here."""
    with suppress(OSError):
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
            return f"other users of this machine may read or change {file}. Run `chmod 600 {file}`."
    return None
