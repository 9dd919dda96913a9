"""Columns and rows inside a document: places, times with offsets, and units in a tree of their own."""

import pytest

from tests.support.mapping import HOURLY, decode, shown

PPMP = """
device = "{$.device.id}"
items = "measurements[].series.rows[]"
time = "^.ts"
time_offset = { path = "time", unit = "ms" }
inside = { "measurements[].series" = { kind = "columns", by = "time" } }
"""


def ppmp(**series: object) -> dict[str, object]:
    return {"device": {"id": "d"}, "measurements": [{"ts": "2026-11-28T21:06:40Z", "series": series}]}


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        (PPMP, ppmp(time=[0, 250.5], t=[20.5, 21]), ["d t 20.5 @11-28T21:06:40", "d t 21.0 @11-28T21:06:40.2505"]),
        (PPMP, ppmp(time=[0, 1], t=[None, 21]), ["d t 21.0 @11-28T21:06:40.001"]),
        # Ragged: nobody knows which rows the values are of.
        (PPMP, ppmp(time=[0, 1], t=[20.5], h=[40, 41]),
         ["d h 40.0 @11-28T21:06:40", "d h 41.0 @11-28T21:06:40.001", "!undecoded $.measurements[0].series.rows[0].t"]),
        (PPMP, ppmp(t=[20.5]), ["!missing_field $.measurements[0].series"]),
        (PPMP, ppmp(time=[], t=[20.5]), ["!undecoded $.measurements[0].series"]),
        (PPMP, ppmp(time=[0, "x"], t=[1, 2]),
         ["d t 1.0 @11-28T21:06:40", "!bad_timestamp $.measurements[0].series.rows[1].time"]),
        (PPMP, ppmp(time=[0, None], t=[1, 2]),
         ["d t 1.0 @11-28T21:06:40", "!missing_field $.measurements[0].series.rows[1].time"]),
        (PPMP, ppmp(time=[0, 10**300], t=[1, 2]),
         ["d t 1.0 @11-28T21:06:40", "!bad_timestamp $.measurements[0].series.rows[1].time"]),
        (PPMP, ppmp(time=[0, -4 * 10**12], t=[1, 2]),
         ["d t 1.0 @11-28T21:06:40", "!ts_too_old $.measurements[0].series.rows[1].time"]),
        # An offset from no time is no time.
        (PPMP, {"device": {"id": "d"}, "measurements": [{"series": {"time": [0], "t": [1]}}]},
         ["!missing_field $.measurements[0].series.rows[0].time"]),
        (HOURLY, {"hourly": {"time": [1795900000, 1795900001], "t": [1, 2]}, "x": 1},
         ["from-topic t 1.0 @11-28T21:06:40", "from-topic t 2.0 @11-28T21:06:41"]),
        (HOURLY, {"hourly": {"time": [1795900000, 1795900001], "t": [1]}}, ["!undecoded $.hourly"]),
        # Regular samples: a first time and the distance.
        ('items = "rows[]"\ntime = "^.t0"\ntime_offset = { step = "^.dt", unit = "s" }\ninside = { "$" = "columns" }',
         {"t0": 1795900000, "dt": 0.5, "v": [1, 2, 3]},
         ["from-topic v 1.0 @11-28T21:06:40", "from-topic v 2.0 @11-28T21:06:40.5", "from-topic v 3.0 @11-28T21:06:41"]),
        ('items = "rows[]"\ntime = "^.t0"\ntime_offset = { step = "^.dt" }\ninside = { "$" = "columns" }',
         {"t0": 1795900000, "v": [1]}, ["!missing_field ^.dt"]),
        # A table with its names in the first row.
        ('inside = { "$" = { kind = "rows", header = true } }\ntime = "at"', [["at", "t"], [1795900000, 0.5], [1795900001, 1]],
         ["from-topic t 0.5 @11-28T21:06:40", "from-topic t 1.0 @11-28T21:06:41"]),
        ('device = ["{.id}", "{^.id}"]\nitems = ["$", "rows[]"]\ntime = "at"\n'
         '[inside]\n"$" = { kind = "columns", columns = ["at", "t"] }',
         {"id": "d", "battery": 3.1, "at": [1795900000], "t": [1], "position": [8.5, 50]},
         ["d battery 3.1", "d position[0] 8.5", "d position[1] 50.0", "d t 1.0 @11-28T21:06:40"]),
    ],
)  # fmt: skip
def test_columns(toml: str, document: object, wanted: list[str]) -> None:
    assert shown(toml, document) == wanted


def test_an_offset_that_is_no_number_costs_its_row() -> None:
    payload = (
        b'{"device":{"id":"d"},"measurements":[{"ts":"2026-11-28T21:06:40Z","series":{"time":[0,NaN],"t":[1,2]}}]}'
    )
    assert shown(PPMP, payload) == ["d t 1.0 @11-28T21:06:40", "!bad_timestamp $.measurements[0].series.rows[1].time"]


def test_rows_of_columns_have_places_of_their_own() -> None:
    document = ppmp(time=[0, 0], t=[1, 2])
    document["measurements"] = [*document["measurements"], *document["measurements"]]  # type: ignore[misc]
    assert [r.index for r in decode(PPMP, document).readings] == [0, 1, 2, 3]


# Units in a tree of their own.


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        (HOURLY + '\nvalue_units = { tree = "$.hourly_units" }',
         {"hourly_units": {"time": "unixtime", "t": "°C"}, "hourly": {"time": [1795900000], "t": [1], "h": [2]}},
         ["from-topic t 1.0 °C @11-28T21:06:40", "from-topic h 2.0 @11-28T21:06:40"]),
        (PPMP + 'value_units = { tree = "^.context", leaf = "unit" }\nunit_names = { Cel = "°C" }',
         {"device": {"id": "d"}, "measurements": [{"context": {"t": {"unit": "Cel"}, "h": {}}, "ts": "2026-11-28T21:06:40Z",
                                                   "series": {"time": [0], "t": [1], "h": [2]}}]},
         ["d t 1.0 °C @11-28T21:06:40", "d h 2.0 @11-28T21:06:40"]),
        ('values = "v"\nvalue_units = { tree = "u" }\nunits = { a = "V", c = "A" }',
         {"v": {"a": 1, "b": {"x": 2}, "c": 3, "d": "21 %"}, "u": {"a": "mV", "b": {"x": "%"}, "c": 7}},
         ["from-topic a 1.0 mV", "from-topic b.x 2.0 %", "from-topic c 3.0 A", "from-topic d 21.0 % ~numeric_text"]),
    ],
)  # fmt: skip
def test_units_in_a_tree(toml: str, document: object, wanted: list[str]) -> None:
    assert shown(toml, document) == wanted
