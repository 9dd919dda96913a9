"""Secrets by reference: a secret setting `file:PATH` is the text of that file, read again when the file has changed."""

import logging
import os
from typing import Final, TypeVar

from pydantic import BaseModel, SecretStr

from deploy.secret_values import note_secret
from deploy.settings_faults import ValueOrigins, config_error
from ingest.contract.errors import ConfigError
from ingest.private_file import read_private

__all__ = ["FileSecret", "read_secret_files"]

logger = logging.getLogger("tidegate.settings")

Model = TypeVar("Model", bound=BaseModel)

PREFIX: Final = "file:"


class FileSecret(SecretStr):
    """A secret that follows its file: whoever asks for the value gets the text that the file has now.

    If the file is missing or cannot be used, the former secret stays, and the log says so once for each change. Any thread may
    ask.
    """

    def __init__(self, file: str, setting: str) -> None:
        """Read the file.

        Args:
            file: its path.
            setting: name of the setting, for errors and the log.

        Raises:
            ConfigError: the file cannot be read, is empty, or others may read it.
        """
        self._file, self._setting = file, setting
        # Before the text: a change while it is read is then found at the next look.
        self._stamp = _stamp(file)
        super().__init__(_read_secret(file, setting))

    def get_secret_value(self) -> str:
        """Return the secret, read again if the file has changed."""
        stamp = _stamp(self._file)
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return self._secret_value

    def _read_again(self) -> None:
        try:
            newest = _read_secret(self._file, self._setting)
        except ConfigError as error:
            logger.error("The former secret stays in use. %s", error)
            return
        if newest != self._secret_value:
            note_secret(newest)
            self._secret_value = newest
            logger.info("%s has changed in %s. It applies at the next login.", self._setting, self._file)

    def __eq__(self, other: object) -> bool:
        """Return whether the other is a secret with the same value, from a file or not."""
        return isinstance(other, SecretStr) and self.get_secret_value() == other.get_secret_value()

    def __hash__(self) -> int:
        """Return the hash of the value; it changes with the file."""
        return super().__hash__()


def read_secret_files(settings: Model, origins: ValueOrigins) -> Model:
    """Return the settings with each secret `file:PATH` replaced by the text of that file, without its last line end.

    Such a secret follows its file (FileSecret).

    Raises:
        ConfigError: a file cannot be read, is empty, or others may read it. The text lists all errors, each with its origin.
    """
    faults: list[str] = []
    changed = _read_section((), settings, origins, faults)
    if faults:
        raise config_error(faults)
    return settings.model_copy(update=changed) if changed else settings


def _read_section(
    path: tuple[str, ...], section: BaseModel, origins: ValueOrigins, faults: list[str]
) -> dict[str, BaseModel | SecretStr]:
    """Return the fields that change: secrets in files, and sections that have such a secret at any depth."""
    found: dict[str, BaseModel | SecretStr] = {}
    for field in type(section).model_fields:
        value, here = getattr(section, field), (*path, field)
        if isinstance(value, BaseModel):
            if read := _read_section(here, value, origins, faults):
                found[field] = value.model_copy(update=read)
        elif type(value) is SecretStr and value.get_secret_value().startswith(PREFIX):
            file = value.get_secret_value().removeprefix(PREFIX)
            try:
                found[field] = FileSecret(file, ".".join(here))
            except ConfigError as error:
                faults.append(f"{origins.of(here)}: {error}")
    return found


def _read_secret(file: str, setting: str) -> str:
    text = read_private(file, setting)
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        message = f"{setting}: {file} is empty. Write the secret into it, as one line."
        raise ConfigError(message)
    return secret


def _stamp(file: str) -> tuple[int, int, int, int] | None:
    """Return what differs between two states of a file, also after a chmod; None if it cannot be looked at."""
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_ctime_ns, about.st_size, about.st_ino, about.st_mode
