"""Payloads made to cost far more than their size: by name, made when asked for, at most about 256 KiB each.

Tests declare what becomes of each (tests/unit/gateway/hostile/outcomes.toml); `make chaos` also asks how long it took.
"""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Final

__all__ = ["BOMBS", "make_bomb"]

SIZE_BYTES: Final = 250_000


def _values(inner: bytes) -> bytes:
    return b'{"values":{' + inner + b"}}"


def _members(count: int, value: str) -> bytes:
    return ",".join(f'"m{number}":{value}' for number in range(count)).encode()


def _nested(opening: bytes, inner: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + inner + closing * depth


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])


def _protobuf_nested(depth: int) -> bytes:
    """Field 2, length-delimited, around itself: as a Sparkplug metric that holds a template that holds metrics."""
    inner = b"\x08\x01"
    for _ in range(depth):
        inner = b"\x12" + _varint(len(inner)) + inner
    return inner


def _gzip_bomb(inner: bytes) -> bytes:
    return gzip.compress(inner, 9, mtime=0)


def _deflated_in_deflated() -> bytes:
    """A gigabyte in a few hundred bytes: zeros compressed three times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    once = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    return _gzip_bomb(_gzip_bomb(once))


def _readings(count: int) -> bytes:
    return _values(_members(count, "1.5"))


def _one_name(parts: int) -> str:
    """An object in which each of 2 ** (parts - 1) values flattens to the same name."""
    members = [f'"{".".join("a" * first)}":{_one_name(parts - first)}' for first in range(1, parts)]
    return "{" + ",".join([*members, f'"{".".join("a" * parts)}":1']) + "}"


def _one_bad_of_100(good: str, bad: str) -> bytes:
    return f"[{','.join(bad if number == 7 else good % number for number in range(100))}]".encode()


BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "readings 10000": lambda: _readings(10_000),
    "readings 10001": lambda: _readings(10_001),
    "numbers 10000": lambda: b"{" + _members(10_000, "1") + b"}",
    "numbers 10001": lambda: b"{" + _members(10_001, "1") + b"}",
    "batch with one bad of 100": lambda: _one_bad_of_100('{"values":{"m":%d}}', '{"values":{"m":null}}'),
    "items with one bad of 100": lambda: _one_bad_of_100('{"m":%d}', '{"ts":"soon","m":7}'),
    "depth 32": lambda: _nested(b"[", b"1", b"]", 32),
    "depth 33": lambda: _nested(b"[", b"1", b"]", 33),
    "depth 65": lambda: _nested(b'{"a":', b"1", b"}", 65),
    "depth 1k": lambda: _nested(b'{"a":', b"1", b"}", 1000),
    "depth 100k": lambda: _nested(b"[", b"", b"]", 100_000),
    "depth open": lambda: b"[" * SIZE_BYTES,
    "depth open objects": lambda: b'{"a":' * (SIZE_BYTES // 5),
    "depth in values": lambda: _values(b'"m":' + _nested(b"[", b"", b"]", 100_000)),
    "depth mixed": lambda: _nested(b'[{"a":', b"1", b"}]", 25_000),
    "depth in text": lambda: json.dumps({"values": {"m": "[" * 200_000}}).encode(),
    "keys 20k": lambda: b"{" + _members(20_000, "1") + b"}",
    "keys 20k values": lambda: _values(_members(20_000, "1")),
    "keys 9999 null": lambda: _values(_members(9_999, "null")),
    "keys 9999 NaN": lambda: _values(_members(9_999, "NaN")),
    "keys 9999 bad units": lambda: _values(_members(9_999, '{"value":1,"unit":2}')),
    "keys all one": lambda: b"{" + b'"a":1,' * 40_000 + b'"a":2}',
    "keys of offsets": lambda: b"{" + _members(4_900, "[0,1]") + b"}",
    "keys that collide": lambda: b"{" + b",".join(b'"%d":1' % (n * (2**61 - 1)) for n in range(9_000)) + b"}",
    "keys of arrays of a time": lambda: b"{" + _members(9_999, "[1764331200]") + b"}",
    "keys of rows with times": lambda: b"{" + _members(2_000, '[["2026-11-28T18:20:00Z",1]]') + b"}",
    "one name 8192 times": lambda: _one_name(14).encode(),
    "key 64 KiB": lambda: _values(b'"' + b"k" * 65_536 + b'":1'),
    "key 250 kB": lambda: _values(b'"' + b"k" * SIZE_BYTES + b'":1'),
    "key 512": lambda: _values(b'"' + b"k" * 512 + b'":1'),
    "key 513": lambda: _values(b'"' + b"k" * 513 + b'":1'),
    "key over many": lambda: b'{"' + b"k" * 128_000 + b'":[' + b",".join([b"1"] * 10_000) + b"]}",
    "long keys nested": lambda: _nested(b'{"' + b"k" * 5000 + b'":', b"1", b"}", 30),
    "text 1 MiB": lambda: b'"' + b"x" * (1 << 20) + b'"',
    "text 1000033": lambda: b"x" * 1_000_033,
    "text 256 KiB": lambda: b"x" * (256 << 10),
    "text 256 KiB + 1": lambda: b"x" * ((256 << 10) + 1),
    "text 250 kB": lambda: _values(b'"m":"' + b"x" * SIZE_BYTES + b'"'),
    "text of escapes": lambda: _values(b'"m":"' + b"\\u0041" * 40_000 + b'"'),
    "text of colons": lambda: _values(b'"m":"' + b":" * SIZE_BYTES + b'"'),
    "text of surrogates": lambda: _values(b'"m":"' + b"\\ud83c\\udf0a" * 20_000 + b'"'),
    "text unclosed": lambda: b'{"values":{"m":"' + b"\\" * SIZE_BYTES,
    "digits 5000": lambda: _values(b'"m":' + b"1" * 5000),
    "digits 250k": lambda: _values(b'"m":' + b"9" * SIZE_BYTES),
    "digits 250k bare": lambda: b"1" * SIZE_BYTES,
    "digits of a fraction": lambda: _values(b'"m":0.' + b"0" * SIZE_BYTES + b"1"),
    "digits of an exponent": lambda: _values(b'"m":1e' + b"9" * SIZE_BYTES),
    "digits many 300": lambda: b"[" + b",".join([b"9" * 300] * 800) + b"]",
    "digits in ts": lambda: b'{"ts":' + b"9" * SIZE_BYTES + b',"values":{"m":1}}',
    "digits in ts text": lambda: b'{"ts":"' + b"9" * SIZE_BYTES + b'","values":{"m":1}}',
    "fraction in ts text": lambda: b'{"ts":"2025-11-28T12:00:00.' + b"9" * SIZE_BYTES + b'Z","values":{"m":1}}',
    "wide empty arrays": lambda: b"[" + b"[]," * 80_000 + b"[]]",
    "wide empty objects": lambda: b"[" + b"{}," * 80_000 + b"{}]",
    "wide numbers": lambda: b"[" + b"1," * 120_000 + b"1]",
    "wide bad items": lambda: b"[" + b"1," * 9_998 + b"1]",
    "wide bad times": lambda: b"[" + b",".join([b'{"ts":0,"values":{"m":1}}'] * 9_000) + b"]",
    "wide same counters": lambda: b"[" + b",".join([b'{"boot":1,"seq":1,"values":{"m":1}}'] * 7_000) + b"]",
    "tree": lambda: b"[" + b",".join([b"[[[[[[[[1,1],[1,1]]]]]]]]"] * 9_000) + b"]",
    "blanks": lambda: b" " * SIZE_BYTES,
    "blanks then a digit": lambda: b" " * SIZE_BYTES + b"1",
    "newlines": lambda: b"\n" * SIZE_BYTES,
    "commas": lambda: b"1," * (SIZE_BYTES // 2),
    "thousands": lambda: b"1" + b",000" * (SIZE_BYTES // 4),
    "thousands then a letter": lambda: b"1" + b",000" * (SIZE_BYTES // 4) + b"x",
    "unit letters": lambda: b"1 " + b"a" * SIZE_BYTES,
    "unit signs": lambda: b"1 " + "·*".encode() * (SIZE_BYTES // 4),
    "signs": lambda: b"+-" * (SIZE_BYTES // 2),
    "question marks": lambda: b"?" * SIZE_BYTES + b"x",
    "NUL": lambda: bytes(SIZE_BYTES),
    "0xff": lambda: b"\xff" * SIZE_BYTES,
    "gzip of 64 MiB": lambda: _gzip_bomb(bytes(64 << 20)),
    "gzip of 64 MiB of brackets": lambda: _gzip_bomb(b"[" * (64 << 20)),
    "gzip in gzip in gzip": _deflated_in_deflated,
    "cbor depth": lambda: b"\x81" * SIZE_BYTES,
    "cbor depth indefinite": lambda: b"\x9f" * SIZE_BYTES,
    "cbor tags": lambda: b"\xc1" * SIZE_BYTES + b"\x00",
    "cbor length 2^63": lambda: b"\x9b\x7f" + b"\xff" * 7,
    "cbor text 2^63": lambda: b"\x7b\x7f" + b"\xff" * 7,
    "cbor map 2^32": lambda: b"\xba\xff\xff\xff\xff" + b"\x00" * 1000,
    "cbor bignum": lambda: b"\xc2\x5a" + (200_000).to_bytes(4) + b"\xff" * 200_000,
    "cbor many": lambda: b"\x9a" + (240_000).to_bytes(4) + b"\xa0" * 240_000,
    "protobuf depth": lambda: _protobuf_nested(20_000),
    "protobuf depth groups": lambda: b"\x13" * SIZE_BYTES,
    "protobuf length 2^63": lambda: b"\x12" + b"\xff" * 8 + b"\x7f",
    "protobuf varint unending": lambda: b"\x08" + b"\xff" * SIZE_BYTES,
    "protobuf many empty metrics": lambda: b"\x12\x00" * (SIZE_BYTES // 2),
    "lines": lambda: b"m v=1\n" * (SIZE_BYTES // 6),
    "line of tags": lambda: b"m" + b",t=1" * (SIZE_BYTES // 4) + b" v=1",
    "line of escapes": lambda: b"\\ " * (SIZE_BYTES // 2),
    "line of quotes": lambda: b'm v="' + b'\\"' * (SIZE_BYTES // 2),
    "hex text": lambda: b'{"data":"' + b"ff" * (SIZE_BYTES // 2) + b'"}',
    "base64 text": lambda: b'{"data":"' + b"/" * SIZE_BYTES + b'"}',
    "senml records": lambda: b"[" + b",".join([b'{"n":"a","v":1}'] * 9_900) + b"]",
    "senml base names": lambda: b"[" + b",".join([b'{"bn":"' + b"a" * 200 + b'"}'] * 1_100) + b"]",
}
"""Name to maker. Each stays under the default `max_payload_bytes` but for `text 1 MiB` and `depth in …`."""


def make_bomb(name: str) -> bytes:
    """The bytes of one bomb; KeyError where no such one is."""
    return BOMBS[name]()
