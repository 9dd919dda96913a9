"""What a follower of the gateways' state does, on the memory log and on a real Kafka alike."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import NewTopic

from ingest.kafka_settings import KafkaSettings
from ingest.log import LogWriter
from ingest.memory import MemoryFollower, MemoryLog
from ingest.producer import KafkaWriter
from ingest.state_follower import StateFollower, StateReader
from tests.support.servers import make_topics


class Seam(Protocol):
    """One compacted topic of one partition under test."""

    topic: str

    def writer(self) -> LogWriter: ...
    def follower(self, **more: Any) -> StateReader: ...


def is_watched(key: str) -> bool:
    return key.startswith("w")


class MemorySeam:
    def __init__(self, topic: str) -> None:
        self.topic, self.log = topic, MemoryLog(partitions=1)

    def writer(self) -> LogWriter:
        return self.log.writer()

    def follower(self, **more: Any) -> StateReader:
        return MemoryFollower(self.log, is_watched, topic=self.topic, **more)


class KafkaSeam:
    def __init__(self, topic: str, server: Any) -> None:
        self.topic, self.settings = topic, KafkaSettings(bootstrap_servers=server.bootstrap_servers)
        make_topics(server.bootstrap_servers, NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"}))

    def writer(self) -> LogWriter:
        return KafkaWriter(self.settings, {self.topic: 1_000_000})

    def follower(self, **more: Any) -> StateReader:
        return StateFollower(self.settings, is_watched, topic=self.topic, **more)


@pytest.fixture(params=["memory", "kafka"])
def seam(request: pytest.FixtureRequest, unique_name: str) -> Seam:
    if request.param == "memory":
        return MemorySeam(unique_name)
    return KafkaSeam(unique_name, request.getfixturevalue("kafka_server"))


@pytest.fixture
def write(seam: Seam) -> Iterator[Callable[..., None]]:
    """`write((key, value), …)` returns when the records are in the log."""
    writer = seam.writer()

    def send(*records: tuple[str, bytes]) -> None:
        for key, value in records:
            writer.produce(seam.topic, key.encode(), value, lambda error: None)
        assert writer.flush(60) == 0

    yield send
    writer.close()


def test_each_call_continues_where_the_last_one_ended(seam: Seam, write: Callable[..., None]) -> None:
    follower = seam.follower()
    assert follower.catch_up() == []
    write(("w/a", b"1"), ("x", b"1"), ("w/a", b"2"), ("w/b", b"1"))
    assert follower.catch_up() == [("w/a", b"1"), ("w/a", b"2"), ("w/b", b"1")], "all of them, in order"
    assert follower.catch_up() == []
    write(("w/b", b"2"), ("w/a", b""), ("x", b"2"))
    assert follower.catch_up() == [("w/b", b"2")], "a tombstone says nothing"


def test_the_state_is_the_newest_value_of_each_key(seam: Seam, write: Callable[..., None]) -> None:
    write(("w/a", b"1"), ("x", b"1"), ("w/a", b"2"), ("y", b"1"), ("x", b""))
    follower = seam.follower()
    follower.catch_up()
    assert follower.state() == [("w/a", b"2"), ("y", b"1")]
    write(("y", b"2"), ("x", b"3"))
    assert dict(follower.state()) == {"w/a": b"2", "y": b"1"}, "as of the last call"
    follower.catch_up()
    assert dict(follower.state()) == {"w/a": b"2", "y": b"2", "x": b"3"}
    follower.forget()
    write(("z", b"1"))
    follower.catch_up()
    assert follower.state() == [("z", b"1")]


def test_a_state_can_hold_some_keys_only(seam: Seam, write: Callable[..., None]) -> None:
    write(("w/a", b"1"), ("x", b"1" * 80), ("w/b", b"1"), ("w/a", b""))
    follower = seam.follower(held=is_watched, max_bytes=40)
    assert follower.catch_up() == [("w/a", b"1"), ("w/b", b"1")]
    assert follower.state() == [("w/b", b"1")]


def test_a_large_state_leaves_the_oldest_keys_out(seam: Seam, write: Callable[..., None]) -> None:
    write(("a", b"1" * 60), ("b", b"1" * 60), ("a", b"2" * 60))
    follower = seam.follower(max_bytes=100)
    follower.catch_up()
    assert follower.state() == [("a", b"2" * 60)]


def test_two_followers_see_one_order(seam: Seam, write: Callable[..., None]) -> None:
    one, other = seam.follower(), seam.follower()
    one.catch_up()
    write(*((f"w/{number % 3}", str(number).encode()) for number in range(50)))
    seen = one.catch_up()
    assert len(seen) == 50
    assert other.catch_up() == seen
