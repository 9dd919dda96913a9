"""Numbers that a mapping scales or reads from text, codes for errors, and what a quality says of a value."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoders.mapping.engine import CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.mapping.value_rules import NumberRule
from gateway.decoders.mapping.value_settings import NumberSettings
from gateway.decoders.shape import Decoded
from tests.support.mapping import LIMITS, MATCH, NOW_US, shown


@pytest.mark.parametrize(
    ("number", "value", "wanted"),
    [
        ({"scale": 0.01}, 2150, "21.5"),
        ({"scale": "0.01"}, 2151, "21.51"),
        ({"scale": "1e-7"}, 525200066, "52.5200066"),
        ({"scale": 0.1}, 3, "0.3"),
        ({"scale": "1/16"}, 25, "1.5625"),
        ({"scale": "5/9", "offset": 0}, 9, "5.0"),
        ({"scale": 0.1, "offset": -273.15}, 2946.5, "21.5"),
        ({"offset": 0.2}, 0.1, "0.3"),
        ({"scale": -1}, True, "true"),
        ({"scale": 0.01}, "2150", "21.5"),
        ({"text": "[{number}]"}, "[21.5]", "21.5"),
        ({"text": "{number} °C"}, "21.5 °C", "21.5"),
        ({"text": "*T={number}*"}, "H=40 T=-2.5e1 x", "-25.0"),
        ({"text": "*{number}*"}, "about 21 or 22", "21.0"),
        ({"text": "{number} mm", "decimal": ","}, "1,5 mm", "1.5"),
        ({"decimal": ","}, "1,5", "1.5"),
        ({"text": "[{number}]", "scale": 0.1}, "[215]", "21.5"),
        ({"text": "[{number}]"}, "[21.5", "!bad_number"),
        ({"text": "[{number}]"}, "x[21.5]", "!bad_number"),
        ({"text": "*{number}*"}, "1,016.76", "!bad_number"),
        ({"text": "*{number}*"}, "none here", "!bad_number"),
        ({"text": "*{number}*"}, "9" * 999, "!bad_number"),
        ({"scale": "1e30"}, 1e300, "!bad_number"),
    ],
)
def test_numbers(number: dict[str, object], value: object, wanted: str) -> None:
    mapping = CompiledMapping(MappingSettings.model_validate({"numbers": {"v": number}}))
    decoded = mapping(json.dumps({"v": value}).encode(), MATCH, LIMITS, NOW_US)
    assert isinstance(decoded, Decoded)
    found = [str(r.value) if r.text is None else r.text for r in decoded.readings] + [
        f"!{r.reason.value}" for r in decoded.rejects
    ]
    assert found == [wanted]


def test_errors_are_compared_with_what_came() -> None:
    toml = 'numbers = { "t*" = { scale = 0.01 } }\nerrors = { "t*" = [-32768] }\nunits = { t1 = "°C" }'
    assert shown(toml, {"t1": 2150, "t2": -32768, "u": 7}) == [
        "from-topic t1 21.5 °C", "from-topic u 7.0", "!bad_number $.t2",
    ]  # fmt: skip


@given(st.integers(-(2**53), 2**53), st.integers(1, 10**6), st.integers(0, 12))
def test_a_scaled_number_is_the_double_next_to_the_exact_result(raw: int, factor: int, places: int) -> None:
    rule = NumberRule(NumberSettings.model_validate({"scale": f"{factor}e-{places}"}))
    assert rule.scaled(raw) == float(Fraction(raw) * factor / 10**places)


# Quality.

SIEMENS = 'items = "vals[]"\nvalues = "val"\nprefix = "{.id}"\ntime = "ts"\nrename = { val = "" }\n'


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        ('quality = { path = "q", good = ["true"] }', {"v": 1, "q": True}, ["from-topic v 1.0"]),
        ('quality = { path = "q", good = ["true"] }', {"v": 1, "q": False}, ["!bad_number $"]),
        ('quality = { path = "q", good = ["true"] }', {"v": 1}, ["from-topic v 1.0"]),
        ('quality = { path = "q", good = ["Good*"], bad = ["Bad*"] }', {"v": 1, "q": "Uncertain"},
         ["from-topic v 1.0 ~quality_uncertain"]),
        ('items = "l[]"\nquality = { path = "q", good = ["192"], bad = ["?", "??"] }',
         {"l": [{"v": 1, "q": 192}, {"v": 2, "q": 0}, {"v": 3, "q": 216}]},
         ["from-topic v 1.0", "from-topic v 3.0 ~quality_uncertain", "!bad_number $.l[1]"]),
        ('[quantity]\nvalue = "Value"\nquality = { path = "Status", good = ["Good"], bad = ["Bad*"] }',
         {"a": {"Value": 1, "Status": "Good"}, "b": {"Value": 2, "Status": "BadNoData"}, "c": {"Value": 3, "Status": "?"}},
         ["from-topic a 1.0", "from-topic c 3.0 ~quality_uncertain", "!bad_number $.b"]),
    ],
)  # fmt: skip
def test_quality(toml: str, document: object, wanted: list[str]) -> None:
    assert shown(toml, document) == wanted
