"""Spellings of numbers: read, refused, or real text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from tests.support.outcome import decide, letters_of, record_of, stored

READ = [
    ("1,016.76", 1016.76, None),
    ("-12,345,678.9", -12345678.9, None),
    ("1'000.5", 1000.5, None),
    ("1\u2019000", 1000.0, None),
    ("1\u202f016", 1016.0, None),
    ("1 000.5", 1000.5, None),
    ("1,016.76 hPa", 1016.76, "hPa"),
    ("21.5;", 21.5, None),
    ("21.5 ;\r\n", 21.5, None),
    ("21.5,", 21.5, None),
    ("21.5 \u2103", 21.5, "°C"),
    ("70\u2109", 70.0, "°F"),
    ("\u00a021.5\u00a0°C", 21.5, "°C"),
    ("\u200e21.5\u200b", 21.5, None),
    (" 21.5 ", 21.5, None),
    ("+21.5", 21.5, None),
    ("1e3", 1000.0, None),
    ("1.5E+03", 1500.0, None),
    ("\uff12\uff11\uff0e\uff15", 21.5, None),
    ("\u0662\u0661\u066b\u0665", 21.5, None),
    ("\u221221.5", -21.5, None),
    ("55 % RH", 55.0, "% RH"),
    ("21.5degC", 21.5, "degC"),
    ("12 €", 12.0, "€"),
    ("- 21.5", -21.5, None),
    ("'21.5'", 21.5, None),
    ("21.5 &deg;C", 21.5, "°C"),
    ("21.5\u02daC", 21.5, "°C"),
    ("12.5 m3", 12.5, "m3"),
    ("3.2m3/h", 3.2, "m3/h"),
    ("830 W/m2", 830.0, "W/m2"),
    ("15ug/m3", 15.0, "ug/m3"),
    ("230VAC", 230.0, "VAC"),
    ("350lux", 350.0, "lux"),
    ("001234.567*kWh", 1234.567, "kWh"),
    ("(00123.456*m3)", 123.456, "m³"),
    ("00.345*kW", 0.345, "kW"),
]
REFUSED = [
    "21,5", "1,016", "1.234,5", "1,016,000", "21,5 °C", "1,5e3", "0x1F", "0b101", "1 016", "12 345 kWh", "<5", ">= 21.5 °C",
    "~21", "21.5-", "--5", "21.5.", "21..5", "2 x 10^3", "$5", "21.5 ± 0.3", "21½", "(21.5)", ",5", "21!",
    "1.#QNAN", "-1.#IND", "NaN °C", "NaN", "inf", "1e400",
]  # fmt: skip
TEXT = [
    "on", "heat", "v1.2.3", "1.2.3", "12:30", "2025-11-28", "28.11.2025", "192.168.1.7", "fe80::1", "aa:bb:cc:00:11:22",
    "00-11-22-33-44-55", "00000511AA39", "10-20", "030 123 456", "e5", "1.234.567", "1;2;3", "12 monkeys and more",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "unit"), READ)
def test_spellings_that_are_read(text: str, value: float, unit: str | None) -> None:
    [reading] = record_of(decide(b"p/dev/metric", text.encode())).readings
    assert (reading.value, reading.text, reading.unit) == (value, None, unit)


@pytest.mark.parametrize("text", REFUSED)
def test_spellings_that_are_refused(text: str) -> None:
    [letter] = letters_of(decide(b"p/dev/metric", text.encode()))
    assert (letter.reason, letter.got) == ("bad_number", text)
    assert re.search(r"number|decimal point", letter.wanted or "")


@pytest.mark.parametrize("text", TEXT)
def test_real_text_stays_text(text: str) -> None:
    assert stored(decide(b"p/dev/metric", text.encode())) == {"metric": text}
    assert stored(decide(b"j/dev/state", json.dumps({"metric": text}).encode())) == {"metric": text}


@pytest.mark.parametrize("text", ["--", "-", "???", "N/A", "null", "unavailable", "\u2013"])
def test_texts_that_say_that_there_is_no_value(text: str) -> None:
    assert decide(b"p/dev/metric", text.encode()).ignored == "no_value"
    assert decide(b"j/dev/state", json.dumps({"metric": text}).encode()).ignored == "no_value"


@given(st.from_regex(r"[-+ .,;'<>=~0-9a-fxE%°C\u00a0\u0660-\u0669]{1,20}", fullmatch=True))
def test_digits_and_signs_alone_are_never_a_text_without_a_number(text: str) -> None:
    """What a float of Python reads is a number here too, and the same one."""
    outcome = decide(b"p/dev/metric", text.encode())
    try:
        number = float(text)
    except ValueError:
        return
    assert record_of(outcome).readings[0].value == number


@given(st.floats(-1e12, 1e12, allow_nan=False), st.sampled_from(["{:,.2f}", "{:.3f}", "{:e}", " {:+.1f};"]))
def test_formatted_numbers_are_read(number: float, how: str) -> None:
    text = how.format(number)
    [reading] = record_of(decide(b"p/dev/m", text.encode())).readings
    assert reading.value == float(text.replace(",", "").rstrip(";"))


# Numbers in text, on generic routes.


def by_route(payload: object, **settings: object) -> Outcome:
    routes = compile_routes((RouteSettings(filter="#", **settings),))  # type: ignore[arg-type]
    message = Message(1, 1000, 1_764_331_200_000_000, b"esp/dev/state", json.dumps(payload).encode())
    return MessageProcessor(routes, GatewaySettings()).decide(message)


def test_a_number_in_a_text_is_a_number_with_a_flag() -> None:
    record = record_of(
        by_route({"temperature": "21.5", "humidity": "45 %", "u": "230.1V", "n": 3, "deep": [{"v": "-1e2"}]})
    )
    assert [(r.metric, r.value, r.unit, r.flags) for r in record.readings] == [
        ("temperature", 21.5, None, ["numeric_text"]),
        ("humidity", 45.0, "%", ["numeric_text"]),
        ("u", 230.1, "V", ["numeric_text"]),
        ("n", 3.0, None, None),
        ("deep[0].v", -100.0, None, ["numeric_text"]),
    ]


def test_a_route_may_turn_it_off_or_say_where() -> None:
    assert stored(by_route({"a": "21.5", "b": "5"}, numeric_text=[])) == {"a": "21.5", "b": "5"}
    assert stored(by_route({"a": "21.5", "b": "5"}, numeric_text=["a"])) == {"a": 21.5, "b": "5"}


@pytest.mark.parametrize(
    ("name", "text", "value", "unit"),
    [
        ("voltage", "230V", 230, "V"), ("current_l1", "5A", 5, "A"), ("activePower", "-60W", -60, "W"), ("temp", "21C", 21, "C"),
        ("distance", "12m", 12, "m"), ("flow", "3.2 m3/h", 3.2, "m3/h"), ("uptime", "300s", 300, "s"),
    ],
)  # fmt: skip
def test_a_letter_behind_an_integer_is_a_unit_where_the_name_says_the_quantity(
    name: str, text: str, value: float, unit: str
) -> None:
    [reading] = record_of(by_route({name: text})).readings
    assert (reading.value, reading.text, reading.unit) == (value, None, unit)


@pytest.mark.parametrize(
    ("topic", "payload", "wanted"),
    [
        ("zigbee2mqtt/plug", {"power": "12.5", "energy": "1,016.76", "state": "ON"},
         {"power": 12.5, "energy": 1016.76, "state": "ON"}),
        ("tele/t1/SENSOR", {"Time": "2026-11-28T21:06:40", "ENERGY": {"Total": "12.3"}}, {"ENERGY.Total": 12.3}),
        ("v1/gateway/telemetry", {"A": [{"ts": 1795900000000, "values": {"t": "42.5"}}]}, {"t": 42.5}),
        ("N/c0619ab/battery/512/Dc/0/Voltage", {"value": "12.5"}, {"Dc/0/Voltage": 12.5}),
        ("inverter/HM-600/ch0", {"U_AC": "230.1"}, {"ch0.U_AC": 230.1}),
        ("iobroker/hm-rpc/0/x/T", {"val": "21.5", "ts": 1795900000000}, {"x/T": 21.5}),
        ("ems-esp/boiler_data", {"outdoortemp": "7.1"}, {"outdoortemp": 7.1}),
        ("telegraf/h1/cpu", {"fields": {"u": "12.5"}, "name": "cpu", "tags": {}, "timestamp": 1795900000}, {"cpu.u": 12.5}),
        ("rtl_433/pi/events", {"time": "2026-11-28T21:06:40Z", "model": "A", "id": 3, "temperature_C": "21.5"},
         {"temperature_C": 21.5}),
        ("wmbusmeters/w1", {"media": "water", "name": "w1", "id": "12345678", "total_m3": "123.45"}, {"total_m3": 123.45}),
        ("owntracks/u/p", {"_type": "location", "tst": 1795900000, "lat": "10.2", "lon": "-20.7"}, {"lat": 10.2, "lon": -20.7}),
        ("netmore/x", [{"devEui": "a840410000ab", "timestamp": "2026-11-28T21:06:40Z", "payload": {"V": "3.6", "Temp": "-12.3"}}],
         {"V": 3.6, "Temp": -12.3}),
    ],
)  # fmt: skip
def test_a_number_in_a_text_of_a_shipped_format_is_a_number(
    topic: str, payload: object, wanted: dict[str, object]
) -> None:
    limits = GatewaySettings(zone="Europe/Berlin")
    message = Message(1, 1000, 1_796_000_000_000_000, topic.encode(), json.dumps(payload).encode())
    outcome = MessageProcessor(compile_routes((), limits), limits).decide(message)
    assert stored(outcome) == wanted
    flagged = {one.metric for one in record_of(outcome).readings if one.flags and "numeric_text" in one.flags}
    assert flagged == {metric for metric, value in wanted.items() if not isinstance(value, str)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "007"), ("x", "-05"), ("x", "490154203237518"), ("x", "89490200001234567890"), ("x", "+491711234567"),
        ("x", "24h"), ("x", "4K"), ("phase", "5A"), ("x", "230V"), ("lamp", "60W"),
        ("x", "01.02"), ("x", "00042"),
        ("date", "20251128"), ("x", "3 dogs"), ("x", "0x1F"), ("x", "555 123 4567"),
        ("serial", "12345"), ("fw", "1.10"), ("SML.Meter_Number", "1234567890"),
        ("device.swVersion", "2.0"), ("meta/deviceId", "17"), ("ip", "10"), ("pin", "1234"), ("x", "1.2.3"), ("x", "12:30"),
    ],
)  # fmt: skip
def test_names_that_look_like_numbers_stay_text(name: str, text: str) -> None:
    assert stored(by_route({name: text})) == {name: text}


def test_what_is_no_number_by_the_rule_costs_its_field() -> None:
    outcome = by_route({"a": "21,5", "b": "21.5"})
    assert stored(outcome) == {"b": 21.5}
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.path, letter.got, letter.partial) == ("bad_number", "$.a", "21,5", True)


# What stands around JSON.


@pytest.mark.parametrize("topic", [b"j/dev/state", b"site/dev/state", b"tidegate/v1/dev/readings"])
def test_a_byte_order_mark_is_read_over(topic: bytes) -> None:
    outcome = decide(topic, b'\xef\xbb\xbf{"values":{"t":21.5}}')
    assert list(stored(outcome).values()) == [21.5]


def test_json_inside_a_json_string_is_read() -> None:
    inside = json.dumps(json.dumps({"t": 21.5, "s": 'a "quoted" one'})).encode()
    outcome = decide(b"site/dev/state", inside)
    assert stored(outcome) == {"t": 21.5, "s": 'a "quoted" one'}
    assert "json_in_text" in (record_of(outcome).flags or [])


@pytest.mark.parametrize("text", ['{"t":21.5', "{t}"])
def test_broken_json_inside_a_json_string_is_refused(text: str) -> None:
    [letter] = letters_of(decide(b"site/dev/state", json.dumps(text).encode()))
    assert (letter.reason, letter.path) == ("bad_json", "$")
    assert "inside the JSON string" in (letter.wanted or "")


def test_a_string_in_brackets_is_text() -> None:
    assert stored(decide(b"site/dev/state", b'"[on]"')) == {"state": "[on]"}


def test_a_string_within_a_string_is_unpacked_once() -> None:
    twice = json.dumps(json.dumps(json.dumps({"t": 1}))).encode()
    assert list(stored(decide(b"site/dev/state", twice)).values()) == [json.dumps(json.dumps({"t": 1}))]
