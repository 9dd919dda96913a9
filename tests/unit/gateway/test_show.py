"""What a dead letter says that it got: short, safe, and with what a person compares."""

import pytest

from gateway.safe_text import MAX_CHARACTERS, show_value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "an empty object"),
        ({"val": 1}, "an object with the key val"),
        ({"val": 1, "unit": "C"}, "an object with keys val, unit"),
        (dict.fromkeys("abcdefg"), "an object with keys a, b, c, d, e and 2 more"),
        ({"a\nb": 1}, "an object with the key a\\u000ab"),
        ([1, 2], "an array of 2 items"),
        (None, "null"),
        (True, "true"),
    ],
)
def test_a_value_in_a_few_words(value: object, said: str) -> None:
    assert show_value(value) == said


def test_keys_of_any_length_stay_short() -> None:
    said = show_value({"k" * 10_000 + str(number): 1 for number in range(10_000)})
    assert len(said) <= MAX_CHARACTERS
    assert said.startswith("an object with keys kkk")
