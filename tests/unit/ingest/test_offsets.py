"""Offsets: which time Kafka is asked for, and who is asked again when a leader moves."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics import offsets
from ingest.topics.offsets import offsets_at


@pytest.mark.parametrize(("time_ms", "asked"), [(-1, 0), (-2, 0), (-62_135_596_800_000, 0), (0, 0), (7, 7)])
def test_a_time_before_1970_is_never_kafkas_word_for_the_end(
    time_ms: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka reads -1 as the latest and -2 as the earliest offset."""

    def found(_settings: object, _topic: str, spec: Any) -> dict[int, int]:
        return {0: spec._value}

    monkeypatch.setattr(offsets, "_offsets", found)
    assert offsets_at(KafkaSettings(), "rooms", time_ms) == {0: asked}


class MovingCluster:
    """An administrator's client whose partition gets a leader after some answers; it counts how often it is asked for leaders."""

    def __init__(self, code: int, failures: int) -> None:
        self._code, self._failures, self.looks = code, failures, 0

    def list_topics(self, timeout: float) -> Any:
        self.looks += 1
        return SimpleNamespace(topics={"rooms": SimpleNamespace(partitions={0: None})})

    def list_offsets(self, asked: Any, request_timeout: float) -> Any:
        answer: Future[Any] = Future()
        self._failures -= 1
        if self._failures < 0:
            answer.set_result(SimpleNamespace(offset=42))
        else:
            answer.set_exception(KafkaException(KafkaError(self._code)))
        return {where: answer for where in asked}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
    ],
)  # fmt: skip
def test_a_leader_that_moves_is_asked_again(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is not asked for the leaders again asks the former one for ever."""
    client = MovingCluster(code, failures=2)
    monkeypatch.setattr(offsets, "admin_client", lambda _: client)
    assert offsets.end_offsets(KafkaSettings(), "rooms") == {0: 42}
    assert client.looks == 3


def test_other_errors_of_offsets_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MovingCluster(KafkaError.INVALID_REQUEST, failures=1)
    monkeypatch.setattr(offsets, "admin_client", lambda _: client)
    with pytest.raises(RetryableError, match="asking for offsets of topic rooms"):
        offsets.end_offsets(KafkaSettings(), "rooms")
    assert client.looks == 1
