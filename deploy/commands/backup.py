"""`tidegate backup` and `tidegate restore`: copy the tables to a folder while the stream runs, and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.commands.options import Data, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from streaming.backup import BackupReport

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add both commands to the command line."""
    parent.command()(backup)
    parent.command()(restore)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)],
    reuse: Annotated[
        Path | None,
        typer.Option(
            "--reuse",
            metavar="DIR",
            help="An earlier backup on the same file system: unchanged files become hard links to it.",
            show_default=False,
        ),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy all tables while the stream runs.

    DIR appears when the copy is complete. The versions in it belong together. It has no checkpoint: a restored stream continues
    from the Kafka offsets that the tables name. Any Delta reader can read DIR/tables. The command needs neither Kafka nor
    Spark. It must take less time than lake.log_retention_hours, because maintenance deletes old files after that.
    """
    from streaming.backup import back_up

    root, _ = _places(config, data)
    with _readable_faults():
        report = back_up(root, folder, former=reuse)
    _show(report, f"Backup of {root} in {folder}", as_json=as_json)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `backup` made.", show_default=False)],
    config: OptionalConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy a backup to where no tables are.

    Checks each file list first, and never replaces tables: set old tables and checkpoints aside before. With --data it also
    restores into a folder where nothing has run yet. Then start the stream: it lands the rest from Kafka.
    """
    from streaming.backup import restore as copy_back

    root, checkpoint = _places(config, data, is_new=True)
    with _readable_faults():
        report = copy_back(folder, root, checkpoint)
    _show(report, f"Restored {folder} to {root}", as_json=as_json)


def _places(config: Path | None, data: Path | None, *, is_new: bool = False) -> tuple[Path, Path]:
    """Return the tables' root and the landing's checkpoint, absolute.

    Raises:
        ConfigError: one of them is not on a local disk.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import data_dir
    from ingest.contract.errors import ConfigError
    from lakehouse.paths import is_local, to_path

    if is_new and config is None and not ((run := data_dir(data)) / "config.toml").exists():
        return run.absolute() / "tables", run.absolute() / "checkpoints" / "land"
    settings = locate_settings(config, data, needs_run=False)
    places = settings.lake.root, settings.stream.checkpoint
    for uri in places:
        if not is_local(uri):
            message = f"`tidegate backup` and `restore` copy local files only, not {uri}. Use the tools of that store."
            raise ConfigError(message)
    root, checkpoint = (to_path(uri).absolute() for uri in places)
    return root, checkpoint


@contextmanager
def _readable_faults() -> Iterator[None]:
    """Report an error of the disk as a sentence."""
    from ingest.contract.errors import FatalError

    try:
        yield
    except OSError as error:
        message = (
            f"The copy failed at {error.filename}: {error.strerror}. Free space, or check the rights of this user."
        )
        raise FatalError(message) from error


def _show(report: "BackupReport", what: str, *, as_json: bool) -> None:
    if as_json:
        show_json(report.to_dict())
        return
    rows = [f"{each.name:20} version {each.version:>9,} {each.bytes / 1e6:>12,.1f} MB" for each in report.tables]
    typer.echo("\n".join(rows))
    typer.echo(
        f"{what}: {len(rows)} tables, {report.bytes / 1e6:,.1f} MB, as of {report.at:%Y-%m-%d %H:%M:%S} UTC.", err=True
    )
