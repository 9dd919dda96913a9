"""Draft of a route for messages of one family: the settings that a person would write, and the reasons."""

from dataclasses import dataclass, field
from typing import Any

from gateway.suggest.field_roles import LeftOutField

__all__ = ["Draft"]


@dataclass(slots=True)
class Draft:
    """Route as plain values (see `RouteSettings`), what it leaves out, and sentences for a person.

    `values` is how many values of the samples it should read; `doubts` say why it needs an edit.
    """

    route: dict[str, Any]
    left_out: list[LeftOutField] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: int = 0
    doubts: list[str] = field(default_factory=list)

    @property
    def mapping(self) -> dict[str, Any]:
        """The route's mapping, empty if it has none."""
        found = self.route.get("mapping", {})
        return found if isinstance(found, dict) else {}
