"""Which settings a command works with: those of --config, else those of the embedded run it finds by --data."""

from pathlib import Path

from deploy.local.runfile import require_run
from deploy.settings import Settings, data_dir, load_settings
from ingest.contract.errors import UnavailableError

__all__ = ["locate_settings"]


def locate_settings(config: Path | None, data: Path | None, *, needs_run: bool) -> Settings:
    """The settings to work with.

    Args:
        config: an explicit file; the embedded run is then not looked at.
        data: the embedded run's folder, or None for the default one.
        needs_run: whether its servers must be up; readers of tables work on what a stopped run left.

    Raises:
        UnavailableError: there is no such run.
    """
    if config is not None:
        return load_settings(config)
    folder = data_dir(data)
    if needs_run:
        require_run(folder)
    file = folder / "config.toml"
    if not file.exists():
        msg = f"No embedded run has written to {folder}. Start one with `tidegate up`, or name its folder with --data."
        raise UnavailableError(msg)
    # The run's own file holds everything, ports included; the environment of this shell must not bend it.
    return load_settings(file, environ={})
