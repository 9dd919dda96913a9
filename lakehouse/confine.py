"""Start a program that can read, write and reach only what it is given, by Landlock of the Linux kernel.

Landlock (kernel documentation: userspace-api/landlock) takes rights away from a process and all its children, without root. What
the rules do not name is denied, whatever the program runs: so a server may run SQL and code of its clients. A confined process
can also neither trace nor signal a process outside, nor read its environment.

This file also runs by itself, as `python confine.py RULES PROGRAM ARGUMENT…`, so it imports the standard library only.
"""

import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["Confinement", "confinement_version"]

NEEDED_VERSION: Final = 4
"""Of Landlock's interface: the first that restricts TCP (Linux 6.7)."""
_SIGNAL_VERSION: Final = 6
"""The first that keeps signals and abstract sockets inside (Linux 6.12)."""
_IOCTL_VERSION: Final = 5

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the same numbers on every processor."""
_VERSION_FLAG, _PATH_BENEATH, _NET_PORT = 1, 1, 2
_NO_NEW_PRIVILEGES, _DROP_CAPABILITY = 38, 24
"""Of prctl."""
_KEPT_CAPABILITIES: Final = frozenset({1, 2})
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: root serves the tables of another user. The rules bound both."""
_CAPABILITIES = 64

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ALL_BEFORE_IOCTL = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
"""Rights that a rule of a single file may name; the others are of folders."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CONNECT_TCP = 1 << 1
_ABSTRACT_SOCKET, _SIGNAL = 1 << 0, 1 << 1

_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SPARK_HOME", "SPARK_CONNECT_MODE", "PYSPARK_PYTHON")


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a program may use.

    Args:
        read: files and folders that it may read and execute, with all below them. A path that does not exist gives nothing.
        write: folders in which it may also make, change and delete files.
        connect: TCP ports that it may connect to, on any host. It may listen on every port.
        environment: names of environment variables that it keeps, besides PATH, HOME, language, time zone and Spark's.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    connect: tuple[int, ...] = ()
    environment: tuple[str, ...] = ()

    def prefix(self) -> tuple[str, ...]:
        """Return the words that go before a command to confine it. They hold the rules, so no rule may be a secret."""
        return (sys.executable, "-I", str(Path(__file__).absolute()), json.dumps(asdict(self)))

    def apply(self) -> None:
        """Confine this process and its later children, for the rest of their lives.

        A program that root starts in it has no other capability than to read and write files of all users.

        Raises:
            OSError: this kernel cannot do it; nothing has changed then.
        """
        version = confinement_version()
        if version < NEEDED_VERSION:
            message = f"Landlock has version {version}, but {NEEDED_VERSION} is needed"
            raise OSError(message)
        every = _ALL_BEFORE_IOCTL | (_IOCTL if version >= _IOCTL_VERSION else 0)
        scoped = _ABSTRACT_SOCKET | _SIGNAL if version >= _SIGNAL_VERSION else 0
        rules = _Ruleset(every, _CONNECT_TCP, scoped)
        # Without the right to ioctl, a program cannot ask whether /dev/null is a terminal.
        rules.allow_paths(self.read, _READ | (every & _IOCTL))
        rules.allow_paths(self.write, every)
        rules.allow_paths(("/dev/null",), _READ_FILE | _WRITE_FILE | (every & _IOCTL))
        for port in self.connect:
            rules.allow_port(port)
        rules.restrict()

    def variables(self) -> dict[str, str]:
        """Return this process's environment variables that the program keeps: others may hold secrets."""
        kept = {*_KEPT_VARIABLES, *self.environment}
        return {name: value for name, value in os.environ.items() if name in kept}


def confinement_version() -> int:
    """Return the version of Landlock in the running kernel; 0 where there is none, or where it is switched off."""
    if sys.platform != "linux":
        return 0
    found: int = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return max(found, 0)


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_, _layout_ = 1, "ms"  # the kernel packs it
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


class _Ruleset:
    def __init__(self, files: int, net: int, scoped: int) -> None:
        attributes = _RulesetAttributes(files, net, scoped)
        # Older kernels know a shorter structure, and reject a longer one only where the rest is not zero.
        self._number = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0)

    def allow_paths(self, paths: Iterable[str], rights: int) -> None:
        for path in paths:
            try:
                parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                folder = stat.S_ISDIR(os.fstat(parent).st_mode)
                rule = _PathRule(rights if folder else rights & _OF_FILES, parent)
                _call(_ADD_RULE, self._number, _PATH_BENEATH, ctypes.byref(rule), 0)
            finally:
                os.close(parent)

    def allow_port(self, port: int) -> None:
        _call(_ADD_RULE, self._number, _NET_PORT, ctypes.byref(_PortRule(_CONNECT_TCP, port)), 0)

    def restrict(self) -> None:
        for capability in set(range(_CAPABILITIES)) - _KEPT_CAPABILITIES:
            # CAP_PERFMON reads other processes past Landlock. Who may not drop one has none to drop.
            _libc().prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise _last_error()
        _call(_RESTRICT_SELF, self._number, 0)
        os.close(self._number)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    found: int = _libc().syscall(number, *arguments)
    if found < 0:
        raise _last_error()
    return found


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _main(arguments: Sequence[str]) -> None:
    rules, *command = arguments
    given = {name: tuple(value) for name, value in json.loads(rules).items()}
    confinement = Confinement(**given)
    try:
        confinement.apply()
    except OSError as error:
        sys.exit(f"The program was not started, because it could not be confined: {error}.")
    os.execve(command[0], command, confinement.variables())  # noqa: S606 - the caller's program, without a shell


if __name__ == "__main__":
    _main(sys.argv[1:])
