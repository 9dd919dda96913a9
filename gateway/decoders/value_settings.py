"""What a mapping says about single values: numbers inside text, scale and offset, quality, offsets of times."""

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

__all__ = ["NOT_BY_CODE", "NOT_BY_QUALITY", "NUMBER", "NumberSettings", "QualitySettings", "TimeOffset"]

NUMBER: Final = "{number}"
NOT_BY_QUALITY: Final = "a measurement: the quality says that this is none"
NOT_BY_CODE: Final = "a measurement: this value says that the sensor is missing or broken"
"""What a refusal by `quality` and by `errors` wants."""
_MOST: Final = 30
"""Digits before and behind the point of a factor, and of each side of a fraction."""


def _exact(value: object) -> object:
    """A factor as it is written: `0.01`, `"1e-7"`, `"1/16"`."""
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
    message = f'{str(value)[:60]!r} is no factor: wanted a number such as 0.01, "1e-7" or "1/16"'
    raise ValueError(message)


Exact = Annotated[Any, BeforeValidator(_exact), PlainSerializer(str)]
"""A number whose decimals count."""


class NumberSettings(BaseModel):
    """How fields become numbers: the number is taken out of the text, then value = number * scale + offset, exactly.

    `text` is what the field looks like, with `{number}` where the number stands; it may begin and end with `*`, which is
    anything: `"[{number}]"`, `"T={number} C"`, `"*temp: {number}*"`. The first place that fits counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    text: str | None = Field(
        None, max_length=200, description="The field's text, with {number} where the number stands."
    )
    decimal: Literal[".", ","] = Field(".", description="The sign between whole and fraction.")
    scale: Exact = Field(Fraction(1), description='Factor: 0.01, "1e-7", "1/16".')
    offset: Exact = Field(Fraction(0), description="Added after the factor.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.text is not None:
            inside = self.text.removeprefix("*").removesuffix("*")
            if inside.count(NUMBER) != 1 or "*" in inside:
                message = f"{self.text!r}: wanted {NUMBER} once, and * at most at the beginning and the end"
                raise ValueError(message)
        if not self.scale:
            message = "a scale of 0 leaves nothing of the value"
            raise ValueError(message)
        return self


class QualitySettings(BaseModel):
    """A field beside the value that says how good the value is. Where it is absent, the value counts as good."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, description="Path of the quality.")
    good: tuple[str, ...] = Field(min_length=1, description="Globs for the quality as text: the value is kept.")
    bad: tuple[str, ...] = Field(
        ("*",),
        description="Globs for the quality of a value that is none: refused. The rest is flagged quality_uncertain.",
    )


class TimeOffset(BaseModel):
    """A number that is added to the item's time: of columns and batches that give one time and distances from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = Field(None, min_length=1, description="Path of the offset. An item without it is refused.")
    step: str | None = Field(
        None,
        min_length=1,
        description="Path of the distance between items: the offset is the item's place in its array times it.",
    )
    unit: Literal["us", "ms", "s", "min", "h"] = "ms"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.path is None) is (self.step is None):
            message = "either `path` to the offset of each item or `step` to the distance between items, and not both"
            raise ValueError(message)
        return self
