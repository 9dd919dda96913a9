"""Settings of `[vendors.NAME]`: rules for the objects that a vendor's payload decoders return. `vendors` applies them.

The shipped presets and a user's settings use the same tables. A vendor of the settings is tried before the shipped ones. It
replaces a shipped vendor of the same name, or changes it if it has `extends`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from gateway.decoders.mapping.extends import inherit_settings
from gateway.decoders.mapping.settings import Condition, QuantitySettings, Texts, Times
from gateway.decoders.mapping.value_settings import NumberSettings

__all__ = ["OwnVendors", "VendorSettings"]


class VendorSettings(BaseModel):
    """Rules of one vendor. Paths and patterns are as in mappings; paths begin at the decoded object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extends: str | None = Field(
        None, min_length=1, description="Name of a vendor, own or shipped, that this one changes, as with mappings."
    )
    shapes: tuple[dict[str, Condition], ...] = Field(
        (),
        description="Tables of conditions as in `when`. An object that satisfies one of the tables is the vendor's.",
    )
    brands: Texts = Field((), description="Globs of the names that network servers give the vendor (`brand`).")
    items: Texts = Field(("$",), description="Paths of items that have their own time, such as a history.")
    time: Times = Field((), description="Paths of an item's time. An item without one gets the time of the uplink.")
    quantity: QuantitySettings | None = Field(
        None, description="Keys of inner objects that are one reading. Default: as the mapping says."
    )
    rename: dict[str, str] = Field(default_factory=dict, description="Flat name to new name.")
    skip: Texts = Field((), description="Patterns of fields and whole objects that do not become readings.")
    text: Texts = Field(("*",), description="Patterns of the text fields that become readings.")
    numeric_text: Texts = Field((), description="Patterns of text fields that hold numbers.")
    numbers: dict[str, NumberSettings] = Field(
        default_factory=dict,
        description="Pattern to the rules that turn its fields into numbers: extract from text, scale.",
    )
    no_values: Texts = Field((), description="Texts that mean no value, in addition to those of mappings.")
    errors: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, description="Pattern to the numbers that mean a broken sensor. These values are rejected."
    )
    units: dict[str, str] = Field(default_factory=dict, description="Pattern to unit. '' means no unit.")
    unit_names: dict[str, str] = Field(
        default_factory=dict, description="Unit in the payload to the unit of the readings. '' means no unit."
    )

    def over(self, base: "VendorSettings") -> "VendorSettings":
        """Return the vendor `base` with the changes of this one, as with mappings; `base` may extend another vendor."""
        given, below = ({name: getattr(one, name) for name in one.model_fields_set} for one in (self, base))
        given.pop("extends", None)
        return VendorSettings(**inherit_settings(below, given))


@dataclass(frozen=True)
class OwnVendors:
    """The vendors of the settings, by name. Equal objects are the same key of a cache."""

    settings: Mapping[str, VendorSettings] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(tuple(self.settings))
