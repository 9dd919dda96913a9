"""The runbooks as they are shipped, for the page and for the terminal."""

from pathlib import Path
from typing import Final

__all__ = ["RUNBOOKS", "runbook_text"]

RUNBOOKS: Final = Path(__file__).parent / "runbooks"
_ELSEWHERE: Final = (
    "Where the parts are services of your own and not started by `tidegate up`: `tidegate status` takes `--config FILE`, "
    "and `tidegate logs PART` is your supervisor's `journalctl -u UNIT` or `docker logs CONTAINER`."
)
_NEXT_SECTION: Final = "\n## Mitigation\n"


def runbook_text(name: str, folder: Path = RUNBOOKS) -> str:
    """Markdown; pages that send people to an embedded run's commands say at the diagnosis what they are elsewhere.

    Raises:
        OSError: there is none of this name.
    """
    text = (folder / f"{name}.md").read_text("utf-8")
    if "tidegate logs" not in text and "tidegate status" not in text:
        return text
    return text.replace(_NEXT_SECTION, f"\n{_ELSEWHERE}\n{_NEXT_SECTION}", 1)
