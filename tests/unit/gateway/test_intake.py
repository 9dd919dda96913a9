"""No fault of the short way leaves a message that would be acknowledged without its record."""

from collections.abc import Callable
from typing import Any

import pytest

import gateway.delivery.intake
from gateway.delivery.block import Block
from gateway.delivery.intake import MessageIntake
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.mqtt.session_events import Incoming
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.reading import decode_record

LIMITS = GatewaySettings()
ROUTES = compile_routes(())
MESSAGES: list[Incoming] = [
    (b"tidegate/v1/d/readings", b'{"boot":1,"seq":%d,"values":{"t":1}}' % seq, seq.to_bytes(2, "big"))
    for seq in range(1, 9)
]
COLUMNS = ["messages", "mids", "keys", "values", "sequences"]


class FailingOnce(list[Any]):
    """Raises in place of its third append."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error: type[Exception] | None = error

    def append(self, item: Any) -> None:
        if len(self) == 2 and self.error is not None:
            error, self.error = self.error, None
            raise error
        super().append(item)


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Exception]], list[Block]]:
    """Takes eight messages into a block of which one column fails once."""

    def run(column: str, error: type[Exception]) -> list[Block]:
        def make(epoch: int, first: int, received_us: int, received_at: float) -> Block:
            block = Block(epoch, first, received_us, received_at)
            setattr(block, column, FailingOnce(error))
            return block

        monkeypatch.setattr(gateway.delivery.intake, "Block", make)
        intake = MessageIntake(
            MessageProcessor(ROUTES, LIMITS),
            FastPathEncoder(ROUTES, LIMITS, ReadingPolicy()),
            is_full=lambda block: False,
        )
        return list(intake.take(MESSAGES, 1000, 100_000))

    return run


@pytest.mark.parametrize("column", COLUMNS)
def test_without_memory_the_messages_stay_unacknowledged_and_come_again(
    take: Callable[[str, type[Exception]], list[Block]], column: str
) -> None:
    with pytest.raises(MemoryError):
        take(column, MemoryError)


@pytest.mark.parametrize("column", COLUMNS)
def test_after_another_fault_each_message_has_its_record_or_none_is_acknowledged(
    take: Callable[[str, type[Exception]], list[Block]], column: str
) -> None:
    try:
        blocks = take(column, ValueError)
    except RuntimeError as error:
        assert "without its record" in str(error)
        assert column in ("mids", "keys", "values")
        return
    [block] = blocks
    assert block.mids == [mid for _, _, mid in MESSAGES]  # type: ignore[misc]
    assert [decode_record(value).seq for value in block.values] == list(range(1, 9))
