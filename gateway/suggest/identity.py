"""Which field tells one message from another."""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.suggest.fields import Field
from gateway.suggest.topic import is_sure_id
from gateway.suggest.words import COUNTERS, IDENTITY

__all__ = ["FoundIdentity", "identity_template"]


class FoundIdentity(NamedTuple):
    """A template, the field that it uses, and why it is one."""

    text: str
    field: Field
    why: str


def identity_template(fields: Iterable[Field], time: Field | None) -> FoundIdentity | None:
    """The identity of a message, None where no field is sure.

    A counter alone is none, since it starts again with the device: it needs the time of the message.
    """
    for one in fields:
        if one.key not in IDENTITY or any(isinstance(step, int) for step in one.steps):
            continue
        own = f"{{{one.reference}}}"
        if one.key in COUNTERS or isinstance(one.first, int):
            if time is None or not all(
                type(value) in (int, str) for value in (*one.values.values(), *time.values.values())
            ):
                continue
            return FoundIdentity(f"{own}:{{{time.reference}}}", one, f"{one.name} with the time")
        if isinstance(one.first, str) and is_sure_id(one.first) and len(set(one.values.values())) == len(one.values):
            return FoundIdentity(own, one, one.name)
    return None
