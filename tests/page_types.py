"""Checks the types of the status page's JavaScript with TypeScript, for `make check`. Nothing is compiled or shipped.

The folder tests/typescript pins TypeScript and the types of uPlot with hashes. They are installed once into the user's cache.
Exit code 1: TypeScript found an error. Exit code 69: npm could not install the pinned packages. Without npm nothing is checked.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "tests" / "typescript"
PINS = ("package.json", "package-lock.json")
UNAVAILABLE = 69


class InstallError(Exception):
    """npm failed; the text is its output."""


def cache_dir() -> Path:
    """The folder of these pins, next to the other caches of Tidegate."""
    pins = hashlib.sha256(b"\0".join((PROJECT / name).read_bytes() for name in PINS)).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidegate" / "typescript" / pins[:16]


def install(npm: str, folder: Path) -> None:
    """Install the pinned packages into `folder`, which appears only when it is complete.

    Raises:
        InstallError: npm failed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        new = Path(name) / "new"
        new.mkdir()
        for pin in PINS:
            shutil.copy(PROJECT / pin, new)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=new, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InstallError(done.stderr.strip() or done.stdout.strip())
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was faster
                raise


def check(packages: Path) -> int:
    """Run TypeScript on the page's files; it prints its errors."""
    command = [packages / ".bin" / "tsc", "--project", PROJECT, "--typeRoots", packages]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Install what is missing, then check."""
    npm, folder = shutil.which("npm"), cache_dir()
    if npm is None:
        sys.stdout.write("The types of the page's JavaScript were not checked, because npm is not installed.\n")
        return 0
    if not folder.is_dir():
        sys.stderr.write("npm installs TypeScript once ...\n")
        try:
            install(npm, folder)
        except InstallError as error:
            sys.stderr.write(f"npm could not install TypeScript. Fix the cause and run `make check` again:\n{error}\n")
            return UNAVAILABLE
    return 1 if check(folder / "node_modules") else 0


if __name__ == "__main__":
    sys.exit(main())
