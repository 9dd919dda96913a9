"""A profile file: what is one, and what is said where it is none (file, key, wanted, suggestion)."""

from pathlib import Path

import pytest

from gateway.profiles.profile_folder import MAX_FILE_BYTES, BadProfile, parse_profile

GOOD = """
name = "soil"
version = 3
devices = ["soil-*"]
policy = "reject"

[on]
stuck = "flag"

[metrics.temperature]
unit = "°F"
convert_to = "°C"
min = -40
max = 60.5
on = { out_of_range = "flag" }

[metrics."DS18B20-*.Temperature"]
max_step = 5
"""


def test_a_whole_profile() -> None:
    profile = parse_profile(GOOD.replace("\n", "\r\n").encode("utf-8-sig"))
    temperature = profile.metrics["temperature"]
    assert (profile.label, profile.devices, temperature.kind, temperature.max) == (
        "soil@3",
        ("soil-*",),
        "number",
        60.5,
    )
    assert profile.action(temperature, "out_of_range") == "flag", "the metric's own"
    assert profile.action(temperature, "stuck") == "flag", "the profile's for this failure"
    assert profile.action(temperature, "wrong_type") == "reject", "the profile's for all"


def test_a_profile_made_from_traffic_has_a_place_to_say_so() -> None:
    text = GOOD.replace("version = 3", 'version = 3\norigin = "inferred"\nconfidence = 0.9')
    profile = parse_profile(text.encode())
    assert (profile.origin, profile.confidence) == ("inferred", 0.9)
    assert parse_profile(GOOD.encode()).origin == "written"


def minimal(metric: str, head: str = "") -> str:
    return f'name = "p"\nversion = 1\n{head}\n[metrics.t]\n{metric}\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["name is missing", "version is missing", "metrics is missing"]),
        ("name = ", ["not valid TOML"]),
        pytest.param(f"version = {'9' * 6000}", ["not valid TOML"], id="digits"),
        (minimal("maxx = 3"), ["unknown key metrics.t.maxx", "did you mean max?"]),
        (minimal("", head='polisy = "flag"'), ["unknown key polisy", "did you mean policy?"]),
        (minimal("", head='policy = "drop"'), ["policy", "'reject', 'salvage' or 'flag'"]),
        (minimal('on = { out_of_rnge = "flag" }'), ["metrics.t.on.out_of_rnge", "did you mean out_of_range?"]),
        (minimal("min = 5\nmax = 1"), ["metrics.t", "min 5 is above max 1", "swap"]),
        (minimal("min = nan"), ["metrics.t.min", "finite number"]),
        (minimal('min = "3"'), ["metrics.t.min", "valid number", "not '3'"]),
        (minimal("required = 1"), ["metrics.t.required", "valid boolean"]),
        (minimal('unit = "°C"\nconvert_to = "hPa"'), ["'°C' does not convert to hPa", "Pa, MPa"]),
        (minimal('convert_to = "°c"'), ["'°c' is not a listed unit", "did you mean °C?"]),
        (minimal('spellings = { C = "degrees" }'), ["spellings", "'degrees' is not a listed unit"]),
        (minimal('type = "enum"'), ["enum", "values"]),
        (minimal('type = "text"\nmax_step = 2'), ["max_step needs type number or integer, not text"]),
        (minimal("max_step = 0"), ["metrics.t.max_step", "greater than 0"]),
        (minimal("stuck_count = 1"), ["metrics.t.stuck_count", "greater than or equal to 2"]),
        ('name = "p"\nversion = 1\n[metrics."t*"]\nrequired = true\n', ["required needs the name of one metric"]),
        ('name = "p"\nversion = 1\n[metrics."a\\u0000"]\n', ["metrics", "control characters"]),
        ('name = "p/q"\nversion = 1\n[metrics.t]\n', ["name", "pattern"]),
        ('name = "p"\nversion = 0\n[metrics.t]\n', ["version", "greater than or equal to 1"]),
        ('name = "p"\nversion = "1"\n[metrics.t]\n', ["version", "valid integer"]),
        ('name = "p"\nversion = 1\n[metrics]\n', ["metrics"]),
        (minimal("", head='devices = [""]'), ["empty pattern"]),
        (minimal("", head='devices = "a"'), ["devices", "tuple"]),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_key(text: str, told: list[str]) -> None:
    with pytest.raises(BadProfile) as caught:
        parse_profile(text.encode())
    for words in told:
        assert words in str(caught.value)


def test_no_file_of_any_kind_is_more_than_a_refusal(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"a" * (MAX_FILE_BYTES + 1), b"x = " + b"[" * 5000, b"\0", b"name = 1\nname = 2"):
        with pytest.raises(BadProfile):
            parse_profile(content)
