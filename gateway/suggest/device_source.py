"""Sender of messages: a field of the payload, or levels of the topic; and the topic filter that follows from it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.suggest.fields import SampleField, key_words
from gateway.suggest.time_fields import time_format
from gateway.suggest.topic import (
    find_varying_levels,
    is_address,
    is_collection,
    is_kind,
    is_number,
    is_quantity,
    is_sure_id,
    looks_like_id,
)
from gateway.suggest.vocabulary import DEVICE, NAME, NO_SENDER, SINGLE

__all__ = ["NamedFilter", "device_field", "name_levels"]

_NODE_OF_OPC_UA = re.compile(r"(?:ns=\d+;|nsu=[^;]*;)?[sigb]=")
_SURE_WORDS: Final = DEVICE.index("device")
"""Words up to here name a device whatever their value; later ones need a value that looks like an id."""
_ID_OF_ANY = re.compile(r"[a-z0-9](?:Id|ID)$|[a-z0-9][_-]id$")
_ID_OF = re.compile(
    r"(?:device|dev|esp|sensor|node|station|board|module|meter|logger|probe|mote|unit)\w{0,8}(?:id|sn|serial|mac|uid)"
    r"|id(?:device|sensor|node|station|board|meter|logger|probe|mote|wasp|unit)"
)
"""Keys that join both: `deviceGid`, `esp8266id`, `id_wasp`."""


@dataclass(slots=True)
class NamedFilter:
    """Topic filter with named levels, and their use.

    `agrees`: the payload gives the device the same name as its level; `behind`: levels after the device's have a meaning
    too. `prefix`: comes before the names of the payload's values, because levels after the device's number parts of it.
    """

    filter: str
    device: str | None
    metric: str | None
    why: str
    agrees: bool = False
    behind: bool = False
    prefix: str = ""

    @property
    def route_metric(self) -> str | None:
        """The route's `metric`, None if it is the last level anyway."""
        return None if self.metric == "{metric}" and self.filter.endswith("{metric}") else self.metric


def device_field(
    fields: Iterable[SampleField], topics: Sequence[str], *, things: bool = False, listed: bool = False
) -> SampleField | None:
    """Return the field that names the sender, None if none is certain enough.

    Args:
        fields: of the documents.
        topics: of the documents.
        things: whether these are items of an array of devices: then their own id is the device's.
        listed: whether these are items of any other array: then a name or a short number is that of a value or a part.
    """
    known = [one for one in fields if not (listed and _is_of_part(one, topics))]
    same = next((one for one in known if _is_sure_level(one, topics)), None)
    own = next((one for one in known if things and one.apart and one.key in ("id", "name", "address")), None)
    ranked = [(rank, len(one.steps), one) for one in known if (rank := _rank(one, topics)) is not None]
    if len(ranked) > 1 and any(one.key in SINGLE for one in known):
        # Next to the one value of a message a sensor's name without a number is that of the value.
        ranked = [entry for entry in ranked if entry[2].key != "sensor" or looks_like_id(str(entry[2].first))] or ranked
    if ranked:
        best = min(ranked, key=lambda entry: entry[:2])
        sure = best[0] < _SURE_WORDS or all(is_sure_id(str(value)) for value in best[2].values.values())
        return same if same is not None and not sure else best[2]
    return own or _other_id(known, topics)


def _is_sure_level(one: SampleField, topics: Sequence[str]) -> bool:
    """Return whether a field is an id that a level of the topic has too: then it names the sender, whatever its key."""
    told = [(str(value), topics[number].split("/")) for number, value in one.values.items()]
    return bool(told) and all(is_sure_id(text) and text in levels for text, levels in told)


def _is_of_part(one: SampleField, topics: Sequence[str]) -> bool:
    texts = [str(value) for value in one.values.values()]
    levels = {level for topic in set(topics) for level in topic.split("/")}
    if any(text in levels for text in texts):
        return False
    return one.key in ("name", "friendlyname") or all(map(is_number, texts))


def _other_id(fields: list[SampleField], topics: Sequence[str]) -> SampleField | None:
    """Return the one id of an unlisted kind of thing, such as `lotId`, if no level of the topic is an id."""
    if any(
        is_sure_id(level) or looks_like_id(level) or is_number(level) for topic in topics for level in topic.split("/")
    ):
        return None
    found = [
        one
        for one in fields
        if _ID_OF_ANY.search(str(one.steps[-1]))
        and len(one.steps) == 1
        and not (one.key in NAME or set(key_words(one)) & NO_SENDER)
    ]
    plain = [one for one in found if all(type(value) in (str, int) and str(value) for value in one.values.values())]
    return plain[0] if len(found) == len(plain) == 1 and len(plain[0].values) == len(topics) else None


