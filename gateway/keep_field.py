"""Fields that mappings leave out: the setting that does it, and the step that keeps the field."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gateway.decoders.mapping.engine import case_settings
from gateway.decoders.mapping.names import NameRules, PatternSet
from gateway.decoders.mapping.settings import CaseSettings, MappingSettings
from gateway.decoders.vendor_settings import OwnVendors, VendorSettings
from gateway.decoders.vendors import named_vendors
from gateway.presets.loader import known_vendors
from gateway.routes import Route, RouteTable, shipped_mappings

__all__ = ["add_keep_steps", "find_keep_step"]

_PLAIN: Final = re.compile(r"[\w.*\[\]-]{1,60}", re.ASCII)
"""Names and patterns that a step may show. None of them is a command, whoever chose the name."""


class _Cause(NamedTuple):
    """List that leaves a field out (`keep`, `skip` or `text`), its pattern, and the case or vendor that has it."""

    setting: str
    pattern: str = ""
    case: int = 0
    vendor: str = ""


def add_keep_steps(rows: Iterable[dict[str, Any]], table: RouteTable, own: OwnVendors) -> list[dict[str, Any]]:
    """Return rows of `read_left_out` with `next`: the step that keeps the field, None if unknown."""
    routes = {route.label: route for route in table.routes}
    return [
        {**row, "next": find_keep_step(routes[row["route"]], row["field"], own) if row["route"] in routes else None}
        for row in rows
    ]


def find_keep_step(route: Route, field: str, own: OwnVendors) -> str | None:
    """Return the setting to change so that a route's mapping keeps a field; None if no list of the mapping leaves it out.

    `own` holds the vendors of the settings.
    """
    given = route.settings.mapping
    shipped = given if isinstance(given, str) else ""
    settings = shipped_mappings().get(shipped) if isinstance(given, str) else given
    cause = _cause(settings or MappingSettings(), field, known_vendors(own.settings))
    if cause is None:
        return None
    if cause.vendor in own.settings:
        return f"In `[vendors.{cause.vendor}]`, {_change(cause, field, inherits=False)}."
    if cause.vendor:
        change = _change(cause, field, inherits=True)
        return f'Write a table `[vendors.{cause.vendor}]` with `extends = "{cause.vendor}"`; in it, {change}.'
    if not shipped:
        change = _change(cause, field, inherits=False)
        return f"{change[:1].upper()}{change[1:]}, in the mapping of {_shown(route.label)}."
    topics = f"the filter `{route.settings.filter}`" if "`" not in route.settings.filter else "its topics"
    begin = f"In {_shown(route.label)}, write" if route.own else f"Write your own route for {topics} with"
    return (
        f'{begin} a mapping that has `extends = "{shipped}"`; in it, {_change(cause, field, inherits=True)}. '
        f"To see the extended mapping, run `tidegate route show {shipped}`."
    )


def _change(cause: _Cause, field: str, *, inherits: bool) -> str:
    """Return the change of the list, as the middle of a sentence."""
    place = f" of its case {cause.case}" if cause.case else ""
    if cause.setting == "skip":
        pattern = f'`"{cause.pattern}"`' if _PLAIN.fullmatch(cause.pattern) else "the pattern that matches it"
        return f"leave {pattern} out of `skip`{place}"
    if not _PLAIN.fullmatch(field):
        return f"add the field to `{cause.setting}`{place}"
    listed = f' (`{cause.setting} = ["...", "{field}"]`)' if inherits and not place else ""
    return f'add `"{field}"` to `{cause.setting}`{place}{listed}'


def _cause(settings: MappingSettings, field: str, known: dict[str, VendorSettings]) -> _Cause | None:
    last = re.sub(r"(\[\d+\])+$", "", field.rpartition(".")[2])
    cases = case_settings(settings)
    causes = [_of_case(case, field, last, number) for number, case in enumerate(cases)]
    causes += [cause for case in cases for cause in _of_vendors(case, field, last, known)]
    return next((cause for cause in causes if cause is not None), None)


def _of_case(case: CaseSettings, field: str, last: str, number: int) -> _Cause | None:
    renames = {old: new for old, new in case.rename.items() if _is_constant(new)}
    rule = NameRules(case, {}, ()).decide(field, last, case.prefix if _is_constant(case.prefix) else "", renames)
    if rule.skip and rule.chosen:
        return _Cause("skip", _pattern(case.skip, rule.name, renames.get(field, last)), number)
    if rule.skip:
        return _Cause("keep", case=number)
    return None if rule.text else _Cause("text", case=number)


def _of_vendors(case: CaseSettings, field: str, last: str, known: dict[str, VendorSettings]) -> Iterator[_Cause]:
    chosen = named_vendors(case.vendors, known)
    for name, vendor in known.items():
        if vendor in chosen:
            pattern = _pattern(vendor.skip, vendor.rename.get(field, field), vendor.rename.get(field, last))
            if pattern:
                yield _Cause("skip", pattern, vendor=name)
            elif not PatternSet(vendor.text)(field, last):
                yield _Cause("text", vendor=name)


def _pattern(patterns: Iterable[str], name: str, last: str) -> str:
    return next((one for one in patterns if PatternSet((one,))(name, last)), "")


def _is_constant(template: str) -> bool:
    """Return whether the template gives the same text for each message."""
    return "{" not in template


def _shown(label: str) -> str:
    return label.replace("`", "'")
