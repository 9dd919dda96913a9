"""Places of tables and of their logs: paths and URIs."""

from pathlib import Path
from typing import Final

__all__ = ["LOG_FOLDER", "is_local", "log_name", "table_uri", "to_path"]

LOG_FOLDER: Final = "_delta_log"


def is_local(uri: str) -> bool:
    """True for a plain path or a file: URI."""
    return "://" not in uri or uri.startswith("file:")


def to_path(uri: str) -> Path:
    """The path of a local root, folder or table; the caller knows that it is local."""
    return Path(uri.removeprefix("file://"))


def table_uri(root: str, name: str) -> str:
    """The place of a table under the root (a path or a URI)."""
    return f"{root.rstrip('/')}/{name}"


def log_name(version: int) -> str:
    """The log file of one version, relative to its table."""
    return f"{LOG_FOLDER}/{version:020d}.json"
