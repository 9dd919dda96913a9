"""Writes the files of an export into a folder, all or none: what a person changed there is not lost by accident."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.contract.errors import ConfigError, UnavailableError

__all__ = ["ExportResult", "write_export"]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Result of an export; names are paths below the folder."""

    folder: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def write_export(folder: Path, files: Mapping[str, str], *, force: bool) -> ExportResult:
    """Write what is missing; what is there with other content only by `force`. Other files of the folder stay.

    Raises:
        ConfigError: a file is there with other content, and `force` is not given; nothing was written.
        UnavailableError: the folder cannot be written.
    """
    try:
        differing = [name for name, text in files.items() if not _is(folder / name, text)]
        changed = [name for name in differing if (folder / name).exists()]
        if changed and not force:
            names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            msg = f"{folder}: existing files differ: {names}. Give another folder, or --force to replace them."
            raise ConfigError(msg)
        for name in differing:
            _write(folder / name, files[name])
    except OSError as error:
        msg = f"{error.filename or folder}: cannot be written ({error.strerror}). Give a writable folder."
        raise UnavailableError(msg) from error
    return ExportResult(str(folder), tuple(differing), tuple(name for name in files if name not in differing))


def _is(file: Path, text: str) -> bool:
    try:
        return file.read_bytes() == text.encode()
    except FileNotFoundError:
        return False


def _write(file: Path, text: str) -> None:
    """Write by a rename, so that a Grafana that watches the folder never reads half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(text.encode())
    fresh.replace(file)
