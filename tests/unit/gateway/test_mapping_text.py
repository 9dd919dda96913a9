"""Text in a message: documents inside a field, delimited text, and what neither may do."""

import base64
import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.decoders.mapping.engine import BadPath, CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.shape import Decoded
from ingest.contract.dead_letter import Reject
from tests.support.mapping import HOURLY, LIMITS, MATCH, NOW_US, decode, shown


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Documents inside a message.

PARTICLE = """
device = "{.coreid}"
time = "published_at"
skip = ["event"]
values = ["data", ""]
inside = { data = "auto" }
"""


@pytest.mark.parametrize(
    ("toml", "document", "wanted"),
    [
        (PARTICLE, {"event": "env", "data": '{"t":21.5,"h":40}', "published_at": "2026-11-28T21:06:40.123Z", "coreid": "e0"},
         ["e0 t 21.5 @11-28T21:06:40.123", "e0 h 40.0 @11-28T21:06:40.123"]),
        ('inside = { data = "json" }', {"data": '{"a": {"b": 1}}', "c": 2}, ["from-topic data.a.b 1.0", "from-topic c 2.0"]),
        # An object where text was expected is open already; null is absent.
        ('inside = { data = "json" }', {"data": {"a": 1}}, ["from-topic data.a 1.0"]),
        ('inside = { data = "json" }', {"data": None, "c": 2}, ["from-topic c 2.0"]),
        ('[inside]\nbody = { kind = "json", encoding = "base64" }', {"body": in_base64('{"t":1}')}, ["from-topic body.t 1.0"]),
        ('[inside]\nbody = { kind = "json", encoding = "hex" }', {"body": b'{"t":1}'.hex()}, ["from-topic body.t 1.0"]),
        # Base64 of URLs, and without padding.
        ('[inside]\nbody = { kind = "json", encoding = "base64" }',
         {"body": base64.urlsafe_b64encode('{"t":"ÿ??>"}'.encode()).decode().rstrip("=")}, ["from-topic body.t ÿ??>"]),
        ('inside = { "$" = "json" }\nformat = "json"', json.dumps('{"t": 1}'), ["from-topic t 1.0"]),
        # One inside the other, in the order of the table, and at many places.
        ('inside = { a = "json", "a.b" = "json" }', {"a": json.dumps({"b": '{"c": 1}'})}, ["from-topic a.b.c 1.0"]),
        ('inside = { "l[].d" = "json" }\nitems = "l[]"\ndevice = "{.id}"\nvalues = "d"',
         {"l": [{"id": "x", "d": '{"t":1}'}, {"id": "y", "d": '{"t":2}'}]}, ["x t 1.0", "y t 2.0"]),
        ('inside = { "*" = "json" }', {"a": '{"t":1}', "b": "2.5"}, ["from-topic a.t 1.0", "from-topic b 2.5"]),
        # Text that is no JSON stays text where the format is auto; where it has to be JSON it costs itself.
        ('inside = { a = "auto" }', {"a": "open", "b": 1}, ["from-topic a open", "from-topic b 1.0"]),
        ('inside = { a = "json" }', {"a": "{broken", "b": 1}, ["from-topic b 1.0", "!bad_json $.a"]),
        ('inside = { a = "auto" }', {"a": "{broken", "b": 1}, ["from-topic b 1.0", "!bad_json $.a"]),
        ('inside = { a = "json" }\nvalues = "a"', {"a": "{broken"}, ["!bad_json $.a"]),
        ('inside = { a = "json" }\nitems = "a.list[]"', {"a": "{broken"}, ["!bad_json $.a"]),
        ('[inside]\na = { kind = "json", encoding = "base64" }', {"a": "§", "b": 1}, ["from-topic b 1.0", "!bad_encoding $.a"]),
        # A case sees what is inside; the mapping's own `when` sees the message as it came.
        ('when = { d = "{*" }\ninside = { d = "json" }\n[[cases]]\nwhen = { "d.kind" = "env" }\nvalues = "d"\nskip = ["kind"]',
         {"d": '{"kind": "env", "t": 1}'}, ["from-topic t 1.0"]),
        ('inside = { d = { kind = "pairs", separator = ";" } }\nvalues = "d"', {"d": "t=21.5;door=open"},
         ["from-topic t 21.5", "from-topic door open"]),
        ('inside = { d = { kind = "rows", columns = ["n", "v"] } }\nitems = "d[]"\nrename = { v = "{.n}" }',
         {"d": "t,21.5\nh,40"}, ["from-topic t 21.5", "from-topic h 40.0"]),
        # An array of arrays is rows too; numbers keep their type.
        ('items = "s[]"\ntime = "at"\ninside = { s = { kind = "rows", columns = ["at", "t", "ok"] } }',
         {"s": [[1795900000, 0, True], [1795900001, 2.5, None]]},
         ["from-topic t 0.0 @11-28T21:06:40", "from-topic ok true @11-28T21:06:40", "from-topic t 2.5 @11-28T21:06:41"]),
    ],
)  # fmt: skip
def test_documents_inside_a_message(toml: str, document: object, wanted: list[str]) -> None:
    assert shown(toml, document) == wanted


