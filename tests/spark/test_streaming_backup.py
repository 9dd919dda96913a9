"""Backups of a pipeline that lands all the time, and checkpoints older or newer than the tables: each row is there once."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import FatalError
from lakehouse.changes import newest_version
from streaming.backup import back_up, restore

pytestmark = pytest.mark.promise("P1")


def numbers(lander: Any, table: str = "readings") -> list[int]:
    """Message numbers of the rows, a number per row, ascending."""
    return sorted(row["message_number"] for row in lander.rows(table))


def twice(*messages: int) -> list[int]:
    """The numbers of messages that are stored once: each has two readings."""
    return sorted([*messages, *messages])


def forget_tables(lander: Any) -> None:
    """The JVM of the tests forgets what it knew of the tables, as a new process."""
    lander.lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def test_a_backup_made_while_batches_land_and_kafka_together_hold_every_row_once(
    lander: Any, new_lander: Any, record: Any, dead_letter: Any, wait_until: Any, unique_name: str, tmp_path: Path
) -> None:
    copied, rounds = threading.Event(), list[int]()

    def send() -> None:
        # With and without identity; a copy of an earlier message; a dead letter.
        number = 10 * len(rounds) + 1
        lander.send(record(number, seq=number), record(number + 1), dead_letter(number + 2))
        lander.send(record(max(1, number - 30), seq=max(1, number - 30)))
        rounds.append(number)

    def send_until_copied() -> None:
        while not copied.wait(0.2):
            send()

    started = lander.start()
    sender = threading.Thread(target=send_until_copied)
    sender.start()
    try:
        wait_until(lambda: newest_version(lander.root, "readings") >= 2, seconds=300, what="the first batches")
        back_up(Path(lander.root), tmp_path / "backup")
    finally:
        copied.set()
        sender.join()
    try:
        for _ in range(3):
            send()
        started.query.processAllAvailable()
    finally:
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    wanted = {table: numbers(lander, table) for table in ("readings", "dead_letters", "duplicates")}
    assert wanted["readings"] == twice(*rounds, *(number + 1 for number in rounds))
    assert wanted["duplicates"]
    other = new_lander(f"{unique_name}-new", tmp_path / "new machine")
    other.topics = lander.topics
    restore(tmp_path / "backup", Path(other.root), other.checkpoint)
    assert 0 < len(numbers(other)) <= len(wanted["readings"])
    other.land()
    assert {table: numbers(other, table) for table in wanted} == wanted


def test_an_older_checkpoint_lands_nothing_twice_and_one_past_the_tables_is_refused(
    lander: Any, record: Any, dead_letter: Any, tmp_path: Path
) -> None:
    lander.land(record(1), dead_letter(2))
    older = tmp_path / "older checkpoint"
    shutil.copytree(lander.checkpoint, older)
    back_up(Path(lander.root), tmp_path / "backup")
    lander.land(record(3))
    lander.land(record(4), dead_letter(5))

    # The checkpoint was copied first: its batch 1 gets other records than the batches 1 and 2 that the tables know.
    lander.forget_checkpoint()
    shutil.copytree(older, lander.checkpoint)
    lander.land(record(6))
    lander.land(record(7))
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 3, 4, 6, 7), [2, 5])

    # The tables were copied first: to go on with this checkpoint would skip records.
    shutil.rmtree(lander.root)
    restore(tmp_path / "backup", Path(lander.root), tmp_path / "none" / "land")
    forget_tables(lander)
    with pytest.raises(FatalError, match=r"Commits of the tables are gone.*tidegate repair"):
        lander.start()
    lander.repair()
    lander.land(record(8))
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 3, 4, 6, 7, 8), [2, 5])

    # No tables at all.
    shutil.rmtree(lander.root)
    forget_tables(lander)
    with pytest.raises(FatalError, match="the checkpoint is past the newest batch in any table"):
        lander.start()
    lander.repair()
    lander.land()
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 3, 4, 6, 7, 8), [2, 5])
