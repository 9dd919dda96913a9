"""Dead letters within their bounds, and exactly one outcome whatever comes; nothing a device sends raises."""

import base64
import hashlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dead_letters import MAX_PARTS, shrink_dead_letter
from gateway.decoders import registry
from gateway.message_processor import Outcome
from ingest.contract.dead_letter import decode_dead_letter
from tests.support.naughty import NAUGHTY
from tests.support.outcome import (
    LIMITS,
    NATIVE,
    decide,
    letters_of,
    native,
    record_of,
    stored,
)

# Dead letters.


def test_a_large_payload_is_kept_to_the_limit_and_told_by_length_and_hash() -> None:
    payload = b"x" * (LIMITS.max_payload_bytes + 1)
    outcome = decide(NATIVE, payload)
    [letter] = letters_of(outcome)
    assert (letter.reason, letter.payload_bytes) == ("too_large", len(payload))
    assert base64.b64decode(letter.payload_base64) == payload[: 64 * 1024]
    assert letter.payload_sha256 == hashlib.sha256(payload).hexdigest()


def test_many_bad_fields_of_a_large_message_stay_bounded() -> None:
    values = {f"bad{n}": None for n in range(5000)} | {"good": 1, "pad": "x" * 100_000}
    outcome = decide(NATIVE, native(values))
    letters = letters_of(outcome)
    assert len(letters) == MAX_PARTS
    assert letters[-1].got == "4901 more parts rejected"
    assert len(outcome.parts) == 5000
    assert sum(len(record.value) for record in outcome.records) < 4 * LIMITS.max_payload_bytes
    assert base64.b64decode(letters[0].payload_base64) == native(values)
    assert letters[50].payload_sha256


def test_a_dead_letter_shrinks_in_three_steps_and_then_says_so() -> None:
    topic = b"nowhere/" + b"x" * 5000
    record = decide(topic, b"y" * 200_000).records[0]
    sizes = [len(record.value)]
    while (smaller := shrink_dead_letter(record)) is not None:
        record = smaller
        sizes.append(len(record.value))
    assert len(sizes) == 4, "64 KiB of payload, none, a cut topic"
    assert sizes == sorted(sizes, reverse=True)
    letter = decode_dead_letter(record.value)
    assert letter.payload_sha256 == hashlib.sha256(b"y" * 200_000).hexdigest()
    assert letter.payload_bytes == 200_000


def test_a_fault_inside_a_decoder_is_a_dead_letter_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom\n\x1b[31m")

    monkeypatch.setitem(registry._PURE, "native", broken)
    outcome = decide(NATIVE, native())
    assert outcome.rejected == "internal_error"
    [letter] = letters_of(outcome)
    assert base64.b64decode(letter.payload_base64) == native()
    assert letter.got is not None
    assert "boom" in letter.got
    assert "\n" not in letter.got


# Whatever comes: exactly one outcome, and bombs are cheap.


def outcomes_of(outcome: Outcome) -> int:
    return outcome.accepted + (outcome.rejected is not None) + (outcome.ignored is not None)


topics = st.sampled_from([NATIVE, b"site/a/b", b"j/a/b", b"p/a/b"]) | st.binary(max_size=30)
almost = st.text(alphabet='{}[]":,\\utdeE+-.0123456789nalsf valuestbqo', max_size=80).map(str.encode)


@given(topics, st.binary(max_size=80) | almost | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_random_bytes_have_exactly_one_outcome(topic: bytes, payload: bytes) -> None:
    outcome = decide(topic, payload)
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"
    if outcome.accepted:
        for reading in record_of(outcome).readings:
            assert reading.value is not None or reading.text is not None


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(max_size=6)
    | st.fixed_dictionaries(
        {"value": st.integers() | st.none()}, optional={"unit": st.text(max_size=3) | st.integers()}
    )
)
items = st.fixed_dictionaries(
    {"values": st.dictionaries(st.text(max_size=6), leaves, max_size=5) | leaves},
    optional={"ts": leaves, "boot": leaves, "seq": leaves, "x": leaves},
)


@given(st.sampled_from([NATIVE, b"site/a/b"]), items | st.lists(items | leaves, max_size=4))
def test_almost_native_documents_have_exactly_one_outcome(topic: bytes, document: object) -> None:
    outcome = decide(topic, json.dumps(document).encode())
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 250_000,
        b'{"values":{' + b",".join(b'"m%d":null' % n for n in range(18_000)) + b"}}",
        b'{"values":{' + b",".join(b'"m%d":null' % n for n in range(9_999)) + b"}}",
        b'{"values":{"m":' + b"9" * 250_000 + b"}}",
        b'{"values":{"' + b"k" * 250_000 + b'":1}}',
        b'{"a":' * 31 + b"1" + b"}" * 31,
        b"[" + b"[]," * 80_000 + b"[]]",
        b"1" * 250_000,
        b"1," * 125_000 + b"1",
        b" " * 250_000,
    ],
    ids=["depth", "18k nulls", "10k nulls", "digits", "key", "objects", "wide", "plain digits", "commas", "blanks"],
)
@pytest.mark.parametrize("topic", [NATIVE, b"site/a/b", b"p/a/b"])
def test_bombs_have_one_outcome_soon(topic: bytes, payload: bytes) -> None:
    started = time.process_time()
    outcome = decide(topic, payload)
    # No speed goal: a quadratic parse of these takes minutes.
    assert time.process_time() - started < 10
    assert outcomes_of(outcome) == 1
    assert outcome.rejected != "internal_error"


def test_naughty_strings_as_device_metric_and_text() -> None:
    for text in NAUGHTY:
        topic = f"tidegate/v1/{text}/readings".encode()
        for outcome in (
            decide(topic, native()),
            decide(NATIVE, native({text: 1, "good": 1})),
            decide(NATIVE, native({"m": text})),
            decide(b"j/a/b", json.dumps({text: text, "good": 1}).encode()),
            decide(b"p/a/b", text.encode()),
            decide(b"p/a/" + text.encode(), b"1"),
        ):
            assert outcomes_of(outcome) == 1, text
            assert outcome.rejected != "internal_error", text
        assert stored(decide(NATIVE, native({"m": text}))) == {"m": text}
