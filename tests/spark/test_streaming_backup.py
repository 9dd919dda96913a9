"""Backups of a pipeline that lands all the time, and checkpoints older or newer than the tables: each row is there once."""

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import FatalError
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
    stop, sent = threading.Event(), [0]

    def send() -> None:
        while not stop.wait(0.05):
            number = sent[0] + 1
            # With and without identity; a copy of an earlier message; a dead letter.
            lander.send(record(number, seq=number), record(number + 1), dead_letter(number + 2))
            if number > 3:
                lander.send(record(number - 3, seq=number - 3))
            sent[0] += 3

    started = lander.start()
    sender = threading.Thread(target=send)
    sender.start()
    backups: list[Path] = []
    try:
        for number in range(3):
            rows = len(numbers(lander))
            wait_until(lambda rows=rows: len(numbers(lander)) > rows, what="rows since the last backup")
            backups.append(tmp_path / f"backup-{number}")
            back_up(Path(lander.root), backups[-1], former=backups[-2] if number else None)
    finally:
        stop.set()
        sender.join()
        started.query.processAllAvailable()
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    wanted = {table: numbers(lander, table) for table in ("readings", "dead_letters", "duplicates")}
    assert len(wanted["readings"]) == len(set(wanted["readings"])) * 2
    assert wanted["duplicates"]
    for number, backup in enumerate(backups):
        other = new_lander(f"{unique_name}-{number}", tmp_path / f"site-{number}")
        other.topics = lander.topics
        restore(backup, Path(other.root), other.checkpoint)
        copied = numbers(other)
        assert 0 < len(copied) <= len(wanted["readings"])
        other.land()
        assert {table: numbers(other, table) for table in wanted} == wanted, f"backup {number}"


def test_an_older_checkpoint_lands_nothing_twice_and_a_newer_one_is_refused(
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
    assert numbers(lander) == twice(1, 3, 4, 6, 7)
    assert numbers(lander, "dead_letters") == [2, 5]

    # The tables were copied first: the checkpoint is past them, and to go on with it would skip records.
    shutil.rmtree(lander.root)
    restore(tmp_path / "backup", Path(lander.root), tmp_path / "none" / "land")
    forget_tables(lander)
    with pytest.raises(FatalError, match=r"Commits of the tables are gone.*tidegate repair"):
        lander.start()
    lander.repair()
    lander.land(record(8))
    assert numbers(lander) == twice(1, 3, 4, 6, 7, 8)
    assert numbers(lander, "dead_letters") == [2, 5]


def test_without_tables_a_checkpoint_is_refused_and_both_together_begin_at_kafkas_oldest_record(
    lander: Any, record: Any, dead_letter: Any
) -> None:
    lander.land(record(1), dead_letter(2))
    lander.land(record(3))
    shutil.rmtree(lander.root)
    forget_tables(lander)
    with pytest.raises(FatalError, match="the checkpoint is past the newest batch in any table"):
        lander.start()
    lander.repair()
    lander.land(record(4))
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 3, 4), [2])
    shutil.rmtree(lander.root)
    lander.forget_checkpoint()
    forget_tables(lander)
    lander.land(record(5))
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 3, 4, 5), [2])
