"""Secrets in files of their own: passwords and private keys that only their owner may read."""

import os
import shlex
import stat
from typing import Final

from ingest.contract.errors import ConfigError

__all__ = ["read_private"]

MAX_BYTES: Final = 1024 * 1024
_ROOT: Final = 0


def read_private(file: str, setting: str) -> str:
    """Return the text of a file that nobody but its owner may read.

    A file of root may also be readable by its group: Kubernetes mounts secrets for a process that is not root in this way.

    Args:
        file: its path.
        setting: name of the setting that names the file, such as `kafka.ssl_key_file`, for errors.

    Raises:
        ConfigError: the file is missing, unreadable, too large, not UTF-8, or others may read it. No error repeats the content.
    """
    try:
        with open(file, "rb", opener=_open_at_once) as opened:
            # The rights of the open file: its name may point to another file a moment later.
            about = os.fstat(opened.fileno())
            if not stat.S_ISREG(about.st_mode):
                message = f"{setting}: {file} is not a file. Name a file that holds only the secret."
                raise ConfigError(message)
            _refuse_readers(file, setting, about)
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        message = f"{setting}: {file} cannot be read ({error.strerror}). Name a file that this user may read."
        raise ConfigError(message) from error
    if len(content) > MAX_BYTES:
        message = f"{setting}: {file} has more than {MAX_BYTES} bytes. Name a file that holds only the secret."
        raise ConfigError(message)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{setting}: {file} is not UTF-8 (byte {error.start}). Name a text file that holds only the secret."
        raise ConfigError(message) from None


def _refuse_readers(file: str, setting: str, about: os.stat_result) -> None:
    mode = stat.S_IMODE(about.st_mode)
    allowed = 0o740 if about.st_uid == _ROOT else 0o700
    if mode & ~allowed & 0o777:
        who = "other users" if mode & 0o007 else "its group"
        message = (
            f"{setting}: {file} has mode {mode:04o}, so {who} may read or change the secret. "
            f"Run `chmod 600 {shlex.quote(file)}`."
        )
        raise ConfigError(message)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a named pipe does not wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)