def test_a_message_is_not_changed_by_what_is_read_inside_it() -> None:
    first = CompiledMapping(MappingSettings.model_validate({"inside": {"a.b": "json"}}))
    document = first.parse(b'{"a": {"b": "[1]", "c": 2}}', LIMITS)
    assert not isinstance(document, Reject)
    first.read(document, b"", MATCH, LIMITS, NOW_US)
    assert document.value == {"a": {"b": "[1]", "c": 2}}


# Delimited text.

SMARTREST = """
items = ["[]", "[].group[]"]
rename = { value = "{.fragment}.{.series}" }
units = { "*" = "{.unit}" }
time = ["time", "^.time"]
skip = ["code", "fragment", "series", "unit", "type"]
[format]
kind = "rows"
columns = { "200" = ["code", "fragment", "series", "value", "unit?", "time?"], "201" = ["code", "type", "time", ["fragment", "series", "value", "unit"]], "1??" = [] }
"""  # noqa: E501 - a line as users write it
ULTRALIGHT = """
time = "at"
format = { kind = "pairs", separator = "|", equals = "|", lines = "#", columns = ["at?"] }
"""


@pytest.mark.parametrize(
    ("toml", "text", "wanted"),
    [
        (SMARTREST, "200,c8y_Temperature,T,25,C", ["from-topic c8y_Temperature.T 25.0 C"]),
        (SMARTREST, "100,name\n200,c8y_Temperature,T,25,C,2026-11-28T21:06:40.000Z\n200,c8y_Light,L,7",
         ["from-topic c8y_Temperature.T 25.0 C @11-28T21:06:40", "from-topic c8y_Light.L 7.0"]),
        (SMARTREST, "201,KamstrupMeasurement,2026-11-28T21:06:40Z,Kamstrup,A-,5,kWh,Kamstrup,A+,2.5,",
         ["from-topic Kamstrup.A- 5.0 kWh @11-28T21:06:40", "from-topic Kamstrup.A+ 2.5 @11-28T21:06:40"]),
        (SMARTREST, "200,c8y_Temperature,T\n777,x\n200,a,b,1", ["from-topic a.b 1.0", "!undecoded $[0]", "!undecoded $[1]"]),
        (SMARTREST, "200,a,b,1,C,2026-11-28T21:06:40Z,7", ["!undecoded $[0]"]),
        (ULTRALIGHT, "t|25|h|42", ["from-topic t 25.0", "from-topic h 42.0"]),
        (ULTRALIGHT, "2026-11-28T21:06:40Z|t|25#h|42|door|open",
         ["from-topic t 25.0 @11-28T21:06:40", "from-topic h 42.0", "from-topic door open"]),
        (ULTRALIGHT, "t|25|h|", ["from-topic t 25.0"]),
        ('format = "pairs"', "t=25, h=42.5 %,door=open", ["from-topic t 25.0", "from-topic h 42.5 %", "from-topic door open"]),
        ('format = { kind = "pairs", separator = " " }', 't=25   h=42 name="x"',
         ["from-topic t 25.0", "from-topic h 42.0", "from-topic name x"]),
        ('format = { kind = "pairs", separator = " ", equals = ":" }', "t: 25 h :42  at:21:06:40 n: x:1",
         ["from-topic t 25.0", "from-topic h 42.0", "from-topic at 21:06:40", "from-topic x 1.0"]),
        ('format = { kind = "pairs", separator = " " }', "a= b=3", ["from-topic b 3.0"]),
        ('format = { kind = "pairs", separator = "&" }\ndevice = "{.id}"', "id=00123&t=25", ["00123 t 25.0"]),
        ('format = { kind = "pairs", separator = "&" }\ndevice = "{.id}"', "id=a%3Ab&t+in=2%2E5", ["a:b t in 2.5"]),
        ('format = { kind = "pairs", separator = "\\n", equals = ":" }', "t: 25\nh: 42\n",
         ["from-topic t 25.0", "from-topic h 42.0"]),
        ('format = "pairs"', "t=25,h", ["!undecoded None"]),
        ('format = { kind = "rows", header = true }\ndevice = "{.id}"\ntime = "at"',
         "id,at,t\n007,1795900000,21.5\n008,1795900001,\n",
         ["007 t 21.5 @11-28T21:06:40"]),
        ('format = { kind = "rows", separator = ";", decimal = ",", columns = ["t", "h"] }', "21,5;40\r\n-3,25;41\r\n",
         ["from-topic t 21.5", "from-topic h 40.0", "from-topic t -3.25", "from-topic h 41.0"]),
        # A point may divide thousands where the comma is the decimal sign.
        ('format = { kind = "rows", separator = ";", decimal = ",", columns = ["t", "h"] }',
         "1.021;5\n1.021,5;-1,5 °C\n21.5;0.500\n",
         ["from-topic h 5.0", "from-topic t 1021.5", "from-topic h -1.5 °C", "from-topic t 21.5", "from-topic h 0.5",
          "!bad_number $[0].t"]),
        ('format = { kind = "pairs", separator = ";", decimal = "," }', "t=1.021;h=2,5;n=1,2,3;w=1.021,5 kW",
         ["from-topic h 2.5", "from-topic n 1,2,3", "from-topic w 1021.5 kW", "!bad_number $.t"]),
        ('format = { kind = "rows", columns = ["t", "note"] }', '21.5,"a, ""b"""',
         ["from-topic t 21.5", 'from-topic note a, "b"']),
        # Date and time in cells of their own.
        ('format = { kind = "rows", header = true }\ntime = { path = "{.date}T{.time}Z", format = "rfc3339" }',
         "date,time,t\n2026-11-28,21:06:40,21.5\n2026-11-28,,1\n2026-11-28,25:00:00,1",
         ["from-topic t 21.5 @11-28T21:06:40", "!bad_timestamp {.date}T{.time}Z", "!bad_timestamp {.date}T{.time}Z"]),
        ('format = { kind = "rows", columns = ["d", "h", "t"] }\n'
         'time = { path = "{.d} {.h}", format = "%d.%m.%Y %H:%M:%S", zone = "UTC" }',
         "28.11.2026,21:06:40,21.5", ["from-topic t 21.5 @11-28T21:06:40"]),
        ('format = { kind = "rows", columns = ["m", "t"] }\ntime = { path = "m", format = "min" }', "29931667,21.5",
         ["from-topic t 21.5 @11-28T21:07:00"]),
        ('format = { kind = "rows", separator = " ", columns = ["", "t"] }', "x   21.5", ["from-topic t 21.5"]),
        ('format = { kind = "rows", columns = ["t", "h"] }', "1,2\n3\n4,5,6\n7,8",
         ["from-topic t 1.0", "from-topic h 2.0", "from-topic t 7.0", "from-topic h 8.0", "!undecoded $[1]", "!undecoded $[2]"]),
        ('format = "ndjson"\ntime = "ts"', '{"ts":1795900000,"t":1}\n{"ts":1795900001,"t":2}\r\n\n',
         ["from-topic t 1.0 @11-28T21:06:40", "from-topic t 2.0 @11-28T21:06:41"]),
        ('format = "ndjson"', '{"t":1}\n{broken\n{"t":2}', ["from-topic t 1.0", "from-topic t 2.0", "!bad_json $[1]"]),
        ('format = "ndjson"', "{broken", ["!bad_json None"]),
        ('format = { kind = "json", encoding = "base64" }', in_base64('{"t":1}'), ["from-topic t 1.0"]),
        ('format = "text"\nnumbers = { state = { text = "T={number}*" } }', "T=21.5C ok", ["from-topic state 21.5"]),
        ('format = "text"', "21.5 °C", ["from-topic state 21.5 °C"]),
        ('format = { kind = "text", encoding = "hex" }\nnumbers = { "*" = { scale = 0.1 } }', "323135",
         ["from-topic state 21.5"]),
    ],
)  # fmt: skip
def test_delimited_text(toml: str, text: str, wanted: list[str]) -> None:
    assert shown(toml, text) == wanted


