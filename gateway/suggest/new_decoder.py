"""Text of a new decoder file and of its test, for `tidegate route new NAME`."""

from typing import Final

__all__ = ["decoder_text", "route_text", "test_text"]

_DECODER: Final = '''"""Decoder {name}: bytes to readings. The gateway reloads this file within a second of a change."""


def decode(topic: str, payload: bytes) -> dict | list | None:
    """Return the readings of one message, or None for a message without readings.

    The readings are {{"values": {{metric: value}}}}, or a list of such objects. A value is a number, text, boolean or
    {{"value": …, "unit": …}}.
    Optional next to "values": "ts" (epoch or ISO 8601), "device" (default: the route's) and "id", by which a copy of the
    message is recognised. An exception turns the message into a dead letter with the text of the exception.
    """
    if len(payload) != 4:
        raise ValueError(f"4 bytes wanted, got {{len(payload)}}")
    temperature = int.from_bytes(payload[:2], "big", signed=True) / 10
    humidity = int.from_bytes(payload[2:], "big") / 10
    return {{
        "values": {{
            "temperature": {{"value": temperature, "unit": "°C"}},
            "humidity": {{"value": humidity, "unit": "%"}},
        }}
    }}
'''
_TEST: Final = '''"""Test of the decoder {name}: `python -m pytest {file}`. Put real messages of the device here."""

import pytest
from {name} import decode


def test_a_message() -> None:
    found = decode("site/{name}/device-1", bytes.fromhex("00d7 0190"))
    assert found == {{
        "values": {{"temperature": {{"value": 21.5, "unit": "°C"}}, "humidity": {{"value": 40.0, "unit": "%"}}}}
    }}


def test_a_message_that_is_cut_short() -> None:
    with pytest.raises(ValueError, match="got 1"):
        decode("site/{name}/device-1", b"\\x00")
'''
_ROUTE: Final = """[[routes]]
filter = "site/{name}/{{device}}"
device = "{{device}}"
decoder = "{name}"
"""


def decoder_text(name: str) -> str:
    """Return a working decoder, to be changed."""
    return _DECODER.format(name=name)


def test_text(name: str, file: str) -> str:
    """Return its test."""
    return _TEST.format(name=name, file=file)


def route_text(name: str) -> str:
    """Return a route that names it."""
    return _ROUTE.format(name=name)