def _rank(one: SampleField, topics: Sequence[str]) -> int | None:
    words = [DEVICE.index(word) for word in one.words if word in DEVICE]
    words += [_SURE_WORDS - 1] if _ID_OF.fullmatch(one.key) else []
    plain = all(type(value) in (str, int) and value != "" for value in one.values.values())
    if not words or not plain or any(isinstance(step, int) for step in one.steps):
        return None
    values = [str(value) for value in one.values.values()]
    rank = min(words)
    told = any(
        value in topic.split("/") for number, topic in enumerate(topics) if (value := str(one.values.get(number)))
    )
    if told or all(map(is_address, values)):
        return rank
    return None if _is_none(one, values, topics) or (rank >= _SURE_WORDS and not _all_may(one, values)) else rank


def _is_none(one: SampleField, values: list[str], topics: Sequence[str]) -> bool:
    """Return whether a field with a device's name names something else."""
    if any(time_format(value) is not None or _NODE_OF_OPC_UA.match(value) for value in values):
        return True
    # A name may change; an id of the topic does not.
    named = one.key in ("name", "friendlyname", "host", "hostname")
    if named and any(is_sure_id(level) for topic in set(topics) for level in topic.split("/")):
        return True
    # An id that never repeats numbers messages. Several of one topic must agree.
    return one.key == "id" and one.words[1] not in DEVICE[:-1] and not _stays(one, topics)


def _all_may(one: SampleField, values: list[str]) -> bool:
    return all(_may_be_device(one, value) for value in values)


def _may_be_device(one: SampleField, value: str) -> bool:
    if one.key in ("from", "sender", "name", "friendlyname", "host", "hostname"):
        return is_sure_id(value) or (one.key not in ("from", "sender") and looks_like_id(value))
    return is_sure_id(value) or looks_like_id(value) or _only_text(one)


def _only_text(one: SampleField) -> bool:
    """Return whether a name without digits may be an id: only if its key requires one."""
    return one.key in ("device", "dev", "node", "station", "thing", "tracker") and isinstance(one.first, str)


def _stays(one: SampleField, topics: Sequence[str]) -> bool:
    by_topic: dict[str, set[str]] = {}
    for number, value in one.values.items():
        by_topic.setdefault(topics[number], set()).add(str(value))
    several = len(one.values) > 1
    if several:
        return all(len(found) == 1 for found in by_topic.values()) or len(set(map(str, one.values.values()))) < len(
            one.values
        )
    return isinstance(one.first, str) and not is_sure_id(one.first)


def name_levels(
    topics: Sequence[str], *, metric: bool, claimed: set[str], by_payload: bool, names: set[str] | None = None
) -> NamedFilter:
    """Return the filter for topics of one length.

    Levels that are words stay unchanged unless messages differ there: unseen topics do not match.

    Args:
        topics: of the samples.
        metric: whether the last levels name the value, because the payload does not.
        claimed: the payload's names for the sender: a level with one of these is the device.
        by_payload: whether the payload names the device; then levels need not.
        names: the payload's names for the value: such a level is not a device.
    """
    levels = topics[0].split("/")
    varying = find_varying_levels(topics)
    head = 1 if levels[0] == "" and len(levels) > 1 else 0
    agreed = [place for place, level in enumerate(levels) if level and _agrees(level, claimed)]
    last = _metric_place(levels, head, varying) if metric else len(levels) - 1
    place = agreed[-1] if agreed else None
    if place is None and not by_payload:
        shown = ["" if level in (names or ()) else level for level in levels]
        place = _device_place(shown, head, last, varying, metric=metric)
    named = _build(levels, head, last, varying, place, metric=metric, sure=bool(agreed))
    free = [
        "+" if level in (names or ()) and level == given else level
        for level, given in zip(named.filter.split("/"), levels, strict=True)
    ]
    named.filter = "/".join(free)
    named.agrees = place is not None and levels[place] in claimed
    named.behind = place is not None and any(not is_kind(level) for level in levels[place + 1 :])
    return named


