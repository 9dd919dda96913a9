"""The ops page of an embedded run: its address, and the token that lets the person of this run redrive from it."""

import secrets
from pathlib import Path
from typing import Final

from deploy.settings_file import write_private
from monitoring.addresses import reached_at
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["PAGE_TOKEN", "make_page_token", "page_address", "page_token"]

PAGE_TOKEN: Final = "page-token"  # noqa: S105 - the name of the file, not what is in it


def make_page_token(data: Path) -> Path:
    """The token's file, made once per data folder, so that an open page keeps its right over restarts."""
    file = data / PAGE_TOKEN
    if not file.exists():
        write_private(file, secrets.token_urlsafe(24) + "\n")
    return file


def page_token(monitoring: MonitoringSettings) -> str | None:
    """The token as the file holds it; None where there is none that this user may read."""
    if monitoring.page_token_file is None:
        return None
    try:
        return Path(monitoring.page_token_file).read_text("utf-8").split("\n", 1)[0].strip() or None
    except OSError:
        return None


def page_address(monitoring: MonitoringSettings, *, token: str | None = None) -> str:
    """Return the page's address on this machine. A token comes after `#`, which no browser sends to a server."""
    return f"http://{reached_at(monitoring.host, monitoring.page_port)}/{f'#token={token}' if token else ''}"
