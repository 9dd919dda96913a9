"""A confined program: what the kernel lets it do. Each program is a child of this test."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehouse import confine
from lakehouse.confine import NEEDED_VERSION, Confinement, confinement_version

pytestmark = pytest.mark.skipif(
    confinement_version() < NEEDED_VERSION,
    reason=f"this kernel has Landlock version {confinement_version()}, not {NEEDED_VERSION}",
)
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/proc", "/etc/ld.so.cache", "/dev/urandom", sys.prefix, sys.base_prefix)


def run(code: str, *, read: tuple[Path, ...] = (), write: tuple[Path, ...] = (), connect: tuple[int, ...] = ()) -> str:
    """Run Python code confined, and return what it prints: OK, or the name of the error."""
    rules = Confinement((*SYSTEM, *map(str, read)), tuple(map(str, write)), connect)
    program = f"try:\n    {code}\n    print('OK')\nexcept OSError as error:\n    print(type(error).__name__)"
    command = [*rules.prefix(), sys.executable, "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folders to read, to write, and one that no rule names; a file in each."""
    found = tmp_path / "tables", tmp_path / "work", tmp_path / "secrets"
    for folder in found:
        folder.mkdir()
        (folder / "file").write_text("1")
    return found


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("open('{tables}/file').read()", "OK"),
        ("__import__('os').listdir('{tables}')", "OK"),
        ("open('{tables}/file', 'a')", "PermissionError"),
        ("open('{tables}/new', 'w')", "PermissionError"),
        ("__import__('os').truncate('{tables}/file', 0)", "PermissionError"),
        ("__import__('os').remove('{tables}/file')", "PermissionError"),
        ("__import__('os').mkdir('{tables}/new')", "PermissionError"),
        ("__import__('os').rename('{tables}/file', '{tables}/other')", "PermissionError"),
        ("__import__('os').rename('{tables}/file', '{work}/file')", "PermissionError"),
        ("__import__('os').link('{tables}/file', '{work}/linked')", "OSError"),
        ("__import__('os').symlink('{secrets}/file', '{work}/to'); open('{work}/to')", "PermissionError"),
        ("open('{work}/new', 'w').write('1')", "OK"),
        ("__import__('shutil').rmtree('{work}')", "PermissionError"),
        ("open('{secrets}/file')", "PermissionError"),
        ("__import__('os').listdir('{secrets}')", "PermissionError"),
        ("open('/dev/null', 'w').write('1')", "OK"),
        ("__import__('subprocess').run(['/bin/sh', '-c', 'exit 0'], check=True)", "OK"),
    ],
)
def test_files(folders: tuple[Path, Path, Path], code: str, wanted: str) -> None:
    tables, work, secrets = folders
    shown = code.format(tables=tables, work=work, secrets=secrets)
    assert run(shown, read=(tables,), write=(work,)) == wanted


def test_children_are_confined_too(folders: tuple[Path, Path, Path]) -> None:
    tables, _, _ = folders
    code = f"__import__('subprocess').run(['/bin/sh', '-c', 'echo 2 > {tables}/file'], stderr=-3)"
    assert run(code, read=(tables,)) == "OK"
    assert (tables / "file").read_text() == "1"


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_only_named_ports_are_reached(listener: int) -> None:
    code = f"__import__('socket').create_connection(('127.0.0.1', {listener}), 5)"
    assert run(code) == "PermissionError"
    assert run(code, connect=(listener,)) == "OK"
    assert run("__import__('socket').create_server(('127.0.0.1', 0))") == "OK"


@pytest.mark.skipif(
    confinement_version() < 6, reason=f"this kernel has Landlock version {confinement_version()}: 6 restricts signals"
)
def test_no_process_outside_is_signalled_or_read() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"SECRET": "x"}) as other:
        assert run(f"__import__('os').kill({other.pid}, {signal.SIGKILL:d})") == "PermissionError"
        assert run(f"open('/proc/{other.pid}/environ').read()") == "PermissionError"
        assert other.poll() is None
        other.kill()


def test_it_keeps_only_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_KAFKA__SASL_PASSWORD", "secret-of-mine")
    monkeypatch.setenv("WANTED", "1")
    rules = Confinement(SYSTEM, (), environment=("WANTED",))
    command = [*rules.prefix(), sys.executable, "-I", "-c", "import os; print(*sorted(os.environ))"]
    names = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert "WANTED" in names
    assert "PATH" in names
    assert "TIDEGATE_KAFKA__SASL_PASSWORD" not in names


def test_a_missing_path_gives_nothing(tmp_path: Path) -> None:
    later = tmp_path / "later"
    assert run(f"open('{later}', 'w')", write=(later,)) == "PermissionError"


def test_an_older_kernel_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "confinement_version", lambda: NEEDED_VERSION - 1)
    with pytest.raises(OSError, match="version 3, but 4 is needed"):
        Confinement((), ()).apply()
    assert os.access(Path.home(), os.R_OK)  # and this process is not confined


def test_a_program_that_could_not_be_confined_does_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    # No process may have more than 16 layers of rules.
    layers = Confinement(("/",), (str(tmp_path),)).prefix() * 17
    done = subprocess.run(
        [*layers, "/bin/sh", "-c", f"echo > {made}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "could not be confined" in done.stderr
    assert not made.exists()
