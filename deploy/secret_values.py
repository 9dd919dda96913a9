"""Secret values of this process's settings, so that neither its log nor a traceback shows one, whoever wrote the text."""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import BaseModel, SecretStr

from deploy.settings_file import MASK, SECRET_NAME

__all__ = ["mask_secrets", "note_secret", "note_secrets"]

SHORTEST: Final = 6
"""A shorter secret may be a part of usual words, which would become unreadable."""

_noted: set[str] = set()


def note_secrets(model: BaseModel) -> None:
    """Remember the secrets of these settings for `mask_secrets`."""
    for secret in _secrets_in(model):
        note_secret(secret)


def note_secret(secret: str) -> None:
    """Remember one more secret for `mask_secrets`."""
    if len(secret) >= SHORTEST:
        _noted.add(secret)


def mask_secrets(text: str) -> str:
    """Return the text with each secret of the settings masked."""
    for secret in sorted(_noted, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _secrets_in(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            each = getattr(value, name)
            if name == "extra" and isinstance(each, Mapping):
                yield from (text for option, text in each.items() if SECRET_NAME.search(option))
            yield from _secrets_in(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _secrets_in(each)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _secrets_in(each)