# Hostile texts: a refusal, in bounds.

MANY = LIMITS.max_readings_per_message + 1


@pytest.mark.parametrize(
    ("toml", "document"),
    [
        ('format = { kind = "rows", columns = ["t"] }', "1\n" * MANY),
        ('format = { kind = "rows", columns = ["t"] }', "\n" * 200_000 + "1"),
        ('format = "ndjson"', "1\n" * MANY),
        ('format = "pairs"', "a=1," * 3 * MANY),
        (ULTRALIGHT, "a|1#" * MANY),
        ('inside = { "l[]" = "json" }', {"l": ["1"] * MANY}),
        (HOURLY, {"hourly": {"time": [0] * MANY, "t": [0] * MANY}}),
        ('inside = { d = { kind = "rows", columns = ["a"] } }\nitems = "d[]"', {"d": [[1]] * MANY}),
    ],
)
def test_more_than_a_message_may_hold_is_refused(toml: str, document: object) -> None:
    decoded = decode(toml, document)
    refused = decoded if isinstance(decoded, Reject) else decoded.rejects[0]
    assert refused.reason.value == "too_large"


@pytest.mark.parametrize(
    ("toml", "document", "reason"),
    [
        ('inside = { a = "json" }', {"a": "[" * 50 + "]" * 50}, "too_deep"),
        ('inside = { a = "json" }', {"a": "[" * 100_000}, "too_deep"),
        ('inside = { "a.b.c" = "json" }', {"a": {"b": {"c": "[" * 30 + "1" + "]" * 30}}}, "too_deep"),
        ('[inside]\na = { kind = "json", encoding = "base64" }', {"a": "A" * 200_000}, "bad_encoding"),
        ('[inside]\na = { kind = "json", encoding = "base64" }', {"a": in_base64("{" * 100)}, "bad_json"),
        ('[inside]\na = { kind = "json", encoding = "hex" }', {"a": "abc"}, "bad_encoding"),
        ('inside = { a = "json" }', {"a": "\ud800{"}, "bad_encoding"),
        ('format = { kind = "rows", columns = ["t"] }', b"\xff\xfe1", "bad_encoding"),
        ('format = { kind = "rows", columns = ["t"] }', '"' + "a" * 200_000, "undecoded"),
        ('format = { kind = "rows", header = true }', "a,a\n1,2", "undecoded"),
        ('format = { kind = "rows", header = true }', "a" + "," * 200_000, "undecoded"),
        ('format = { kind = "rows", columns = ["t"] }', "1" + "," * 200_000, "undecoded"),
        ('inside = { d = { kind = "rows", columns = ["a"] } }', {"d": [[1], 2]}, "undecoded"),
        ('inside = { d = "columns" }', {"d": {"a": [1], "b": [1, 2]}}, "undecoded"),
    ],
)  # fmt: skip
def test_hostile_texts_are_refused(toml: str, document: object, reason: str) -> None:
    decoded = decode(toml, document)
    refused = decoded if isinstance(decoded, Reject) else decoded.rejects[0]
    if reason == "bad_encoding" and isinstance(document, dict) and document.get("a") == "A" * 200_000:
        # A long run of zero bytes: no bomb, for base64 only shrinks.
        assert refused.reason.value in ("bad_encoding", "bad_json")
    else:
        assert refused.reason.value == reason
    assert len(refused.got or "") <= 200
    assert len(refused.wanted or "") <= 200


