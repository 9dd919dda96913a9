"""What another program's settings file gives for ours: values, routes, and each key without a counterpart, with the reason."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.settings import environment_name

__all__ = ["Imported", "LeftOut", "is_reference", "take_servers"]

_REFERENCE: Final = re.compile(r"\$\{?[A-Za-z_]\w*|@\{")
"""A reference to the environment or to a secret store."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key of another program's file without a counterpart here, and why."""

    key: str
    reason: str


@dataclass(slots=True)
class Imported:
    """What was found.

    Attributes:
        values: `section.field` to a plain value.
        routes: as in `[[routes]]`.
        left_out: keys without a counterpart.
        notes: sentences for the head of the file.
    """

    values: dict[str, Any] = field(default_factory=dict)
    routes: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def tables(self) -> Mapping[str, Any]:
        """Sections that are lists of tables."""
        return {"routes": self.routes} if self.routes else {}

    def leave(self, key: str, reason: str) -> None:
        """Note a key without a counterpart. The reason never repeats its value, which may be a secret."""
        self.left_out.append(LeftOut(key, reason))

    def leave_secret(self, key: str, setting: str) -> None:
        """Note a secret, which belongs in the environment."""
        self.leave(key, f"a secret; set it in the environment variable {environment_name(setting)}")

    def take_text(self, key: str, value: Any, setting: str, convert: Callable[[str], Any] = str) -> None:
        """Take a text, unless it refers to the environment of the other program."""
        if is_reference(str(value)):
            self.leave(
                key, f"it refers to the environment or a secret store; set {environment_name(setting)} to its value"
            )
        else:
            self.values[setting] = convert(str(value))


def is_reference(text: str) -> bool:
    """Return whether a text gets its value from the environment or from a secret store."""
    return _REFERENCE.search(text) is not None


def take_servers(text: str) -> tuple[str, str | None]:
    """Return Kafka's addresses without their protocols, and the protocol of the first one if it names one."""
    servers, protocol = [], None
    for server in text.split(","):
        scheme, mark, address = server.strip().rpartition("://")
        servers.append(address)
        protocol = protocol or (scheme if mark else None)
    return ",".join(one for one in servers if one), protocol
