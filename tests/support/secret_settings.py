"""All secret fields of the settings, found in the models themselves, so that a new field is tested without a change here.

`from tests.support.secret_settings import secret_paths, with_secrets`.
"""

from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, SecretStr

from deploy.settings import Settings

Path = tuple[str, ...]
M = TypeVar("M", bound=BaseModel)


def _parts(annotation: Any) -> Iterator[type]:
    """All classes that an annotation names, at any depth."""
    if isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


def fields(
    model: type[BaseModel] = Settings, path: Path = (), above: tuple[type, ...] = ()
) -> Iterator[tuple[Path, Any]]:
    """Each field with its path; a model inside a list or a table has `[]` there."""
    for name, field in model.model_fields.items():
        yield (*path, name), field.annotation
        is_plain = get_origin(field.annotation) not in (tuple, list, dict, set, frozenset)
        for part in _parts(field.annotation):
            if issubclass(part, BaseModel) and part not in above:
                inner = (*path, name) if is_plain else (*path, name, "[]")
                yield from fields(part, inner, (*above, part))


def secret_paths() -> list[Path]:
    """Paths of all fields whose value is a secret."""
    return [path for path, annotation in fields() if SecretStr in _parts(annotation)]


def with_secrets(settings: Settings, secret: str | None = None) -> tuple[Settings, dict[Path, str]]:
    """The settings with this secret, or another one each, in each secret field, and these secrets.

    Rules that join fields are not checked.
    """
    given = {path: secret or f"S3CR3T-of-{'-'.join(path)}" for path in secret_paths()}
    for path, text in given.items():
        settings = _filled(settings, path, SecretStr(text))
    return settings, given


def _filled(model: M, path: Path, value: SecretStr) -> M:
    first, *rest = path
    assert first != "[]", "a secret inside a list: fill it here too"
    inner = getattr(model, first)
    if rest and inner is None:
        inner = next(
            part for part in _parts(type(model).model_fields[first].annotation) if issubclass(part, BaseModel)
        )()
    return model.model_copy(update={first: _filled(inner, tuple(rest), value) if rest else value})
