"""What `[vendors.NAME]` may say: rules for what the decoders of a maker of devices give. Applied by `vendors`.

The same tables stand in the shipped presets and in a user's settings. One of the settings comes before the shipped ones, or
replaces the shipped one of its name; with `extends` it varies that one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from gateway.decoders.mapping_extends import inherit
from gateway.decoders.mapping_settings import Condition, QuantitySettings, Texts, Times
from gateway.decoders.value_settings import NumberSettings

__all__ = ["OwnVendors", "VendorSettings"]


class VendorSettings(BaseModel):
    """`[vendors.NAME]`. Paths and patterns are those of mappings; paths begin at the decoded object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extends: str | None = Field(
        None, min_length=1, description="Name of a vendor, own or shipped, that this one varies, as with mappings."
    )
    shapes: tuple[dict[str, Condition], ...] = Field(
        (), description="Conditions as in `when`; an object for which one of these tables holds is the vendor's."
    )
    brands: Texts = Field((), description="Globs of the names that network servers give the vendor (`brand`).")
    items: Texts = Field(("$",), description="Where items with a time of their own stand, such as a history.")
    time: Times = Field((), description="Paths of an item's time; an item without one has the time of the uplink.")
    quantity: QuantitySettings | None = None
    rename: dict[str, str] = Field(default_factory=dict)
    skip: Texts = ()
    text: Texts = ("*",)
    numeric_text: Texts = ()
    numbers: dict[str, NumberSettings] = Field(default_factory=dict)
    no_values: Texts = ()
    errors: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    units: dict[str, str] = Field(default_factory=dict)
    unit_names: dict[str, str] = Field(default_factory=dict)

    def over(self, base: "VendorSettings") -> "VendorSettings":
        """The vendor `base` with the changes of this one, as a mapping varies another; `base` may extend a further one."""
        given, below = ({name: getattr(one, name) for name in one.model_fields_set} for one in (self, base))
        given.pop("extends", None)
        return VendorSettings(**inherit(below, given))


@dataclass(frozen=True)
class OwnVendors:
    """The vendors of the settings, by name; equal ones are one key of a cache."""

    settings: Mapping[str, VendorSettings] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(tuple(self.settings))
