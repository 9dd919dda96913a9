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
    changed = {
        name: section.model_copy(update=read)
        for name in type(settings).model_fields
        if isinstance(section := getattr(settings, name), BaseModel)
        and (read := _read_section(name, section, origins, faults))
    }
    if faults:
        raise config_error(faults)
    return settings.model_copy(update=changed) if changed else settings


def _read_section(name: str, section: BaseModel, origins: ValueOrigins, faults: list[str]) -> dict[str, SecretStr]:
    found: dict[str, SecretStr] = {}
    for field in type(section).model_fields:
        value = getattr(section, field)
        if not isinstance(value, SecretStr) or not value.get_secret_value().startswith(PREFIX):
            continue
        file = value.get_secret_value().removeprefix(PREFIX)
        try:
            found[field] = SecretStr(_read_secret(file, f"{name}.{field}"))
        except ConfigError as error:
            faults.append(f"{origins.of((name, field))}: {error}")
    return found


def _read_secret(file: str, setting: str) -> str:
    text = read_private(file, setting)
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        message = f"{setting}: {file} is empty. Write the secret into it, as one line."
        raise ConfigError(message)
    return secret
