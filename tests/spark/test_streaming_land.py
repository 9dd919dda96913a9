"""Exactly once, whatever is done to checkpoint, process and records between two starts."""

import logging
from io import StringIO
from typing import Any

import pytest

from ingest.contract.errors import FatalError
from ingest.contract.reading import Reading
from lakehouse.query import run_sql
from tests.support.killed_landing import killed_before


def test_readings_and_dead_letters_land_and_offsets_are_mirrored(lander: Any, record: Any, dead_letter: Any) -> None:
    lander.land(record(1, seq=1), b"poison", record(2, seq=2), dead_letter(3))
    assert [(row["offset"], row["metric"]) for row in lander.rows()] == [
        (0, "temperature"), (0, "state"), (2, "temperature"), (2, "state"),
    ]  # fmt: skip
    found = {(row["reason"], row["source_topic"], row["offset"]) for row in lander.rows("dead_letters")}
    assert found == {("spark_corrupt_record", lander.topics.readings, 1), ("bad_json", lander.topics.dead_letters, 0)}
    assert lander.mirrored[-1] == {lander.topics.readings: {0: 3, 1: 0}, lander.topics.dead_letters: {0: 1}}
    assert run_sql(lander.root, "select count(*) n from readings").to_pylist() == [{"n": 4}]
    assert lander.metric("tidegate_stream_rows_total", table="readings") == 4
    assert lander.metric("tidegate_stage_latency_seconds_count", stage="receive_to_commit") == 4


def test_a_batch_that_is_run_again_changes_nothing(lander: Any, record: Any, dead_letter: Any) -> None:
    lander.land(record(1), record(2, seq=2), dead_letter(3))
    before = lander.rows(), lander.rows("dead_letters")
    for _ in range(2):
        lander.forget_commit()
        lander.land()
    assert (lander.rows(), lander.rows("dead_letters")) == before
    assert lander.versions() == {"readings": 1, "dead_letters": 1, "duplicates": 0}
    lander.land(record(4))
    assert len(lander.rows()) == 6


def test_a_crash_between_the_two_tables_loses_no_dead_letter(
    lander: Any, record: Any, dead_letter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming.land import Landing

    log = StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))

    def crash(self: Landing, batch: Any, conflicts: Any) -> None:
        message = "killed here"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr(Landing, "_land_dead_letters", crash)
        with pytest.raises(Exception, match="killed here"):
            lander.land(record(1), dead_letter(2), b"poison")
    assert "killed here" not in log.getvalue(), "who runs the query reports it, in one sentence"
    assert lander.versions() == {"readings": 1, "dead_letters": 0, "duplicates": 0}
    lander.forget_checkpoint()
    lander.land()
    assert lander.versions() == {"readings": 1, "dead_letters": 1, "duplicates": 0}
    assert len(lander.rows("dead_letters")) == 2


def test_a_lost_checkpoint_neither_ignores_nor_doubles(lander: Any, record: Any, dead_letter: Any) -> None:
    lander.land(record(1), record(2, seq=2), dead_letter(3))
    lander.forget_checkpoint()
    lander.land(record(4), record(5, seq=5), dead_letter(6))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2, 4, 4, 5, 5]
    assert [row["message_number"] for row in lander.rows("dead_letters")] == [3, 6]


def test_duplicates_are_dropped_once_within_and_across_batches(lander: Any, record: Any) -> None:
    lander.land(record(1, seq=1), record(2, seq=2), record(3, seq=1))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2]
    lander.land(record(4, seq=2), record(5, seq=3), record(6, seq=3, device="d2"))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2, 5, 5, 6, 6]
    assert lander.metric("tidegate_stream_duplicate_rows_total", query="land") == 4
    lander.land(record(7, seq=2))
    assert lander.versions()["readings"] == 2, "a batch of nothing but copies makes no commit"
    assert noted(lander) == [(2, 3, 2, True), (3, 4, 2, True), (6, 7, 2, True)]
    # Where its position is known from: no batch counts the copies again, with or without the checkpoint.
    lander.forget_commit()
    lander.land()
    lander.forget_checkpoint()
    lander.land(record(8), record(9, seq=3, readings=[Reading("temperature", value=23.0), Reading("new", value=1.0)]))
    assert noted(lander)[3:] == [(8, 9, 1, False)], "a part of the message is stored"
    (row,) = [row for row in lander.rows("duplicates") if row["offset"] == 3]
    names = ("device", "message_id", "mqtt_topic", "gateway", "gateway_epoch", "partition")
    assert [row[name] for name in names] == ["d1", "bs:1:2", "t", "g", 5, 0]
    assert row["date"] == row["received_at"].date()
    assert row["received_at"] < row["landed_at"] > row["kafka_time"]


