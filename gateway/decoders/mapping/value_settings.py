"""Settings of a mapping for single values: numbers inside text, scale and offset, quality, offsets of times."""

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

__all__ = ["NOT_BY_CODE", "NOT_BY_QUALITY", "NUMBER", "NumberSettings", "QualitySettings", "TimeOffset"]

NUMBER: Final = "{number}"
NOT_BY_QUALITY: Final = "a measurement; the quality says that this value is not one"
NOT_BY_CODE: Final = "a measurement; this value says that the sensor is missing or broken"
"""`wanted` of a rejection by `quality` and by `errors`."""
_MOST: Final = 30
"""Maximum digits before and after the point of a factor, and of each side of a fraction."""


def _exact(value: object) -> object:
    """Return a written factor as an exact fraction: `0.01`, `"1e-7"`, `"1/16"`."""
    if isinstance(value, Fraction):
        return value
    parts = str(value).split("/") if isinstance(value, str | int | float) and not isinstance(value, bool) else []
    try:
        decimals = [Decimal(part.strip()) for part in parts]
        if 1 <= len(decimals) <= 2 and all(
            one.is_finite() and (not one or abs(one.adjusted()) <= _MOST) for one in decimals
        ):
            return Fraction(decimals[0]) / Fraction(decimals[-1] if len(decimals) == 2 else 1)
    except (InvalidOperation, ZeroDivisionError):
        pass
    message = f'{str(value)[:60]!r} is not a factor: use a number such as 0.01, "1e-7" or "1/16"'
    raise ValueError(message)


Exact = Annotated[Any, BeforeValidator(_exact), PlainSerializer(str)]
"""A number that keeps all its decimals."""


class NumberSettings(BaseModel):
    """Rules that turn fields into numbers: extract the number from the text, then value = number * scale + offset, exactly.

    `text` describes the field's text, with `{number}` in the place of the number. It may begin and end with `*`, which
    matches anything: `"[{number}]"`, `"T={number} C"`, `"*temp: {number}*"`. The first place that matches is used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    text: str | None = Field(
        None, max_length=200, description="The field's text, with {number} in the place of the number."
    )
    decimal: Literal[".", ","] = Field(".", description="Decimal separator of the number.")
    scale: Exact = Field(Fraction(1), description='Factor, such as 0.01, "1e-7" or "1/16". Not 0.')
    offset: Exact = Field(Fraction(0), description="Number to add after the scale.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.text is not None:
            inside = self.text.removeprefix("*").removesuffix("*")
            if inside.count(NUMBER) != 1 or "*" in inside:
                message = f"{self.text!r}: use {NUMBER} once, and * only at the beginning or the end"
                raise ValueError(message)
        if not self.scale:
            message = "a scale of 0 makes every value 0: use another number"
            raise ValueError(message)
        return self


class QualitySettings(BaseModel):
    """A field that grades a value. If it is absent, the value counts as good."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, description="Path of the quality.")
    good: tuple[str, ...] = Field(min_length=1, description="Globs for the quality as text. A match keeps the value.")
    bad: tuple[str, ...] = Field(
        ("*",),
        description="Globs for the quality as text. A match that is not `good` rejects the value. A value that matches neither "
        "gets the flag quality_uncertain.",
    )


class TimeOffset(BaseModel):
    """A number to add to the item's time, for columns and batches that give one time and the distances from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = Field(None, min_length=1, description="Path of the offset. An item without it is rejected.")
    step: str | None = Field(
        None,
        min_length=1,
        description="Path of the distance between items. The offset is this distance times the item's index in its array.",
    )
    unit: Literal["us", "ms", "s", "min", "h"] = Field("ms", description="Unit of the offset or the distance.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) is (self.step is None):
            message = "set either `path` (the offset of each item) or `step` (the distance between items), not both"
            raise ValueError(message)
        return self
