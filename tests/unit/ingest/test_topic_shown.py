"""A change of topics is awaited until Kafka shows it, by as many looks as that takes, and never for long."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ingest.topics.setup import await_topics

UNKNOWN, DENIED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


def shown(*leaders: object) -> Any:
    return SimpleNamespace(partitions=[SimpleNamespace(leader=leader) for leader in leaders])


class Scripted:
    """An admin client with the answers to come for each topic: a description, or the number of a fault; the last one stays."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers, self.asked = answers, list[list[str]]()

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, "Future[Any]"]:
        names = list(topics.topic_names)
        self.asked.append(names)
        return {name: self._next(self._answers[name]) for name in names}

    def _next(self, answers: list[Any]) -> "Future[Any]":
        answer, future = answers.pop(0) if len(answers) > 1 else answers[0], Future[Any]()
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        elif answer is not None:
            future.set_result(answer)
        return future


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses; each takes a second of a clock that goes on in them alone."""
    found: list[float] = []
    monkeypatch.setattr("ingest.topics.setup.time", SimpleNamespace(sleep=found.append, monotonic=lambda: len(found)))
    return found


@pytest.mark.parametrize("there", [True, False])
def test_each_topic_is_asked_for_until_kafka_shows_the_change(there: bool, slept: list[float]) -> None:
    late = [UNKNOWN, shown(1, None), shown(1, 2)] if there else [shown(1), shown(None), UNKNOWN]
    client: Any = Scripted(a=late[-1:], b=late, c=[DENIED])
    await_topics(client, ["a", "b", "c"], there=there)
    assert client.asked == [["a", "b", "c"], ["b"], ["b"]]
    assert len(slept) == 2


@pytest.mark.parametrize("answer", [UNKNOWN, shown(None)])
def test_what_is_never_shown_is_no_fault(answer: Any, slept: list[float]) -> None:
    client: Any = Scripted(a=[answer])
    await_topics(client, ["a"])
    assert len(slept) == 5


def test_nothing_is_asked_where_nothing_was_made() -> None:
    client: Any = Scripted()
    await_topics(client, [])
    assert client.asked == []
