"""Good payloads bent: bytes flipped, cut, doubled, spliced; and where it is JSON, its values and keys exchanged.

All chance comes from the `Random` that is given, so a fuzzer or a property test can repeat what it found.
"""

import gzip
import json
import zlib
from random import Random
from typing import Any, Final

__all__ = ["bend"]

_RAW: Final = (
    "null", "true", "0", "-0.0", "-1", "1e400", "-1e400", "1e-400", "NaN", "Infinity", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" * 400,
    "0.1e1", "1764331199", "1764331199123", "100000000000", "253402300800000", "-62135596801", "4294967295", "65535",
    '""', '" "', '"NaN"', '"null"', '"unavailable"', '"0x1F"', '"12,5"', '"1e999"', '"\\u0000"', '"\\ud800"',
    '"a\\nb"', '"2025-02-30T00:00:00Z"', '"2025-11-28T12:00:00"', '"9999-12-31T23:59:59.999999999+23:59"',
    '"0001-01-01T00:00:00+23:59"', '"' + "x" * 600 + '"', '"/w=="', '"AAAA"', '"ff00"', '"f"', "[]", "{}", "[[]]",
    '{"value":1}', '{"value":null,"unit":"C"}', '{"value":1,"unit":5}', "[1,2,3]", '{"":1}', '{"a":1,"a":2}',
)  # fmt: skip
"""JSON texts that have confused somebody."""
_CHUNKS: Final = (
    b"\x00", b"\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\\", b'"', b",", b":", b"=", b" ",
    b"[", b"]", b"{", b"}", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x7f\xff\xff\xff",
    b"\x9f", b"\xbf", b"\xdb", b"\x1f\x8b\x08\x00", b"i", b"u", b"e", b"-", b"9" * 20, b"0" * 20,
)  # fmt: skip
_MARK: Final = "\x01%d\x01"


def bend(random: Random, payload: bytes, other: bytes) -> bytes:
    """The payload after one to four changes; `other` gives pieces to splice in. Of gzip, what is inside is bent."""
    inside = _unpack(payload)
    if inside is not None and random.random() < 0.8:
        return gzip.compress(bend(random, inside, _unpack(other) or other), 1, mtime=0)
    for _ in range(random.choice((1, 1, 2, 4))):
        bent = _bend_json(random, payload) if random.random() < 0.6 else None
        payload = _bend_bytes(random, payload, other) if bent is None else bent
    return payload


def _unpack(payload: bytes) -> bytes | None:
    if not payload.startswith(b"\x1f\x8b"):
        return None
    try:
        return zlib.decompressobj(31).decompress(payload, 65_536)
    except zlib.error:
        return None


def _bend_bytes(random: Random, payload: bytes, other: bytes) -> bytes:  # noqa: PLR0911 - one per kind of change
    at, to = sorted((random.randint(0, len(payload)), random.randint(0, len(payload))))
    match random.randrange(8):
        case 0:
            return payload[:at] + bytes([random.randrange(256)]) + payload[at + 1 :]
        case 1:
            return payload[:at] + random.choice(_CHUNKS) + payload[at:]
        case 2:
            return payload[:at] + payload[to:]
        case 3:
            return payload[:to] + payload[at:to] * random.choice((1, 1, 2, 40)) + payload[to:]
        case 4:
            return payload[:at]
        case 5:
            start = random.randint(0, len(other))
            return payload[:at] + other[start : start + 40] + payload[to:]
        case 6 if at < len(payload):
            return payload[:at] + bytes([payload[at] ^ (1 << random.randrange(8))]) + payload[at + 1 :]
        case _:
            return payload[:at] + random.choice(_RAW).encode() + payload[to:]


def _bend_json(random: Random, payload: bytes) -> bytes | None:
    """One node of the document exchanged, dropped, renamed, doubled or moved; None where it is none, or too deep."""
    try:
        return _bend_node(random, json.loads(payload))
    except (ValueError, RecursionError):
        return None


def _bend_node(random: Random, document: Any) -> bytes:
    holder: list[Any] = [document]
    parent, key = random.choice(_places(holder))
    value = parent[key]
    match random.randrange(8):
        case 5 if isinstance(value, str) and value:
            at = random.randrange(len(value))
            parent[key] = value[:at] + random.choice("0fF9-+.eZ:/ ") + value[at + random.randrange(2) :]
        case 0 if parent is not holder:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[
                random.choice((f"{key}x", "", "ts", "time", "value", "unit", str(key).upper(), "a.b", "n" * 600))
            ] = value
        case 2:
            parent[key] = [value, value]
        case 3:
            parent[key] = {str(key): value}
        case 4:
            source, name = random.choice(_places(holder))
            parent[key] = json.loads(json.dumps(source[name]))
        case _:
            choice = random.randrange(len(_RAW))
            parent[key] = _MARK % choice
            text = json.dumps(holder[0], ensure_ascii=False)
            return text.replace(json.dumps(_MARK % choice), _RAW[choice]).encode("utf-8", "surrogatepass")
    return json.dumps(holder[0], ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")


def _places(holder: list[Any]) -> list[tuple[Any, Any]]:
    """Every node by its parent and key, the whole document first."""
    found: list[tuple[Any, Any]] = [(holder, 0)]
    for parent, key in found:
        node = parent[key]
        if isinstance(node, dict):
            found += [(node, name) for name in node]
        elif isinstance(node, list):
            found += [(node, index) for index in range(len(node))]
        if len(found) > 2000:
            break
    return found
