"""Check that the six import packages are Tidegate's: their names are common words, so another distribution may hold one."""

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["PACKAGES", "find_foreign_packages"]

PACKAGES: Final = ("gateway", "ingest", "streaming", "lakehouse", "monitoring", "deploy")
OURS: Final = Path(__file__).parents[2]


def find_foreign_packages(owners: Mapping[str, Sequence[str]] | None = None, root: Path = OURS) -> list[str]:
    """Return one sentence per package that is foreign or has a second owner."""
    found = [sentence for name in PACKAGES if (sentence := _elsewhere(name, root))]
    owners = importlib.metadata.packages_distributions() if owners is None else owners
    for name in PACKAGES:
        others = sorted(set(owners.get(name, [])) - {"tidegate"})
        if others:
            found.append(f"The package {name} is also installed by {', '.join(others)}.")
    return found


def _elsewhere(name: str, root: Path) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return f"The package {name} is missing."
    if Path(spec.origin).resolve().parent.parent != root.resolve():
        return f"The package {name} comes from {Path(spec.origin).parent}, not from {root}."
    return None