@pytest.mark.parametrize(
    ("killed", "lost"),
    [("dead_letters", "commit"), ("duplicates", "checkpoint"), ("readings", "commit"), ("readings", "checkpoint")],
)
def test_copies_are_counted_once_wherever_their_batch_is_killed(
    lander: Any, record: Any, killed: str, lost: str
) -> None:
    """`dead_letters`, `duplicates` and `readings` are committed in this order: the batch is killed before one of them."""

    def sent(number: int, seq: int, value: float) -> Any:
        return record(number, seq=seq, readings=[Reading("temperature", value=value), Reading("state", text="on")])

    lander.land(sent(1, 1, 21.0))
    with killed_before(killed):
        lander.land(sent(2, 1, 99.0), sent(3, 3, 23.0), sent(4, 1, 21.0), sent(5, 3, 23.0), b"poison")
    before = {"dead_letters": 0, "duplicates": 0, "readings": 1}
    order = list(before)
    committed = order[: order.index(killed)]
    assert lander.versions() == {name: version + (name in committed) for name, version in before.items()}
    if lost == "checkpoint":
        lander.forget_checkpoint()
    lander.land(sent(6, 3, 23.0))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 3, 3]
    assert noted(lander) == [(1, 2, 2, True), (3, 4, 2, True), (4, 5, 2, True), (6, 6, 2, True)]
    found = [(row["reason"], row["offset"]) for row in lander.rows("dead_letters")]
    assert found == [("conflicting_duplicate", 1), ("spark_corrupt_record", 5)]


def test_a_replay_is_counted_once_though_its_batch_is_killed_and_its_look_up_is_late(
    lander: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found before the kill may not be found after it; a new identity of the same message is no conflict."""
    lander.land(record(1, payload_hash=7))
    with killed_before("readings"):
        lander.land(record(2, payload_hash=7, message_id="id:7", retain=True), record(3))
    assert noted(lander) == [(1, 2, 2, True)]
    monkeypatch.setattr("streaming.driver_check.make_replay_lookup", lambda _root: lambda _wanted: ())
    lander.forget_checkpoint()
    lander.land(record(4))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 3, 3, 4, 4]
    assert noted(lander) == [(1, 2, 2, True)]
    assert lander.rows("dead_letters") == []


def noted(lander: Any) -> list[tuple[Any, ...]]:
    names = ("offset", "message_number", "readings_dropped", "whole")
    return [tuple(row[name] for name in names) for row in lander.rows("duplicates")]


def test_rows_without_identity_are_all_kept(lander: Any, record: Any) -> None:
    lander.land(record(1), record(1))
    lander.land(record(1))
    assert len(lander.rows()) == 6


def test_an_idle_stream_makes_no_commits(lander: Any, record: Any, wait_until: Any) -> None:
    started = lander.start()
    lander.send(record(1))
    started.query.processAllAvailable()
    versions, batch = lander.versions(), started.query.lastProgress["batchId"]
    wait_until(lambda: started.query.status["message"].startswith("Waiting"), what="the idle state")
    started.query.processAllAvailable()
    started.landing.stop()
    started.query.stop()
    assert lander.versions() == versions
    assert len([path for path in (lander.checkpoint / "offsets").iterdir() if path.name.isdigit()]) == batch + 1


def test_a_damaged_checkpoint_is_refused_with_the_next_step(lander: Any, record: Any) -> None:
    """What else may be broken about it is tried without Spark: tests/unit/streaming/test_repair.py."""
    lander.land(record(1))
    (lander.checkpoint / "metadata").unlink()
    with pytest.raises(FatalError, match="tidegate repair"):
        lander.start()
    lander.forget_checkpoint()
    lander.land(record(2))
    assert [row["message_number"] for row in lander.rows()] == [1, 1, 2, 2]


def test_a_backlog_is_landed_in_batches_of_bounded_size(lander: Any, record: Any) -> None:
    """What a batch holds in memory is bounded by a setting, however far behind the stream is."""
    lander.land(*(record(number) for number in range(2100)))
    ends = [sum(found[lander.topics.readings].values()) for found in lander.mirrored]
    assert ends[-1] == 2100
    assert max(end - begin for begin, end in zip([0, *ends], ends, strict=False)) <= 1000
    assert len(lander.rows()) == 4200


def test_few_records_wait_for_more_of_them_or_for_the_time(lander: Any, record: Any, wait_until: Any) -> None:
    """The settings decide only where a batch is cut: each record lands once, and a start and a drain wait for nothing."""
    lander.land(record(0, seq=0))
    started = lander.start(min_records_per_batch=5, max_wait_seconds=3600)
    try:
        started.query.processAllAvailable()
        lander.send(*(record(number, seq=number) for number in range(1, 5)))
        started.query.processAllAvailable()  # until the query has looked at Kafka and found too little
        assert len(lander.rows()) == 2
        lander.send(record(5, seq=5))
        wait_until(lambda: len(lander.rows()) == 12, what="the fifth record to begin a batch")
        assert lander.versions()["readings"] == 2, "one commit of all five"
        lander.send(record(6, seq=6))
        started.query.processAllAvailable()
        assert len(lander.rows()) == 12
    finally:
        lander.stop(started)
    started = lander.start(min_records_per_batch=5, max_wait_seconds=3600)
    try:
        wait_until(lambda: len(lander.rows()) == 14, what="what waited at the stop, in the first batch after it")
        lander.send(record(7, seq=7))
        started.query.processAllAvailable()
        assert len(lander.rows()) == 14
    finally:
        lander.stop(started)
    drained = lander.start(available_now=True, min_records_per_batch=5, max_wait_seconds=3600)
    try:
        assert drained.query.awaitTermination(120)
    finally:
        lander.stop(drained)
    assert len(lander.rows()) == 16
    started = lander.start(min_records_per_batch=5, max_wait_seconds=0.1)
    try:
        started.query.processAllAvailable()
        lander.send(record(8, seq=8))
        wait_until(lambda: len(lander.rows()) == 18, what="a batch of one record, when its time is over")
    finally:
        lander.stop(started)
    assert [row["message_id"] for row in lander.rows()][::2] == [f"bs:1:{number}" for number in range(9)]
