"""Pieces of records, pages of several partitions, a key's partition, and what a look may cost."""

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.read.bounded_reader import BoundedReader, BrowseBudget
from ingest.read.browse import partition_of_key
from ingest.read.partition_walk import HeldBytes, WalkResult, merge_page
from ingest.read.shown_record import RecordPiece, ShownRecord, show_record


def a_record(partition: int, offset: int, at_ms: int | None = None) -> ShownRecord:
    return ShownRecord(partition, offset, offset * 10 if at_ms is None else at_ms, "append", 1, None, (), None)


def places(records: list[ShownRecord]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in records]


@pytest.mark.parametrize(
    ("content", "most", "text", "base64"),
    [
        (b"plain", 9, "plain", None),
        (b"", 9, "", None),
        ("öä".encode(), 3, "ö", None),
        ("👩".encode() * 2, 7, "👩", None),
        (b"\xff\xfe", 9, None, "//4="),
        (b"ab\xff", 2, "ab", None),
        (b"ok\xc3", 9, None, "b2vD"),
        (b"\x00\x01", 9, "\x00\x01", None),
        (b"\xed\xa0\x80", 9, None, "7aCA"),
    ],
)
def test_bytes_are_text_or_base64_and_never_half_a_sign(content: bytes, most: int, text: str, base64: str) -> None:
    piece = RecordPiece.of(content, most)
    assert (piece.text, piece.base64, piece.size_bytes, piece.is_cut) == (
        text,
        base64,
        len(content),
        len(content) > most,
    )


class Scripted:
    """A message of the client."""

    def __init__(self, key: Any = None, value: Any = None, headers: Any = None, kind: int = 2) -> None:
        self._told = {"key": key, "value": value, "partition": 3, "offset": 9, "timestamp": (kind, 77)}
        self._headers = headers

    def __getattr__(self, name: str) -> Any:
        return lambda: self._told[name]

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers


def test_headers_whose_names_are_no_text_and_a_time_that_is_none() -> None:
    wrong = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    assert show_record(Scripted(b"k", b"v", wrong)).headers is None  # type: ignore[arg-type]
    without = show_record(Scripted(b"k", b"value", [("h", None)] * 100, kind=0))  # type: ignore[arg-type]
    assert (without.at_ms, without.time_type, without.size_bytes) == (None, None, 6 + 64)
    assert len(without.headers or ()) == 64


def test_a_page_takes_the_newest_of_all_and_says_where_each_partition_goes_on() -> None:
    found = WalkResult(
        {0: [a_record(0, n) for n in (1, 2, 8)], 1: [a_record(1, n) for n in (3, 7)], 2: []}, {0: 0, 1: 2, 2: 5}
    )
    shown, older = merge_page(found, 3, backwards=True)
    assert places(shown) == [(0, 8), (1, 7), (1, 3)]
    assert older == {0: 3, 1: 2, 2: 5}
    found.reached = {0: 9, 1: 8, 2: 5}
    shown, newer = merge_page(found, 3, backwards=False)
    assert places(shown) == [(1, 3), (0, 2), (0, 1)]
    assert newer == {0: 8, 1: 7, 2: 5}


def test_a_time_that_jumps_leaves_no_gap_within_its_partition() -> None:
    found = WalkResult({0: [a_record(0, 1, 900), a_record(0, 2, 100)], 1: [a_record(1, 1, 500)]}, {0: 1, 1: 1})
    shown, older = merge_page(found, 2, backwards=True)
    # 0:1 has the newest time and lies behind 0:2: it comes with the next page, not between.
    assert places(shown) == [(1, 1), (0, 2)]
    assert older == {0: 2, 1: 1}


def test_a_key_is_in_the_partition_of_kafkas_own_clients() -> None:
    """Hashes of org.apache.kafka.common.utils.UtilsTest, and what they leave."""
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    for key, wanted in hashes.items():
        assert partition_of_key(key, 2**31) == wanted & 0x7FFFFFFF
        assert partition_of_key(key, 6) == (wanted & 0x7FFFFFFF) % 6
    assert 0 <= partition_of_key(b"", 6) < 6


def test_a_budget_says_what_ran_out_first() -> None:
    budget = BrowseBudget(2, 100, time.monotonic() + 3600)
    budget.take(10)
    assert budget.spent is None
    budget.take(10)
    assert budget.spent == "records"
    assert BrowseBudget(9, 0, time.monotonic() + 3600).spent == "bytes"
    assert BrowseBudget(9, 9, time.monotonic() - 1).spent == "seconds"


def test_past_what_may_be_held_only_beginnings_are() -> None:
    kept = HeldBytes()
    large = ShownRecord(0, 1, 1, "append", 1, None, (), RecordPiece.of(b"x" * 65_536))
    for _ in range(256):
        assert kept.most_bytes(65_536) == 65_536
        kept.add(large)
    assert kept.most_bytes(65_536) == 1024
    kept.add(large, -1)
    assert kept.most_bytes(65_536) == 65_536


@pytest.mark.parametrize(("code", "fails"), [(KafkaError.NOT_LEADER_FOR_PARTITION, 2), (KafkaError.INVALID_REQUEST, 1)])
def test_only_a_leader_that_moves_is_asked_again(code: int, fails: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As just after a topic was created. A client that is not asked for the leaders again asks the former one for ever."""
    asked = list[str]()

    class Moving:
        def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            asked.append("offsets")
            if asked.count("offsets") <= fails:
                raise KafkaException(KafkaError(code))
            return [TopicPartition(place.topic, place.partition, 42) for place in places]

        def list_topics(self, topic: str, timeout: float) -> None:
            asked.append("leaders")

    monkeypatch.setattr("ingest.read.bounded_reader.make_client", lambda *given: Moving())
    reader = BoundedReader(KafkaSettings(), "rooms", BrowseBudget(10, 10, time.monotonic() + 30))
    if code == KafkaError.INVALID_REQUEST:
        with pytest.raises(RetryableError, match="offsets of topic rooms"):
            reader.offsets_at([0], -1)
        assert asked == ["offsets"]
    else:
        assert reader.offsets_at([0], -1) == {0: 42}
        assert asked == ["offsets", "leaders", "offsets", "leaders", "offsets"]
