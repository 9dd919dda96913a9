"""A Kafka whose log really was cut back: its partition's folder is put back from a copy, as by a snapshot or a power cut."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ingest.contract.errors import FatalError

pytestmark = pytest.mark.promise("P1")


def numbers(lander: Any, table: str = "readings") -> list[int]:
    return sorted(row["message_number"] for row in lander.rows(table))


def twice(*messages: int) -> list[int]:
    """The numbers of messages that are stored once: each has two readings."""
    return sorted([*messages, *messages])


class CutKafka:
    """A Kafka of this test whose newest records can be taken away."""

    def __init__(self, server: Any, lander: Any) -> None:
        self.server, self.lander = server, lander
        self.copy = Path(server.part.data_dir) / "copy"

    def folders(self) -> list[Path]:
        names = [f"{self.lander.topics.readings}-0", f"{self.lander.topics.dead_letters}-0"]
        return [Path(self.server.part.data_dir) / "records" / name for name in names]

    def remember(self) -> None:
        """Keep a copy of the log as it is now."""
        self.server.stop()
        shutil.rmtree(self.copy, ignore_errors=True)
        for folder in self.folders():
            shutil.copytree(folder, self.copy / folder.name)
        self.server.restart()

    def go_back(self) -> None:
        """The log is what it was when it was copied; the topics' ids are the same."""
        self.server.kill()
        for folder in self.folders():
            shutil.rmtree(folder)
            shutil.copytree(self.copy / folder.name, folder)
        self.server.restart()
        self.lander.producer = Producer({"bootstrap.servers": self.server.bootstrap_servers, "linger.ms": 0})


def refused(lander: Any) -> str:
    with pytest.raises(FatalError) as caught:
        lander.start()
    assert "tidegate repair --accept-loss" in str(caught.value)
    return str(caught.value)


@pytest.mark.timeout(600)
def test_a_log_that_was_cut_back_and_written_on_is_refused_and_repair_lands_each_record_once(
    new_kafka: Callable[..., Any], lander_of: Callable[[Any], Any], record: Any, dead_letter: Any, wait_until: Any
) -> None:
    server = new_kafka()
    lander = lander_of(server)
    kafka = CutKafka(server, lander)
    topic, letters = lander.topics.readings, lander.topics.dead_letters
    lander.land(record(1), record(2, seq=2), dead_letter(3))
    kafka.remember()
    # Three batches that the log forgets: deeper than the newest one.
    lander.land(record(4), record(5), dead_letter(6))
    lander.land(record(7, seq=7))
    lander.land(record(8), b"{")
    before = twice(1, 2, 4, 5, 7, 8)
    assert numbers(lander) == before
    kafka.go_back()
    lander.send(*(record(number) for number in range(11, 21)), dead_letter(21), dead_letter(22))
    said = refused(lander)
    assert (
        f"{topic} partition 0 was recreated or cut back: stored up to offset 6, it holds other records from offset 2 on"
        in said
    )
    assert (
        f"{letters} partition 0 was recreated or cut back: stored up to offset 1, it holds other records from offset 1 on"
        in said
    )
    lander.forget_checkpoint()
    assert "from offset 2 on" in refused(lander), "nor does a new checkpoint pass over it"
    assert "from offset 2 on" in lander.repair()[0]
    lander.repair("--accept-loss")
    lander.land(record(23, seq=23))
    before = sorted([*before, *twice(*range(11, 21), 23)])
    assert numbers(lander) == before
    assert [row["message_number"] for row in lander.rows("dead_letters")].count(None) == 1
    assert sorted(row["message_number"] or 0 for row in lander.rows("dead_letters")) == [0, 3, 6, 21, 22]
    assert lander.repair("--accept-loss") == []

    # Again, now without anything written on before the repair, and a checkpoint that is lost on top.
    kafka.go_back()
    assert "from offset 2 on" in refused(lander)
    lander.repair("--accept-loss")
    lander.send(*(record(number) for number in range(31, 51)))
    lander.land()
    lander.forget_commit()
    lander.land(dead_letter(51))
    lander.forget_checkpoint()
    lander.land(record(52))
    assert numbers(lander) == sorted([*before, *twice(*range(31, 51), 52)])
    assert sorted(row["message_number"] or 0 for row in lander.rows("dead_letters")) == [0, 3, 6, 21, 22, 51]

    # While the query runs: Kafka comes back with an older log, and is written past what was landed before anybody looks.
    started = lander.start()
    try:
        lander.send(record(60))
        wait_until(lambda: 60 in numbers(lander), what="the row of 60")
        kafka.go_back()
        lander.send(*(record(number) for number in range(100, 140)))
        wait_until(lambda: not started.query.isActive, seconds=120, what="the query's end")
        failure = started.landing.failure or started.query.exception()
    finally:
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    assert failure is not None
    assert not [number for number in numbers(lander) if number >= 100], "nothing of another log was landed"
    assert "from offset 2 on" in refused(lander)
    lander.repair("--accept-loss")
    lander.land()
    assert numbers(lander) == sorted([*before, *twice(*range(31, 51), 52, 60, *range(100, 140))])
