"""Runbooks of the alerts: as Markdown for the terminal, as HTML for the page. HTML inside a runbook's Markdown is escaped."""

import html
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from monitoring.page.page_api import PageError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

__all__ = ["RUNBOOKS", "runbook_html", "runbook_page", "runbook_text"]

RUNBOOKS: Final = Path(__file__).parent.parent / "runbooks"
_NAME: Final = re.compile(r"[A-Za-z0-9]{1,80}")
_ELSEWHERE: Final = (
    "If you run the parts as your own services and not with `tidegate up`: add `--config FILE` to `tidegate status`. Use your "
    "supervisor's `journalctl -u UNIT` or `docker logs CONTAINER` in place of `tidegate logs PART`."
)
_NEXT_SECTION: Final = "\n## Mitigation\n"


def runbook_text(name: str, folder: Path = RUNBOOKS) -> str:
    """Return a runbook as Markdown. One that uses commands of an embedded run gets a note on their equivalents elsewhere.

    Raises:
        OSError: there is no runbook of this name.
    """
    text = (folder / f"{name}.md").read_text("utf-8")
    if "tidegate logs" not in text and "tidegate status" not in text:
        return text
    return text.replace(_NEXT_SECTION, f"\n{_ELSEWHERE}\n{_NEXT_SECTION}", 1)


def runbook_html(name: str, folder: Path = RUNBOOKS) -> str:
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


def runbook_page(name: str, folder: Path = RUNBOOKS) -> str:
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
