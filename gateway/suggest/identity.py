"""Field that distinguishes one message from another."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.suggest.fields import SampleField
from gateway.suggest.topic import is_address, is_sure_id
from gateway.suggest.vocabulary import COUNTERS, IDENTITY, OF_MESSAGES

__all__ = ["FoundIdentity", "identity_template"]


class FoundIdentity(NamedTuple):
    """Template, the field that it uses, and the reason."""

    text: str
    field: SampleField
    why: str


def identity_template(fields: Iterable[SampleField], time: str | None, topics: Sequence[str]) -> FoundIdentity | None:
    """Return the identity of a message, None if no field is certain.

    A counter alone is not an identity, because it starts again with the device. An id that may be the message's or the
    sender's would make all messages but the first a copy. Both need the time of the message too.

    Args:
        fields: of the message.
        time: the reference to its time in a template, without the braces; None if it has none.
        topics: of the documents.
    """
    for one in fields:
        if one.key not in IDENTITY or any(isinstance(step, int) for step in one.steps):
            continue
        own, texts = f"{{{one.reference}}}", [str(value) for value in one.values.values()]
        if any(
            is_address(text) or text in topics[number].split("/")
            for number, text in zip(one.values, texts, strict=True)
        ):
            continue
        if isinstance(one.first, str) and is_sure_id(one.first) and _differs(one, topics):
            return FoundIdentity(own, one, one.name)
        is_counter = one.key in COUNTERS or isinstance(one.first, int)
        if is_counter or (isinstance(one.first, str) and is_sure_id(one.first)):
            if time is None or not all(type(value) in (int, str) for value in one.values.values()):
                continue
            return FoundIdentity(f"{own}:{{{time}}}", one, f"{one.name} with the time")
    return None


def _differs(one: SampleField, topics: Sequence[str]) -> bool:
    """Return whether the texts belong to messages: by the key, or because they differ among messages of one topic."""
    if len(set(one.values.values())) < len(one.values):
        return False
    known = [topics[number] for number in one.values]
    return one.key in OF_MESSAGES or len(set(known)) < len(known)
