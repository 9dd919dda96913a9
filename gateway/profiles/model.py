"""A profile: one TOML file as one frozen model. `rule.py` compiles it into the checks per reading."""

import difflib
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gateway.decoders.values import MAX_METRIC_BYTES
from gateway.glob_patterns import is_glob
from gateway.plausible.table import load_table
from gateway.profiles.units import conversion, known_unit, same_dimension
from gateway.topic_filters import id_fault

__all__ = ["Action", "Failure", "MetricRules", "Profile"]

Action = Literal["reject", "salvage", "flag"]
"""`reject`: the whole message becomes a dead letter. `salvage`: only this reading does. `flag`: it is stored with a flag."""

Failure = Literal["out_of_range", "wrong_type", "missing_field", "unit_mismatch", "step_exceeded", "stuck"]
"""Reasons of the closed list. Profile, flag, dead letter and metric use the same word."""

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
        message = f"{name!r} is not an entry of the table of implausible numbers" + (
            f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
        )
        raise ValueError(message)
    return name


Accepted = tuple[Annotated[str, AfterValidator(_entry_name)], ...]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class MetricRules(_Model):
    """Rules for one metric, or for each metric that a pattern matches. Everything is optional; numbers are in the stored unit.

    The checks run in this order: type, unit, range, step, stuck. A reading that fails one check skips the next ones.
    """

    type: Literal["number", "integer", "boolean", "text", "enum", "any"] | None = Field(
        None,
        description="Type of the values. Another type is wrong_type. Default: number if a rule needs a number, enum if `values` "
        "is given, else any.",
    )
    unit: str | None = Field(
        None,
        min_length=1,
        description="Unit of a value whose payload does not name one. Without convert_to, another unit in the payload is a "
        "unit_mismatch.",
    )
    convert_to: str | None = Field(
        None, description="Unit to convert values to. A value that cannot be converted is a unit_mismatch."
    )
    spellings: dict[str, str] = Field(
        default_factory=dict, description='Unit in the payload to its meaning for these devices, such as {"C" = "°C"}.'
    )
    values: tuple[str, ...] | None = Field(
        None, strict=False, min_length=1, description="Texts of an enum. Another text is out_of_range."
    )
    min: _Number | None = Field(None, description="Lowest value. A lower one is out_of_range.")
    max: _Number | None = Field(None, description="Highest value. A higher one is out_of_range.")
    required: bool = Field(
        False,
        description="Each message (each item of a native batch) must have this metric. If it does not, the failure is "
        "missing_field.",
    )
    max_step: _Positive | None = Field(
        None, description="Largest difference from the reading before. A larger one is step_exceeded."
    )
    max_step_per_second: _Positive | None = Field(
        None, description="Largest difference from the reading before, per second between them. More is step_exceeded."
    )
    stuck_count: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Number of equal values in a row from which on the metric is stuck."
    )
    stuck_seconds: _Positive | None = Field(
        None, description="Seconds without a change of the value after which the metric is stuck."
    )
    on: dict[Failure, Action] = Field(
        default_factory=dict, description="Failure to reaction, for this metric. It wins over the profile's `on`."
    )
    accept: Accepted = Field(
        (), strict=False, description="Like the profile's `accept`, for this metric, in addition to it."
    )

    @property
    def kind(self) -> str:
        """The type that applies."""
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
        faults = [
            f"spellings: {unit!r} is not a listed unit" for unit in self.spellings.values() if not known_unit(unit)
        ]
        if self.convert_to is None:
            return faults
        if not known_unit(self.convert_to):
            faults.append(f"convert_to {self.convert_to!r} is not a listed unit")
        elif self.unit is not None and conversion(self.spellings.get(self.unit, self.unit), self.convert_to) is None:
            near = ", ".join(same_dimension(self.convert_to))
            faults.append(f"unit {self.unit!r} does not convert to {self.convert_to}; use one of: {near}")
        return faults


class Profile(_Model):
    """One version of one profile.

    `origin` and `confidence` distinguish profiles that people wrote from those inferred from traffic. Both apply alike.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="Name of the profile.")
    version: int = Field(
        ge=1,
        le=2**31 - 1,
        description="Version of the profile. If the folder has several versions, the highest applies.",
    )
    description: str | None = Field(None, description="Text for people; `tidegate profile show` prints it.")
    devices: tuple[str, ...] = Field(
        (),
        strict=False,
        description="Patterns of the device ids that the profile applies to. Without patterns it applies only to devices for "
        "which a route or the registry names it.",
    )
    policy: Action = Field("salvage", description="Reaction to a failure that `on` does not name.")
    on: dict[Failure, Action] = Field(default_factory=dict, description="Failure to reaction, for all metrics.")
    accept: Accepted = Field(
        (),
        strict=False,
        description="Entries of gateway/plausible/entries.toml that are real measurements here, such as ds18b20-power-on. * "
        "accepts all.",
    )
    unknown_metrics: Literal["keep", "flag", "salvage", "reject"] = Field(
        "keep", description="Reaction to a metric that `metrics` does not name; keep stores it without a flag."
    )
    metrics: dict[_MetricName, MetricRules] = Field(min_length=1, description="Rules per metric name or pattern.")
    origin: Literal["written", "inferred"] = Field(
        "written", description="Source of the profile: a person, or traffic."
    )
    confidence: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Confidence in an inferred profile, 0 to 1."
    )

    @property
    def label(self) -> str:
        """`name@version`, as in dead letters and receipts."""
        return f"{self.name}@{self.version}"

    def action(self, rules: MetricRules, failure: Failure) -> Action:
        """Return the reaction to a failure: the metric's, else the profile's, else the profile's default."""
        return rules.on.get(failure) or self.on.get(failure, self.policy)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, rules in self.metrics.items():
            if rules.required and is_glob(name):
                message = f"metrics.{name}: required needs the name of one metric, not a pattern"
                raise ValueError(message)
        for pattern in self.devices:
            if not pattern:
                message = "devices: an empty pattern matches no device; remove it, or write * for all devices"
                raise ValueError(message)
        return self
