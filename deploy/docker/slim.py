"""Removes from the image's Python packages what Tidegate does not need, by slim.toml next to this module.

`python slim.py SITE_PACKAGES`. It needs only the standard library, and no other module of Tidegate: the image runs it before
Tidegate is installed.
"""

import fnmatch
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LeftOut", "find_left_out", "main", "read_left_out", "read_natives", "remove_left_out"]

FILE: Final = Path(__file__).with_name("slim.toml")
_NATIVE: Final = (".so", ".dll", ".dylib", ".jnilib")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files that are left out together; `files` are globs below site-packages, `packages` are Java packages with slashes."""

    name: str
    reason: str
    files: tuple[str, ...]
    packages: tuple[str, ...]


def read_left_out(file: Path = FILE) -> tuple[LeftOut, ...]:
    """Return the families of slim.toml."""
    tables = tomllib.loads(file.read_text("utf-8"))
    tables.pop("natives")
    return tuple(
        LeftOut(name, table["reason"], tuple(table["files"]), tuple(table["packages"]))
        for name, table in tables.items()
    )


def read_natives(file: Path = FILE) -> dict[str, tuple[str, ...]]:
    """Return jar (a glob) -> globs of the native entries that stay in it."""
    natives = tomllib.loads(file.read_text("utf-8"))["natives"]
    return {jar: tuple(kept) for jar, kept in natives.items()}


def find_left_out(packages: Path, left_out: LeftOut) -> list[Path]:
    """Return the files and folders of a family.

    Raises:
        FileNotFoundError: a glob matches nothing: this version of the package has other files.
    """
    found: list[Path] = []
    for glob in left_out.files:
        matches = sorted(packages.glob(glob))
        if not matches:
            message = f"{glob} of slim.toml matches nothing in {packages}. Compare slim.toml with this version of the package."
            raise FileNotFoundError(message)
        found += matches
    return found


def remove_left_out(packages: Path) -> int:
    """Remove all that slim.toml names, and return how many bytes were freed."""
    before = _size(packages)
    for left_out in read_left_out():
        for path in find_left_out(packages, left_out):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for glob, kept in read_natives().items():
        for jar in _single(packages, glob):
            _repack(jar, kept)
    return before - _size(packages)


def _single(packages: Path, glob: str) -> Iterator[Path]:
    found = list(packages.glob(glob))
    if len(found) != 1:
        message = f"{glob} of slim.toml matches {len(found)} files in {packages}, but 1 is wanted."
        raise FileNotFoundError(message)
    yield found[0]


def _repack(jar: Path, kept: Sequence[str]) -> None:
    fresh = jar.with_suffix(".new")
    with zipfile.ZipFile(jar) as source, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            name = entry.filename
            if not name.endswith(_NATIVE) or any(fnmatch.fnmatchcase(name, glob) for glob in kept):
                target.writestr(entry, source.read(entry))
    fresh.replace(jar)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def main(arguments: Sequence[str] | None = None) -> int:
    """Remove the files from the folder that the first argument names."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        freed = remove_left_out(Path(given[0]))
    except IndexError:
        sys.stderr.write("Name the folder site-packages.\n")
        return 2
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{freed / 1e6:.0f} MB are left out.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
