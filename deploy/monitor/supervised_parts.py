"""Parts of the embedded run, from the state that its supervisor writes next to the settings file."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local.runfile import read_state

__all__ = ["SupervisedParts", "read_supervised_parts"]

STALE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class SupervisedParts:
    """State from the supervisor: each part, and whether the whole run is ready."""

    parts: Mapping[str, Mapping[str, Any]]
    ready: bool


def read_supervised_parts(data: Path) -> SupervisedParts | None:
    """Return the supervisor's state; None if it wrote nothing lately, so that the parts' own answers count."""
    state = read_state(data)
    try:
        if time.time() - float(state.get("at", 0.0)) > STALE_SECONDS:
            return None
        return SupervisedParts(
            {str(name): dict(part) for name, part in state["parts"].items()}, bool(state.get("ready"))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
