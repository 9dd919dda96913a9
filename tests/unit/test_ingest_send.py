"""Records sent and read by hand: what an interrupt or a bad record leaves, and where reading ends; without a Kafka."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from ingest import send as sending
from ingest.send import Outgoing, send
from ingest.settings import KafkaSettings
from ingest.tail import _take


class _Producer:
    """Acknowledges what it has when it is flushed, after a few short waits."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any, Any], None]] = []
        self.flushes = 0

    def produce(self, *_args: object, on_delivery: Callable[[Any, Any], None], headers: object) -> None:
        self.waiting.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        pass

    def flush(self, seconds: float) -> int:
        self.flushes += 1
        assert seconds <= 1, "a long wait hears no Ctrl-C"
        if self.flushes == 3:
            for report in self.waiting:
                report(None, None)
            self.waiting.clear()
        return len(self.waiting)


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> _Producer:
    fake = _Producer()
    monkeypatch.setattr(sending, "admin_client", lambda _settings: None)
    monkeypatch.setattr(sending, "partition_counts", lambda *_: {"rooms": 1})
    monkeypatch.setattr(sending, "make_client", lambda *_: fake)
    return fake


def records(error: BaseException) -> Iterator[Outgoing]:
    yield from (Outgoing(b"1"), Outgoing(b"2"))
    raise error


def test_an_interrupt_counts_what_was_acknowledged(producer: _Producer) -> None:
    done = send(KafkaSettings(), "rooms", records(KeyboardInterrupt()))
    assert (done.acknowledged, done.failed, done.interrupted) == (2, 0, True)


def test_records_before_a_bad_one_are_sent(producer: _Producer) -> None:
    with pytest.raises(ValueError, match="no delimiter"):
        send(KafkaSettings(), "rooms", records(ValueError("no delimiter")))
    assert producer.flushes == 3 and producer.waiting == []


class _End:
    """The event of a partition's end."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> Any:
        return KafkaError(KafkaError._PARTITION_EOF)

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize("offset", [5, 10])
def test_reading_to_the_end_ends_at_an_open_transaction_too(offset: int) -> None:
    left = {3, 4}
    assert _take(cast("Message", _End(offset)), {3: 10, 4: 10}, left, "rooms", KafkaSettings()) is None
    assert left == {4}
