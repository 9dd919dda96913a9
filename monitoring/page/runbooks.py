"""Runbooks of the alerts as HTML. HTML inside a runbook's Markdown is escaped."""

import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitoring.page.page_api import PageError
from monitoring.runbook_text import RUNBOOKS, runbook_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["FOLDER", "runbook_html", "runbook_page"]

FOLDER: Final = RUNBOOKS
_NAME: Final = re.compile(r"[A-Za-z0-9]{1,80}")


def runbook_html(name: str, folder: Path = FOLDER) -> str:
    """Return the runbook of an alert as an HTML fragment.

    Raises:
        PageError: there is no runbook of this name.
    """
    try:
        if not _NAME.fullmatch(name):
            raise FileNotFoundError(name)
        text = runbook_text(name, folder)
    except (OSError, ValueError):
        raise PageError(404, "Runbook not found.") from None
    return str(_markdown().render(text))


def runbook_page(name: str, folder: Path = FOLDER) -> str:
    """Return the runbook of an alert as a whole page, for links from outside."""
    body, title = runbook_html(name, folder), html.escape(name)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - Tidegate runbook</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<script src="/assets/theme.js"></script>
<link rel="icon" href="/assets/icon.svg">
<link rel="stylesheet" href="/assets/theme.css"><link rel="stylesheet" href="/assets/style.css"></head>
<body class="runbook"><main class="prose"><p><a href="/">Tidegate</a></p>
{body}</main></body></html>
"""


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")
