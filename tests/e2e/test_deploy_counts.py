"""What is counted in several places is the same number in all of them."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.demo.hold import hanging
from ingest.contract.topics import READINGS
from monitoring.scrape import OPENER, scrape

MESSAGES = 1_000
DEVICES = 10


@pytest.fixture
def still(pipeline: Any, wait_until: Callable[..., Any]) -> Iterator[Any]:
    """The run while nobody but the test publishes: fleet and canary stand still, and are not started anew for it."""
    wait_until(pipeline.ready, seconds=300, what="the run being ready")
    run = pipeline.run
    with ExitStack() as stack:
        os.kill(run.pid, signal.SIGSTOP)
        stack.callback(os.kill, run.pid, signal.SIGCONT)
        for part in ("fleet", "canary"):
            stack.enter_context(hanging(run.parts[part], run.run_id))
        yield pipeline
    wait_until(pipeline.ready, seconds=300, what="the run being ready again")


def counted(pipeline: Any) -> dict[str, float]:
    """The same messages as gateway, Kafka, stream and monitor count them."""
    gateway, stream, monitor = (
        scrape(pipeline.url(part), timeout_seconds=30) for part in ("gateway", "stream", "page")
    )
    assert gateway is not None
    assert stream is not None
    assert monitor is not None
    return {
        "received": gateway.total("tidegate_gateway_messages_received_total"),
        "accepted": gateway.total("tidegate_gateway_messages_accepted_total"),
        "acknowledged": gateway.total("tidegate_gateway_messages_acknowledged_total"),
        "kafka": monitor.total("kafka_topic_partition_current_offset", topic=READINGS),
        "rows": stream.total("tidegate_stream_rows_total", table="readings"),
    }


def settled(pipeline: Any) -> dict[str, float] | None:
    """What is counted once everything that was on its way has arrived."""
    before = counted(pipeline)
    time.sleep(3.0)  # two looks of the monitor and a batch
    now = counted(pipeline)
    return now if now == before and sum(pipeline.status()["lag"].values()) == 0 else None


def test_a_thousand_messages_are_a_thousand_wherever_they_are_counted(
    still: Any, start_fleet: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    before = wait_until(lambda: settled(still), seconds=120, what="a pipeline at rest")
    books_before = still.audit("2h")

    fleet = start_fleet(still, devices=DEVICES, rate=250, metrics=1, messages=MESSAGES)
    wait_until(lambda: fleet.totals is not None, seconds=120, what="the last message")
    assert (fleet.totals.sent, fleet.totals.acknowledged) == (MESSAGES, MESSAGES)

    def grown() -> dict[str, float]:
        return {name: value - before[name] for name, value in counted(still).items()}

    wait_until(lambda: set(grown().values()) == {MESSAGES}, seconds=120, what=f"{MESSAGES} everywhere")
    books = still.audit("2h")
    assert {name: books[name] - books_before[name] for name in ("received", "stored", "unaccounted")} == {
        "received": MESSAGES, "stored": MESSAGES, "unaccounted": 0,
    }  # fmt: skip

    ledger = f"select sum(received) as received, sum(stored) as stored from ledger where device like '{fleet.name}-%'"
    wait_until(
        lambda: still.json("sql", ledger) == [{"received": MESSAGES, "stored": MESSAGES}],
        seconds=120,
        what="the ledger holding all of them",
    )
    assert len(still.stored_messages(fleet.boot)) == MESSAGES
    with OPENER.open(still.url("page", f"api/device?device={fleet.name}-01"), timeout=30) as answer:
        shown = json.loads(answer.read())
    assert shown["ledger"]["received"] == MESSAGES / DEVICES
    # Nothing of it was counted late.
    assert set(grown().values()) == {MESSAGES}
