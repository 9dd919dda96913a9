"""Runbooks as shipped, for the page and for the terminal."""

from pathlib import Path
from typing import Final

__all__ = ["RUNBOOKS", "runbook_text"]

RUNBOOKS: Final = Path(__file__).parent / "runbooks"
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
