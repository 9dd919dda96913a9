"""Secrets by reference: a secret setting `file:PATH` is the text of that file."""

from typing import Final, TypeVar

from pydantic import BaseModel, SecretStr

from deploy.settings_faults import ValueOrigins, config_error
from ingest.contract.errors import ConfigError
from ingest.private_file import read_private

__all__ = ["read_secret_files"]

Model = TypeVar("Model", bound=BaseModel)

PREFIX: Final = "file:"


def read_secret_files(settings: Model, origins: ValueOrigins) -> Model:
    """Return the settings with each secret `file:PATH` replaced by the text of that file, without its last line end.

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
        elif isinstance(value, SecretStr) and value.get_secret_value().startswith(PREFIX):
            file = value.get_secret_value().removeprefix(PREFIX)
            try:
                found[field] = SecretStr(_read_secret(file, ".".join(here)))
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
