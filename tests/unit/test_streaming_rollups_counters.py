"""Counter gains: each row of an example is (value, gain, event), in the order of event time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakehouse.counters import COUNTER_DELTAS_SQL

Example = list[tuple[float, float | None, str | None]]


def steps(first: float, step: float, count: int) -> list[float]:
    return [first + step * n for n in range(count)]


def counted(values: list[float], gain: float) -> Example:
    return [(value, gain, None) for value in values]


EXAMPLES: dict[str, Example] = {
    #  / a counter that counts
    "steady": [(5.0, None, None), (7.0, 2.0, None), (7.0, 0.0, None), (10.5, 3.5, None)],
    #  /\/ a small decrease, then recovery
    "dip": [(100.0, None, None), (98.0, 0.0, "dip"), (99.0, 0.0, "dip"), (103.0, 3.0, None)],
    #  /|/ a fault reads 0 for some readings, and the old level comes back
    "fault of zeros": [(100.0, None, None), (0.0, 0.0, "dip"), (0.0, 0.0, "dip"), (101.0, 1.0, None), (103.0, 2.0, None)],
    #  a dip in steps is one dip
    "stairs": [(100.0, None, None), (50.0, 0.0, "dip"), (0.0, 0.0, "dip"), (104.0, 4.0, None)],
    #  /|_/ it begins anew: what it shows by now was gained
    "reset": [(100.0, None, None), (4.0, 4.0, "reset"), *counted(steps(6.0, 2.0, 12), 2.0)],
    "reset, newest reading": [(100.0, None, None), (102.0, 2.0, None), (0.0, 0.0, "reset")],
    #  a meter is set to another level: unknown gain is no gain
    "level set": [(100.0, None, None), (60.0, 0.0, "reset"), *counted(steps(61.0, 1.0, 12), 1.0)],
    "level set, not yet told from a dip": [(100.0, None, None), (60.0, 0.0, "dip"), (61.0, 0.0, "dip")],
    #  /|/ over the limit of its register or its digits
    "wrap of 16 bits": [(65500.0, None, None), (65520.0, 20.0, None), (4.0, 20.0, "wrap"), *counted(steps(24.0, 20.0, 12), 20.0)],
    "wrap of five digits": [(99980.0, None, None), (99990.0, 10.0, None), (5.0, 15.0, "wrap"), (15.0, 10.0, None)],
    "wrap of a fast counter": [(200.0, None, None), (240.0, 40.0, None), (24.0, 40.0, "wrap"), (250.0, 226.0, None)],
    #  close to a limit, but far more than it ever steps: a reset, no spike of 36 000
    "reset near a limit": [(64000.0, None, None), (64001.0, 1.0, None), (0.0, 0.0, "reset"), *counted(steps(1.0, 1.0, 12), 1.0)],
    "wrap after a dip": [
        (65500.0, None, None), (65520.0, 20.0, None), (65519.0, 0.0, "dip"), (3.0, 19.0, "wrap"), (23.0, 20.0, None),
    ],
    "below zero": [(-1.0, None, None), (-5.0, 0.0, "reset")],
}  # fmt: skip


def readings() -> pa.Table:
    """All examples as rows of `readings`, each a metric, the newest first."""
    zero = datetime(2026, 5, 1, tzinfo=UTC)
    rows = [
        {
            "device": "meter", "metric": name, "value": value, "event_time": zero + timedelta(minutes=n), "landed_at": zero,
            "partition": 0, "offset": n, "index": 0,
        }
        for name, example in EXAMPLES.items()
        for n, (value, _, _) in enumerate(example)
    ]  # fmt: skip
    text = {**rows[0], "metric": "state", "value": None}
    schema = pa.schema(
        [
            ("device", pa.string()), ("metric", pa.string()), ("value", pa.float64()),
            ("event_time", pa.timestamp("us", "UTC")), ("landed_at", pa.timestamp("us", "UTC")), ("partition", pa.int32()),
            ("offset", pa.int64()), ("index", pa.int32()),
        ]
    )  # fmt: skip
    return pa.Table.from_pylist([*reversed(rows), text], schema=schema)


@pytest.fixture(scope="module")
def gains() -> dict[str, list[dict[str, Any]]]:
    with duckdb.connect() as connection:
        connection.register("readings", readings())
        connection.execute(f"CREATE VIEW counter_deltas AS {COUNTER_DELTAS_SQL}")
        rows = connection.sql("SELECT * FROM counter_deltas ORDER BY metric, event_time").to_arrow_table()
    assert rows.column_names == ["device", "metric", "event_time", "value", "delta", "event"]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["metric"], []).append(row)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_counter_gains_what_it_counted(gains: dict[str, list[dict[str, Any]]], name: str) -> None:
    assert [(row["value"], row["delta"], row["event"]) for row in gains[name]] == EXAMPLES[name]


def test_text_is_no_counter(gains: dict[str, list[dict[str, Any]]]) -> None:
    assert gains.keys() == EXAMPLES.keys()
