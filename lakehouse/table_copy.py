"""Copy of one local Delta table at one version, made from its files while another process writes the table.

Commits, checkpoints and data files never change after they have their name, and maintenance deletes a data file only
`log_retention_hours` after it left the table. So a copy of the files that a version names is that version.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import FatalError
from lakehouse.health import HINT, examine_log, missing_files
from lakehouse.paths import LOG_FOLDER

__all__ = ["TableCopy", "check_copy", "copy_file", "copy_table"]

_OF_VERSION: Final = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\.(?:[\w-]+\.)*(?:parquet|json))")
"""Files of the log that belong to a version. Others are temporary, or checksums of one file system."""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """One copied table."""

    name: str
    version: int
    files: int
    bytes: int


def copy_table(folder: Path, version: int, to: Path, *, former: Path | None = None) -> TableCopy:
    """Copy a table as of a version, with the older versions that its log can still read.

    Args:
        folder: of the table.
        version: the newest one of the copy.
        to: folder of the copy, which does not exist.
        former: an earlier copy; files that it has are linked instead of copied.

    Raises:
        FatalError: a file of this version is missing or torn.
    """
    (to / LOG_FOLDER).mkdir(parents=True)
    # The log first: maintenance removes older commits and checkpoints of it while the data is copied.
    hint = _hint(folder)
    names = [f"{LOG_FOLDER}/{name}" for name in _log_names(folder, version)]
    count = size = 0
    for name in names:
        with suppress(FileNotFoundError):  # past its retention since it was listed; `check_copy` notices one too many
            size += copy_file(folder / name, to / name, former and former / name)
    if hint is not None and hint["version"] <= version:
        (to / LOG_FOLDER / HINT).write_text(json.dumps(hint), encoding="utf-8")
    if faults := _log_faults(to, version):
        message = f"The table {folder} cannot be copied at version {version}: {faults[0]}. Run `tidegate repair`."
        raise FatalError(message)
    # Files that left the table stay for followers that have not read them yet, and for queries of older versions.
    for name in _data_names(folder):
        with suppress(FileNotFoundError):
            size += copy_file(folder / name, to / name, former and former / name)
            count += 1
    check_copy(to, version)
    return TableCopy(folder.name, version, count, size)


def check_copy(folder: Path, version: int) -> None:
    """Refuse a copy that is not whole.

    Raises:
        FatalError: a commit or a data file is missing or torn, or the newest version is another one.
    """
    faults = _log_faults(folder, version)
    if not faults and (missing := missing_files(folder)):
        faults = [f"it lacks {len(missing)} data files, such as {missing[0].path}"]
    if faults:
        message = f"The copy of the table in {folder} is not whole: {'; '.join(faults[:3])}. Make or use another copy."
        raise FatalError(message)


def copy_file(source: Path, to: Path, former: Path | None = None) -> int:
    """Copy a file with its time, or link it to a former copy with the same size and time; return its bytes.

    Raises:
        FileNotFoundError: the source is gone.
    """
    status = source.stat()
    to.parent.mkdir(parents=True, exist_ok=True)
    if former is not None:
        with suppress(OSError):  # there is none, or the file system has no links
            known = former.stat()
            if (known.st_size, known.st_mtime_ns) == (status.st_size, status.st_mtime_ns):
                os.link(former, to)
                return status.st_size
    shutil.copy2(source, to)
    return status.st_size


def _log_faults(folder: Path, version: int) -> list[str]:
    if not (folder / LOG_FOLDER).is_dir():
        return ["it has no log"]
    state = examine_log(folder)
    other = [] if state.newest == version else [f"its newest version is {state.newest} instead of {version}"]
    return state.faults or other


def _log_names(folder: Path, version: int) -> list[str]:
    found = ((entry.name, _OF_VERSION.fullmatch(entry.name)) for entry in os.scandir(folder / LOG_FOLDER))
    return sorted(name for name, match in found if match is not None and int(match[1]) <= version)


def _hint(folder: Path) -> dict[str, Any] | None:
    try:
        hint = json.loads((folder / LOG_FOLDER / HINT).read_text("utf-8"))
        return hint if isinstance(hint["version"], int) else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _data_names(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        within = os.path.relpath(parent, folder)
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        for name in sorted(names):
            if not name.startswith((".", "_")):
                yield os.path.normpath(f"{within}/{name}")
