"""Shipped presets: `[mappings.NAME]` tables, `[vendors.NAME]` tables and the `[[routes]]` of the format's own topics.

A preset file is a part of a settings file, plus `order`: routes of a lower order are tried first (default 50), files of
the same order by name. Formats that check another one's messages come before it; those whose filters begin with a
wildcard come last. User routes come before all of them.
"""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.vendor_settings import VendorSettings
from gateway.gateway_settings import RouteSettings
from ingest.contract.errors import ConfigError, FatalError

__all__ = ["Preset", "known_vendors", "load_presets", "load_vendors"]


class Preset(BaseModel):
    """One file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: int = Field(50, ge=0, le=100)
    mappings: dict[str, MappingSettings] = Field(default_factory=dict)
    vendors: dict[str, VendorSettings] = Field(default_factory=dict)
    routes: tuple[RouteSettings, ...] = ()


@cache
def load_presets() -> dict[str, Preset]:
    """Return all presets by their name, in the order in which their routes are tried.

    Raises:
        FatalError: a shipped file is broken, and so is the installation.
    """
    found: dict[str, Preset] = {}
    for file in files("gateway.presets").iterdir():
        if file.name.endswith(".toml"):
            try:
                found[file.name.removesuffix(".toml")] = Preset.model_validate(tomllib.loads(file.read_text("utf-8")))
            except (ValueError, ValidationError) as error:
                message = f"the shipped preset {file.name} is broken: {error}; reinstall tidegate"
                raise FatalError(message) from error
    return dict(sorted(found.items(), key=lambda pair: (pair[1].order, pair[0])))


@cache
def load_vendors() -> dict[str, VendorSettings]:
    """Return the rules of the shipped vendors by their name, in the order in which they are tried; see `load_presets`."""
    return {name: vendor for preset in load_presets().values() for name, vendor in preset.vendors.items()}


def known_vendors(own: Mapping[str, VendorSettings]) -> dict[str, VendorSettings]:
    """Return the vendors of the settings with what they extend, then the shipped ones with other names.

    Raises:
        ConfigError: a vendor extends an unknown one, or itself in a circle; the text names it.
    """
    shipped = load_vendors()
    found = {name: _extended(name, vendor, own, shipped) for name, vendor in own.items()}
    return found | {name: vendor for name, vendor in shipped.items() if name not in own}


def _extended(
    name: str, vendor: VendorSettings, own: Mapping[str, VendorSettings], shipped: Mapping[str, VendorSettings]
) -> VendorSettings:
    way = [name]
    while (wanted := vendor.extends) is not None:
        # Vendors of the settings first; one that extends its own name means the shipped one.
        base = own.get(wanted) if wanted != way[-1] else None
        base = shipped.get(wanted) if base is None else base
        if base is None or (wanted in way and wanted != way[-1]):
            known = sorted({*own, *shipped} - {name})
            near = difflib.get_close_matches(wanted, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            unknown = f"no vendor has that name{hint} (known: {', '.join(known)})"
            message = (
                f"[vendors.{name}]: extends {wanted!r}, but {unknown if base is None else 'that leads back to it'}"
            )
            raise ConfigError(message)
        way.append(wanted)
        vendor = vendor.over(base)
    return vendor