def _agrees(level: str, claimed: set[str]) -> bool:
    """Return whether the payload gives the sender this name, or the number of a level such as nodeID_4."""
    return level in claimed or (looks_like_id(level) and level.rstrip("0123456789") != "" and _number(level) in claimed)


def _number(level: str) -> str:
    return level[len(level.rstrip("0123456789")) :] or "-"


def _metric_place(levels: list[str], head: int, varying: set[int]) -> int:
    """Return the level that names a bare value: the last that says more than the kind of message."""
    named = [place for place in range(head, len(levels)) if place in varying or not is_kind(levels[place])]
    if named and is_sure_id(levels[named[-1]]) and named[-1] not in varying:
        # The level of an id is the sender's; the one after it says what comes, even if it says little.
        return len(levels) - 1
    return named[-1] if named and named[-1] > head else len(levels) - 1


def _device_place(levels: list[str], head: int, last: int, varying: set[int], *, metric: bool) -> int | None:
    """Return the level that ends the device's name."""
    places = list(range(head, last if metric else last + 1))
    if not places:
        return None
    sure = [place for place in places if is_sure_id(levels[place])]
    if sure and metric:
        return sure[-1]
    differing = [place for place in places if place in varying]
    if differing:
        return differing[-1]
    likely = [
        place
        for place in places[1:]
        if is_sure_id(levels[place]) or (looks_like_id(levels[place]) and not is_quantity(levels[place]))
    ]
    if likely or sure:
        return (likely or sure)[-1]
    behind = [place for place in places[1:] if is_collection(levels[place - 1]) and not is_kind(levels[place])]
    numbers = [place for place in places[1:] if is_number(levels[place])]
    if behind or numbers:
        return behind[-1] if behind else numbers[0]
    candidates = [place for place in places if not is_kind(levels[place]) and not is_collection(levels[place])]
    named = [place for place in candidates if not is_quantity(levels[place]) and len(levels[place]) > 1]
    return (named or candidates or places)[-1]


def _build(
    levels: list[str], head: int, last: int, varying: set[int], place: int | None, *, metric: bool, sure: bool
) -> NamedFilter:
    written: list[str] = []
    device: list[str] = []
    names: list[str] = []
    parts: list[str] = []
    behind = (last if place is None else place + 1) if metric else len(levels)
    alone = place is not None and (sure or is_sure_id(levels[place]))
    for number, level in enumerate(levels):
        fixed = (is_kind(level) or is_collection(level)) and number not in varying
        if number == place:
            # A level that was seen once and is only a word is the device's name in the filter too.
            only = number == head and not alone and number not in varying and not _has_signs(level)
            device.append(level if only else "{device}")
            written.append(device[-1])
        elif number == last and metric:
            names.append("{metric}")
            written.append("{metric}")
        elif behind <= number < last and not fixed:
            names.append(f"{{part{len(names) + 1}}}")
            written.append(names[-1])
        elif place is not None and number < place and not alone and number in varying:
            device.append(f"{{level{number + 1}}}")
            written.append(device[-1])
        elif place is not None and number > place and not metric and _numbers_part(level):
            parts.append(f"{{part{len(parts) + 1}}}")
            written.append(parts[-1])
        elif number in varying or _has_signs(level) or (number > head and _is_one_of_many(level)):
            written.append("+")
        else:
            written.append(level)
            if place is not None and number == place - 1 and is_number(levels[place]):
                device.append(level)
    text = None if place is None else "/".join(["{device}"] if alone else device)
    found = NamedFilter("/".join(written), text, ".".join(names) if names else None, _why(levels, place, varying))
    found.prefix = "".join(f"{part}." for part in parts)
    return found


def _has_signs(level: str) -> bool:
    """Return whether a filter would read it as something else."""
    return "{" in level or "}" in level


def _numbers_part(level: str) -> bool:
    """Return whether a level after the device's distinguishes parts of it, such as `relay-2` or `0`."""
    is_part = is_number(level) or (any(map(str.isdigit, level)) and not is_sure_id(level) and not is_kind(level))
    return is_part and not _has_signs(level)


def _is_one_of_many(level: str) -> bool:
    return is_sure_id(level) or looks_like_id(level) or is_number(level)


def _why(levels: list[str], place: int | None, varying: set[int]) -> str:
    if place is None:
        return "the payload names the device"
    how = "differs between the messages" if place in varying else "looks like the sender's name"
    return f"level {place + 1} of the topic ({levels[place]}) {how}"
