"""What a profile says: one TOML file as one frozen model. `rule.py` makes from it what is asked per reading."""

import difflib
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gateway.decoders.values import MAX_METRIC_BYTES
from gateway.glob import is_glob
from gateway.plausible.table import load_table
from gateway.profiles.units import conversion, known_unit, same_dimension
from gateway.topics import id_fault

__all__ = ["Action", "Failure", "MetricRules", "Profile"]

Action = Literal["reject", "salvage", "flag"]
"""`reject`: the whole message becomes a dead letter. `salvage`: this reading alone does. `flag`: it is stored, flagged."""

Failure = Literal["out_of_range", "wrong_type", "missing_field", "unit_mismatch", "step_exceeded", "stuck"]
"""Reasons of the closed list: the same word in the profile, the flag, the dead letter and the metric."""

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NUMERIC: Final = ("min", "max", "max_step", "max_step_per_second", "convert_to")


def _metric_name(name: str) -> str:
    fault = id_fault(name, MAX_METRIC_BYTES)
    if fault is not None:
        message = f"wanted {fault}"
        raise ValueError(message)
    return name


_MetricName = Annotated[str, AfterValidator(_metric_name)]


def _entry_name(name: str) -> str:
    known = load_table().names
    if name != "*" and name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        message = f"{name!r} is no entry of the table of implausible numbers" + (
            f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
        )
        raise ValueError(message)
    return name


Accepted = tuple[Annotated[str, AfterValidator(_entry_name)], ...]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MetricRules(_Model):
    """What one metric (or each that a pattern matches) must be. Everything is optional; numbers are in the unit stored.

    The checks run in this order, and a reading that fails one is not seen by the next: type, unit, range, step, stuck.
    """

    type: Literal["number", "integer", "boolean", "text", "enum", "any"] | None = Field(
        None, description="Default: number where a rule needs one, enum where `values` is given, else any."
    )
    unit: str | None = Field(
        None,
        min_length=1,
        description="Unit of a value whose payload names none. Without convert_to the payload may name no other.",
    )
    convert_to: str | None = Field(None, description="Convert to this unit; what cannot be is a unit_mismatch.")
    spellings: dict[str, str] = Field(
        default_factory=dict, description='What a unit\'s name means with these devices, such as {"C" = "°C"}.'
    )
    values: tuple[str, ...] | None = Field(None, strict=False, min_length=1, description="The texts of an enum.")
    min: _Number | None = None
    max: _Number | None = None
    required: bool = Field(False, description="Each message (each item of a native batch) must hold it.")
    max_step: _Positive | None = Field(None, description="Most that it may differ from the reading before.")
    max_step_per_second: _Positive | None = Field(None, description="The same per second between the two.")
    stuck_count: Annotated[int, Field(ge=2)] | None = Field(None, description="So many equal values in a row.")
    stuck_seconds: _Positive | None = Field(None, description="Unchanged for so long.")
    on: dict[Failure, Action] = Field(default_factory=dict, description="Policy per failure, before the profile's.")
    accept: Accepted = Field((), strict=False, description="As the profile's `accept`, for this metric; both count.")

    @property
    def kind(self) -> str:
        """The type that holds."""
        if self.type is not None:
            return self.type
        if self.values is not None:
            return "enum"
        return "number" if any(getattr(self, name) is not None for name in _NUMERIC) else "any"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for fault in (*self._range_faults(), *self._unit_faults()):
            raise ValueError(fault)
        return self

    def _range_faults(self) -> list[str]:
        faults = []
        if self.min is not None and self.max is not None and self.min > self.max:
            faults.append(f"min {self.min:g} is above max {self.max:g}; swap them")
        given = [name for name in _NUMERIC if getattr(self, name) is not None]
        if given and self.kind not in ("number", "integer"):
            faults.append(f"{given[0]} needs type number or integer, not {self.kind}")
        if (self.kind == "enum") != (self.values is not None):
            faults.append('type enum and `values` (such as ["ON", "OFF"]) belong together')
        return faults

    def _unit_faults(self) -> list[str]:
        faults = [f"spellings: {unit!r} is no listed unit" for unit in self.spellings.values() if not known_unit(unit)]
        if self.convert_to is None:
            return faults
        if not known_unit(self.convert_to):
            faults.append(f"convert_to {self.convert_to!r} is no listed unit")
        elif self.unit is not None and conversion(self.spellings.get(self.unit, self.unit), self.convert_to) is None:
            near = ", ".join(same_dimension(self.convert_to))
            faults.append(f"unit {self.unit!r} does not convert to {self.convert_to}; what does: {near}")
        return faults


class Profile(_Model):
    """One version of one profile.

    `origin` and `confidence` tell profiles that people wrote from those that are made from traffic; both apply alike.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    version: int = Field(ge=1, le=2**31 - 1, description="Of several versions in the folder the highest applies.")
    description: str | None = None
    devices: tuple[str, ...] = Field(
        (),
        strict=False,
        description="Patterns of device ids; none: for devices that a route or the registry sends here.",
    )
    policy: Action = Field("salvage", description="What happens on a failure that has no policy of its own.")
    on: dict[Failure, Action] = Field(default_factory=dict, description="Policy per failure, for all metrics.")
    accept: Accepted = Field(
        (),
        strict=False,
        description="Entries of gateway/plausible/entries.toml that are measurements here, such as ds18b20-power-on; * is all.",
    )
    unknown_metrics: Literal["keep", "flag", "salvage", "reject"] = "keep"
    metrics: dict[_MetricName, MetricRules] = Field(min_length=1, description="Rules per metric name or pattern.")
    origin: Literal["written", "inferred"] = "written"
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def label(self) -> str:
        """`name@version`, as dead letters and receipts name it."""
        return f"{self.name}@{self.version}"

    def action(self, rules: MetricRules, failure: Failure) -> Action:
        """The policy on a failure: the metric's own, then the profile's, then its default."""
        return rules.on.get(failure) or self.on.get(failure, self.policy)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, rules in self.metrics.items():
            if rules.required and is_glob(name):
                message = f"metrics.{name}: required needs a name, not a pattern: which metric would be missing?"
                raise ValueError(message)
        for pattern in self.devices:
            if not pattern:
                message = "devices: an empty pattern matches no device; leave it out, or write * for all"
                raise ValueError(message)
        return self
