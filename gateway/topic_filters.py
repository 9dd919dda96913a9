"""MQTT topics: filters with `+`, `#` and named segments, the native grammar, and the rules for device ids.

Incoming ids are kept unchanged (no percent-decoding), so two devices never become one.
"""

import re
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BadFilter",
    "TopicFilter",
    "compile_filter",
    "empty_level",
    "id_fault",
    "is_shared",
    "native_topic",
    "subscription_filter",
    "topic_device",
]

_NATIVE_HEAD: Final = "tidegate/v1/"
_NATIVE_TAIL: Final = "/readings"
_UNSAFE_IN_TOPIC = re.compile(r"[+#/%\0]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_REST = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)#\}")


class BadFilter(ValueError):
    """MQTT or our named segments do not allow this topic filter; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Compiled filter; `names` are its named segments in order."""

    text: str
    names: tuple[str, ...]
    pattern: re.Pattern[str]

    def match(self, topic: str) -> dict[str, str] | None:
        """Return the named segments if the topic matches, else None. A leading wildcard never matches `$...` topics."""
        found = self.pattern.fullmatch(topic)
        return None if found is None else found.groupdict("")


def compile_filter(text: str) -> TopicFilter:
    """Compile an MQTT topic filter; `{name}` is one whole segment that is not empty, `{name#}` all that follow.

    Like `#`, `{name#}` also matches if nothing follows; then it is empty.

    Raises:
        BadFilter: empty, `#` not last, a wildcard or name that is only a part of a segment, a name used twice.
    """
    if not text or "\0" in text:
        message = "a topic filter needs at least one character and no NUL"
        raise BadFilter(message)
    parts: list[str] = []
    names: list[str] = []
    segments = text.split("/")
    tail = ""
    for position, segment in enumerate(segments):
        if segment == "#":
            if position != len(segments) - 1:
                message = "# is only allowed at the end of a filter"
                raise BadFilter(message)
            continue
        rest = _REST.fullmatch(segment)
        if rest is not None and position == len(segments) - 1:
            tail = f"(?P<{_new_name(rest[1], names)}>.*)"
            tail = f"(?:/{tail})?" if parts else tail
        else:
            parts.append(_segment_pattern(segment, names))
    if segments[-1] == "#":
        tail = "(?:/.*)?" if parts else ".*"
    guard = r"(?!\$)" if segments[0] in ("#", "+") or segments[0].startswith("{") else ""
    return TopicFilter(text, tuple(names), re.compile(guard + "/".join(parts) + tail, re.DOTALL))


def _segment_pattern(segment: str, names: list[str]) -> str:
    if segment == "+":
        return "[^/]*"
    named = _NAMED.fullmatch(segment)
    if named is not None:
        return f"(?P<{_new_name(named[1], names)}>[^/]+)"
    if any(char in segment for char in "+#{}"):
        message = f"the segment {segment!r} mixes text with +, # or {{name}}: each of them fills a whole segment"
        raise BadFilter(message)
    return re.escape(segment)


def _new_name(name: str, names: list[str]) -> str:
    if name in names:
        message = f"the name {{{name}}} occurs twice in the filter"
        raise BadFilter(message)
    names.append(name)
    return name


def subscription_filter(text: str) -> str:
    """Return the filter as a broker understands it: named segments become `+`, `{name#}` becomes `#`."""
    return _REST.sub("#", _NAMED.sub("+", text))


def is_shared(text: str) -> bool:
    """Return whether a subscription is shared with other clients, each of which gets a part of the messages."""
    return text.startswith("$share/")


def native_topic(topic: str) -> str | None:
    """Return the device of a native topic (possibly empty: the caller rejects it); None if the topic is not native."""
    if not (topic.startswith(_NATIVE_HEAD) and topic.endswith(_NATIVE_TAIL)):
        return None
    device = topic[len(_NATIVE_HEAD) : -len(_NATIVE_TAIL)]
    return None if "/" in device or len(topic) < len(_NATIVE_HEAD) + len(_NATIVE_TAIL) else device


def empty_level(topic: str) -> str:
    """Return a sentence on the first empty level of a topic (`a//b`, `/a`, `a/`); empty if there is none."""
    levels = topic.split("/")
    if "" not in levels:
        return ""
    number = levels.index("") + 1
    place = "before the first slash" if number == 1 else "after the last slash" if number == len(levels) else ""
    return f"level {number} of the topic is empty" + (f" ({place})" if place else "")


def topic_device(device: str) -> str:
    """Return a device id as one segment of our topics: `+ # / % NUL` percent-encoded, so no two ids become one."""
    return _UNSAFE_IN_TOPIC.sub(lambda found: f"%{ord(found[0]):02X}", device)


def id_fault(text: str, max_bytes: int) -> str | None:
    """Return what a device id or metric name must be ("wanted") if this text is not one; None if it is one.

    Anything printable is allowed, including slashes and other scripts. Control characters would forge log lines, and NUL
    ends strings in other systems.
    """
    if not text:
        return "a name of at least one character"
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        return f"a name of at most {max_bytes} bytes"
    if _CONTROL.search(text):
        return "a name without NUL and control characters"
    return None
