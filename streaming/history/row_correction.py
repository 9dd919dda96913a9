"""Change of a row by a correction: delete it, scale or shift its number, convert or rename its unit.

It exists as Spark columns, which write the table, and as Arrow code, which shows the result beforehand.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from ingest.contract.errors import TidegateError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["BEYOND_DOUBLE", "COLUMNS", "FLAG", "Conversion", "RowCorrection"]

FLAG: Final = "corrected"
BEYOND_DOUBLE: Final = "beyond_double"
"""The flag of a number whose exact digits stand in `text`."""
COLUMNS: Final = ("device", "metric", "event_time", "value", "text", "unit", "flags")
"""Columns that a correction reads or changes."""

_BOOLEANS: Final = ("true", "false")
_DECIMALS: Final = 10
"""A shifted unit (temperatures) is rounded to so many decimals, so that 98.6 °F is 37 °C and not 36.99999999999999."""

Conversion = tuple[float, float, float]
"""value * first / second + third."""


@dataclass(frozen=True, slots=True)
class RowCorrection:
    """One kind of correction; exactly one of `delete`, `factor`, `offset` and `unit` is given.

    With `unit`, `conversions` says how numbers of each other unit become numbers of it; None only renames the unit.
    """

    delete: bool = False
    factor: float | None = None
    offset: float | None = None
    unit: str | None = None
    conversions: Mapping[str, Conversion] | None = field(default=None)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Read a change from a request's arguments.

        Raises:
            TidegateError: it is none, or its number changes nothing or everything.
        """
        conversions = arguments.get("conversions")
        made = cls(
            bool(arguments.get("delete")),
            arguments.get("factor"),
            arguments.get("offset"),
            arguments.get("unit"),
            None if conversions is None else {unit: tuple(numbers) for unit, numbers in conversions.items()},
        )
        made.check()
        return made

    def check(self) -> None:
        """Refuse an invalid change.

        Raises:
            TidegateError: says what and why.
        """
        given = [self.delete, self.factor is not None, self.offset is not None, self.unit is not None]
        if sum(given) != 1:
            message = "Give exactly one of --delete, --factor, --offset and --unit."
            raise TidegateError(message)
        for name, number, idle in (("factor", self.factor, 1.0), ("offset", self.offset, 0.0)):
            if number is not None and (not math.isfinite(number) or number == idle):
                effect = "changes nothing" if number == idle else "is not a finite number"
                message = f"The {name} {number:g} {effect}. Give another --{name}."
                raise TidegateError(message)
        if self.factor == 0:
            message = "A factor of 0 would make every value 0. To delete the rows, use --delete."
            raise TidegateError(message)
        if self.unit is not None and not self.unit.strip():
            message = "The unit is empty. Give the unit that the rows should have, such as --unit °C."
            raise TidegateError(message)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for a request; `of` reads them."""
        named = {
            "delete": self.delete or None,
            "factor": self.factor,
            "offset": self.offset,
            "unit": self.unit,
            "conversions": None if self.conversions is None else {u: list(n) for u, n in self.conversions.items()},
        }
        return {name: value for name, value in named.items() if value is not None}

    def touched(self, rows: "pa.Table") -> "pa.Table":
        """Return those of the rows (COLUMNS) that the correction changes."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.delete:
            return rows
        number = pc.is_valid(rows["value"])
        is_boolean = pc.is_in(rows["text"], value_set=pa.array(_BOOLEANS))
        if self.unit is None:
            return rows.filter(pc.and_not(number, is_boolean))
        other = pc.fill_null(pc.not_equal(rows["unit"], self.unit), True)
        return rows.filter(other if self.conversions is None else pc.and_(pc.and_not(number, is_boolean), other))

    def values(self, rows: "pa.Table") -> "pa.ChunkedArray":
        """The numbers of touched rows afterwards; as they are where they stay or go."""
        import pyarrow as pa
        import pyarrow.compute as pc

        value = rows["value"]
        if self.factor is not None:
            return pc.multiply(value, self.factor)
        if self.offset is not None:
            return pc.add(value, self.offset)
        for unit, (factor, divisor, shift) in (self.conversions or {}).items():
            converted = pc.divide(pc.multiply(rows["value"], factor), divisor)
            if shift:
                converted = pc.round(pc.add(converted, shift), _DECIMALS)
            # A row without a unit keeps its number here; the correction is refused before this matters.
            value = pc.if_else(pc.fill_null(pc.equal(rows["unit"], unit), False), converted, value)
        return value if isinstance(value, pa.ChunkedArray) else pa.chunked_array([value])

    def unknown_units(self, rows: "pa.Table") -> list[str | None]:
        """Units of touched rows for which no conversion is given; none where nothing is converted."""
        if self.conversions is None:
            return []
        return [unit for unit in rows["unit"].unique().to_pylist() if unit not in self.conversions]

    def is_touched(self) -> "Column":
        """`touched` as a Spark condition; never null."""
        from pyspark.sql import functions as F

        if self.delete:
            return F.lit(True)
        number = F.col("value").isNotNull() & ~F.coalesce(F.col("text").isin(*_BOOLEANS), F.lit(False))
        if self.unit is None:
            return number
        other = ~F.col("unit").eqNullSafe(F.lit(self.unit))
        return other if self.conversions is None else number & other

    def columns(self) -> "dict[str, Column]":
        """The columns that a touched row gets (of a change that does not delete)."""
        from pyspark.sql import functions as F

        flags = F.coalesce(F.col("flags"), F.array().cast("array<string>"))
        if self.unit is not None and self.conversions is None:
            return {"unit": F.lit(self.unit), "flags": F.array_union(flags, F.array(F.lit(FLAG)))}
        # Exact digits next to a number that a double cannot hold belong to the number before.
        plain = F.array_remove(flags, BEYOND_DOUBLE)
        changed = {"value": self._value(), "text": F.lit(None).cast("string")}
        if self.unit is not None:
            changed["unit"] = F.lit(self.unit)
        return {**changed, "flags": F.array_union(plain, F.array(F.lit(FLAG)))}

    def _value(self) -> "Column":
        from pyspark.sql import functions as F

        value = F.col("value")
        if self.factor is not None:
            return value * F.lit(self.factor)
        if self.offset is not None:
            return value + F.lit(self.offset)
        found = value
        for unit, (factor, divisor, shift) in (self.conversions or {}).items():
            converted = value * F.lit(factor) / F.lit(divisor)
            if shift:
                converted = F.round(converted + F.lit(shift), _DECIMALS)
            found = F.when(F.col("unit") == F.lit(unit), converted).otherwise(found)
        return found