KINDS = ['format = { kind = "rows", columns = ["t", "h?"] }', 'format = { kind = "rows", header = true }', ULTRALIGHT,
         'format = "pairs"', 'format = "ndjson"', SMARTREST, 'inside = { a = "auto" }',
         'format = { kind = "json", encoding = "base64" }']  # fmt: skip


@given(st.sampled_from(KINDS), st.text(alphabet='ab019=|,#;"{}[]:\n\r \\.-é', max_size=60))
def test_any_text_gives_readings_or_a_refusal(toml: str, text: str) -> None:
    decoded = decode(toml, text)
    for one in decoded if isinstance(decoded, list) else [decoded]:
        assert isinstance(one, Decoded | Reject)


# Wrong settings are sentences.


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('format = "xml"', "'json', 'ndjson', 'influx', 'rows', 'pairs'"),
        ('format = "rows"', "rows need either `columns` with the names of the cells or `header = true`"),
        ('format = { kind = "rows", columns = ["a"], header = true }', ", not both"),
        ('format = { kind = "json", separator = ";" }', "separator belongs to the kinds rows and pairs, not to json"),
        ('format = "columns"', "the kind columns is only for text inside a message"),
        ('format = { kind = "rows", columns = ["a", "a"] }', "two columns are named 'a'"),
        ('format = { kind = "rows", columns = ["a?", "b"] }', "must come after those that may not"),
        ('format = { kind = "rows", columns = [["a"], "b"] }', "only one group of columns, at its end"),
        ('format = { kind = "rows", columns = ["a", []] }', "a group needs at least one column"),
        ('format = { kind = "rows", columns = ["a"], decimal = "," }', "separator and decimal are both ','"),
        ('inside = { a = { kind = "columns", encoding = "hex" } }', "columns are not text"),
        ('inside = { a = { kind = "pairs", columns = { "1" = ["a"] } } }', "a list of names"),
        ('numbers = { v = { scale = "1/0" } }', "'1/0' is not a factor"),
        ('numbers = { v = { scale = "nan" } }', "'nan' is not a factor"),
        ('numbers = { v = { scale = "1e99999999" } }', "is not a factor"),
        ('numbers = { v = { scale = 0 } }', "a scale of 0"),
        ('numbers = { v = { text = "x" } }', "use {number} once"),
        ('numbers = { v = { text = "a*{number}" } }', "* only at the beginning or the end"),
        ('numbers = { v = { pattern = "(a+)+" } }', "pattern"),
        ('quality = { path = "q", good = [] }', "good"),
        ('time_offset = { unit = "s" }', "set either `path` (the offset"),
        ('time_offset = { path = "t", step = "u" }', ", not both"),
        ('time_offset = { path = "t", unit = "days" }', "'us', 'ms', 's', 'min' or 'h'"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_in_words(toml: str, wanted: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MappingSettings.model_validate(tomllib.loads(toml))
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "wanted"),
    [
        ('inside = { "a..b" = "json" }', "is not a path"),
        ('items = "vals[]."', "nothing follows the last dot"),
        ('rename = { v = "{.n" }', "has an unmatched brace"),
        ('prefix = ".n}"', "has an unmatched brace"),
        ('message_id = "{.a|0}"', "a number of characters, 1 to 99"),
        ('message_id = "{.a|b}"', "a number of characters, 1 to 99"),
        ('items = "^.a"', "^ is only allowed in templates, times and units"),
        ('quality = { path = "a[]", good = ["1"] }', "* and [] are only allowed in `items` and `inside`"),
    ],
)
def test_wrong_paths_are_refused_in_words(toml: str, wanted: str) -> None:
    with pytest.raises(BadPath, match=re.escape(wanted)):
        CompiledMapping(MappingSettings.model_validate(tomllib.loads(toml)))
