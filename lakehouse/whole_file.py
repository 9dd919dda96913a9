"""Writes a small JSON file whole or not at all, whatever dies meanwhile."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_json"]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file by one rename, its bytes on the disk; folders are made where they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(content, file, default=str)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
