"""Source of a measured figure: the git revision of the checkout, and whether it had changes."""

import subprocess
from pathlib import Path

__all__ = ["revision"]


def revision(folder: Path = Path(__file__).parent) -> str:
    """Such as `1a2b3c4d5e6f`, with `-dirty` where files differ from it; empty for an installed wheel."""
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return f"{commit}-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
