"""Inputs and outputs of a size: the fleet that is asked for, and the lines that the model gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakehouse.maintenance import SMALL_BYTES

__all__ = ["Ceiling", "Fleet", "Prices", "Size", "SizeLine", "StoredTable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Prices in a currency of your choice; None leaves its share of the money out.

    Attributes:
        core_hour: of one core for an hour.
        gb_month: of 1 GB (10^9 bytes) of tables or of Kafka's disks for a month.
        thousand_puts: of a thousand writing requests to an object store.
    """

    core_hour: float | None = None
    gb_month: float | None = None
    thousand_puts: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """Devices that send evenly, and what is known of their messages.

    Attributes:
        devices: at least 1.
        every_seconds: between two messages of a device.
        readings: of a message; each is a row, and each metric of a device is a series.
        payload_bytes: of a message; None takes those of the measured messages.
        days: that `readings` keeps its rows; None takes the settings.
        numbered: devices send `boot` and `seq`. Else each identity is a point for `stream.horizon_days`.
        machine_cores: cores of a machine for Kafka's brokers.
        tls: connections to Kafka and to the MQTT broker are encrypted.
    """

    devices: int
    every_seconds: float
    readings: int = 1
    payload_bytes: int | None = None
    days: int | None = None
    numbered: bool = True
    machine_cores: int = 8
    tls: bool = False
    prices: Prices = field(default_factory=Prices)

    @property
    def rate(self) -> float:
        """Messages per second of all devices together."""
        return self.devices / self.every_seconds

    @property
    def rows_per_second(self) -> float:
        """Rows of `readings` per second."""
        return self.rate * self.readings

    @property
    def series(self) -> int:
        """Pairs of a device and a metric."""
        return self.devices * self.readings


@dataclass(frozen=True, slots=True)
class SizeLine:
    """One figure of a size.

    Attributes:
        group: part of the pipeline, such as `gateway`.
        name: what it is.
        value: the figure.
        unit: its unit.
        source: the measured points, the setting or the calculation that it follows from.
    """

    group: str
    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One table.

    Attributes:
        name: its name.
        rows_per_day: new rows a day; 0 if each row replaces an older one.
        kept_days: days that it keeps; 0 keeps all, or has no days.
        rows: rows when it is full; of a table that keeps all, those of a year.
        row_bytes: bytes of a row after maintenance.
        source: of `row_bytes`.
    """

    name: str
    rows_per_day: float
    kept_days: int
    rows: float
    row_bytes: float
    source: str

    @property
    def bytes_per_day(self) -> float:
        """New bytes a day."""
        return self.rows_per_day * self.row_bytes

    @property
    def bytes(self) -> float:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

    @property
    def files_per_day(self) -> float:
        """Most files that a day has once its rest is joined: all but one have at least the size of a file that stays."""
        return self.bytes_per_day // SMALL_BYTES + 1 if self.rows_per_day else 0.0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit, and how much of it the fleet needs.

    Attributes:
        name: what is limited.
        needed: of it.
        limit: the most that fits.
        unit: of both.
        kind: `code` is a constant, `setting` may be raised, `measured` was not measured beyond, `computed` follows from a cost.
        where: module and constant, setting, or measurement.
        effect: what happens beyond it, and what to do.
        devices: at which the limit is reached, with the same messages.
    """

    name: str
    needed: float
    limit: float
    unit: str
    kind: str
    where: str
    effect: str
    devices: float

    @property
    def share(self) -> float:
        """Needed part of the limit; above 1 it does not fit."""
        return self.needed / self.limit


@dataclass(frozen=True, slots=True)
class Size:
    """Lines by group in the order of a reading's way, the tables, the ceilings with the nearest first, and the assumptions."""

    fleet: Fleet
    lines: Sequence[SizeLine]
    tables: Sequence[StoredTable]
    ceilings: Sequence[Ceiling]
    assumptions: Sequence[str]
    machine: str

    def value(self, group: str, name: str) -> float:
        """Return the figure of a line."""
        return next(line.value for line in self.lines if (line.group, line.name) == (group, name))
