"""Write of a small file, complete or not at all, whatever ends meanwhile."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_json", "write_text"]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file by one rename, its bytes on the disk; folders are made where they are missing."""
    write_text(path, json.dumps(content, default=str))


def write_text(path: Path, content: str) -> None:
    """Write a text in the same way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
