"""Folder of an export: its options, its settings, and the files, all or none of them.

So what a person changed there is not lost by accident.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import show_json
from ingest.contract.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["ExportFolder", "ExportResult", "Force", "export_settings", "show_export", "write_export"]

ExportFolder = Annotated[Path, typer.Argument(help="Folder to write to; a missing one is created.", metavar="DIR")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that differ.")]


def export_settings(config: Path | None, data: Path | None) -> "Settings":
    """Return the settings of the embedded run in `data`, else of the file, else the defaults."""
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import load_settings

    return load_settings(config) if data is None else locate_settings(config, data, needs_run=False)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Result of an export; names are paths below the folder."""

    folder: str
    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def write_export(folder: Path, files: Mapping[str, str], *, force: bool) -> ExportResult:
    """Write missing files, and with `force` also files that differ. Other files of the folder stay.

    Raises:
        ConfigError: a file differs, and `force` is not given; nothing was written.
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


def show_export(done: ExportResult, *, as_json: bool, notes: Sequence[str] | None = None, **more: Any) -> None:
    """Print the files that an export wrote, one per line, and the file that says how to use them; `more` is for JSON."""
    if as_json:
        show_json(asdict(done) | ({} if notes is None else {"notes": list(notes)}) | more)
        return
    for name in done.written:
        typer.echo(str(Path(done.folder) / name))
    counts = f"{len(done.written)} files written, {len(done.unchanged)} unchanged"
    typer.echo(f"{counts}; see {done.folder}/README.md.", err=True)
    for note in notes or ():
        typer.echo(f"Note: {note}", err=True)
