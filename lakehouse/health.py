"""Check of a local Delta table for damage: its log file by file, without a JVM, and stricter than readers check it.

Readers take a commit of zero bytes for one without rows, and a torn checkpoint makes the whole table unreadable. Both are found
here before anything is written on top of them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from ingest.contract.errors import FatalError
from lakehouse.commit_metadata import metadata_text
from lakehouse.paths import LOG_FOLDER as LOG
from lakehouse.paths import is_local, log_name, to_path

__all__ = ["HINT", "LogState", "MissingFile", "commit_actions", "examine_log", "missing_files", "refuse_damaged"]

HINT: Final = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class LogState:
    """Files of a table's log, and the faults in them.

    Attributes:
        folder: the table's.
        newest: its newest version, by the names of the files.
        torn: versions after the last good checkpoint whose file is empty or unreadable, ascending.
        gaps: versions after it that have no file.
        bad_checkpoints: checkpoint files without a readable end.
        hint_is_bad: whether `_last_checkpoint` is torn, or names a checkpoint that is not there.
        temporary: files that a killed writer left in the log.
        base: the version of the last good checkpoint; None where the log is complete from version 0.
    """

    folder: Path
    newest: int
    torn: tuple[int, ...]
    gaps: tuple[int, ...]
    bad_checkpoints: tuple[Path, ...]
    hint_is_bad: bool
    temporary: tuple[Path, ...]
    base: int | None

    @property
    def faults(self) -> list[str]:
        """Faults that keep the table from being read or written, as words for a sentence."""
        said = [f"its commit {version} is empty or torn ({log_name(version)})" for version in self.torn]
        said += [f"its commit {version} is missing ({log_name(version)})" for version in self.gaps]
        said += [f"its checkpoint {path.name} is torn" for path in self.bad_checkpoints]
        return said + ([f"its file {LOG}/{HINT} is torn"] if self.hint_is_bad else [])

    def commit(self, version: int) -> Path:
        """The file of a version."""
        return self.folder / log_name(version)

    def files_of(self, version: int) -> list[Path]:
        """All files of the log that belong to a version: commit, checksum, checkpoints."""
        return sorted(
            path for path in (self.folder / LOG).iterdir() if path.name.lstrip(".").startswith(f"{version:020d}")
        )


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A data file that the log names and the disk does not hold; `commit` is the metadata of the commit that added it."""

    path: str
    rows: int | None
    version: int | None
    commit: str | None


def examine_log(folder: Path) -> LogState:
    """Look at every file of the log that a reader needs."""
    names = sorted(path.name for path in (folder / LOG).iterdir())
    commits = {int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()}
    checkpoints = [folder / LOG / name for name in names if ".checkpoint." in name and name[:20].isdigit()]
    base, bad = _last_good(checkpoints)
    known = {int(path.name[:20]) for path in checkpoints} - {int(path.name[:20]) for path in bad}
    newest = max([*commits, *known], default=-1)
    needed = range(0 if base is None else base + 1, newest + 1)
    temporary = tuple(folder / LOG / name for name in names if _is_temporary(name))
    return LogState(
        folder,
        newest,
        tuple(version for version in needed if version in commits and not commit_actions(folder, version)),
        tuple(version for version in needed if version not in commits),
        tuple(bad),
        not _is_good_hint(folder / LOG / HINT, known),
        temporary,
        base,
    )


def commit_actions(folder: Path, version: int) -> list[Mapping[str, Any]]:
    """The actions of a version; none where its file is missing, empty or torn."""
    try:
        text = (folder / log_name(version)).read_text("utf-8")
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError):
        return []
    # Each commit of Spark, delta-rs and ours says what it was, and ends with a line's end.
    return actions if text.endswith(("\n", "}")) and any("commitInfo" in action for action in actions) else []


def missing_files(folder: Path) -> list[MissingFile]:
    """Data files of the newest version that are not on the disk. Costs a look at each."""
    import pyarrow as pa
    from deltalake import DeltaTable

    actions = (
        pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).select(["path", "num_records"]).to_pylist()
    )
    missing = {action["path"]: action["num_records"] for action in actions if not _exists(folder, action["path"])}
    origins = dict(_origins(folder, set(missing))) if missing else {}
    return [MissingFile(path, rows, *origins.get(path, (None, None))) for path, rows in missing.items()]


def refuse_damaged(root: str, names: Iterable[str]) -> None:
    """Refuse to write on tables whose log is not whole.

    Raises:
        FatalError: names the table, what is wrong, and the next step.
    """
    for name in names if is_local(root) else ():
        folder = to_path(root) / name
        if (folder / LOG).is_dir() and (faults := examine_log(folder).faults):
            message = (
                f"The table {folder} is damaged: {'; '.join(faults[:3])}. Nothing was changed. Run `tidegate repair` to see "
                "the fix, and again with --apply to make it."
            )
            raise FatalError(message)


def _origins(folder: Path, paths: set[str]) -> Iterator[tuple[str, tuple[int, str | None]]]:
    for file in sorted((folder / LOG).glob("*.json")):
        actions = commit_actions(folder, int(file.stem)) if file.stem.isdigit() else []
        info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        for action in actions:
            if action.get("add", {}).get("path") in paths:
                yield action["add"]["path"], (int(file.stem), metadata_text(info))


def _exists(folder: Path, path: str) -> bool:
    return (folder / unquote(path)).exists()


def _last_good(checkpoints: list[Path]) -> tuple[int | None, list[Path]]:
    """The newest whole checkpoint and the torn ones after it; older ones are not read any more, and there may be many."""
    bad: list[Path] = []
    for path in reversed(checkpoints):
        if _ends_well(path):
            return int(path.name[:20]), bad
        bad.append(path)
    return None, bad


def _ends_well(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        return path.stat().st_size > 0
    try:
        return bool(pq.read_metadata(path).num_rows > 0)
    except (OSError, pa.ArrowException):
        return False


def _is_good_hint(path: Path, checkpoints: set[int]) -> bool:
    try:
        return int(json.loads(path.read_text("utf-8"))["version"]) in checkpoints
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_temporary(name: str) -> bool:
    return name.endswith(".tmp") or (name.startswith(".") and ".json." in name and not name.endswith(".crc"))
