"""The faults that the memory log plays on request."""

import threading

import pytest

from ingest.log import DeliveryError, LogRecord
from ingest.memory import MemoryLog


def test_a_scripted_failure_hits_only_its_record() -> None:
    log, seen = MemoryLog(partitions=1), []
    writer = log.writer()
    log.fail_next("retriable", "no permission")
    for value in (b"1", b"2"):
        writer.produce("t", b"k", value, seen.append)
    assert writer.flush(1) == 0
    assert seen == [DeliveryError("retriable", "no permission"), None]
    assert [record.value for record in log.records("t")] == [b"2"]


def test_after_a_fatal_failure_only_a_new_writer_goes_on() -> None:
    log, seen = MemoryLog(), []
    writer = log.writer()
    log.fail_next("fatal")
    for _ in range(3):
        writer.produce("t", b"k", b"v", seen.append)
    writer.flush(1)
    assert [error.kind for error in seen if error] == ["fatal"] * 3
    second = log.writer()
    second.produce("t", b"k", b"v", seen.append)
    second.flush(1)
    assert seen[-1] is None


def test_a_held_report_may_be_of_a_record_that_is_stored() -> None:
    log, seen = MemoryLog(partitions=1), []
    writer = log.writer()
    log.hold(stored=True)
    writer.produce("t", b"k", b"v", seen.append)
    assert writer.poll(0) == 0
    assert len(log.records("t")) == 1
    log.release()
    writer.flush(1)
    assert seen == [None]
    assert len(log.records("t")) == 1


def test_an_empty_value_is_none_as_in_kafka() -> None:
    log = MemoryLog(partitions=1)
    writer = log.writer()
    writer.produce("t", b"k", b"", lambda _error: None)
    assert [(record.key, record.value) for record in log.records("t")] == [(b"k", None)]


def test_partitions_may_answer_one_after_the_other() -> None:
    log, seen = MemoryLog(partitions=2), []
    writer = log.writer()
    log.hold()
    for number in range(20):
        writer.produce("t", b"%d" % number, b"%d" % number, lambda _error, number=number: seen.append(number))
    log.release(partition=1)
    writer.poll(0)
    assert {record.partition for record in log.records("t")} == {1}
    assert seen == [int(record.value or b"") for record in log.records("t", 1)]
    log.release(2)
    writer.poll(0)
    assert len(log.records("t", 0)) == 2
    log.release()
    assert writer.flush(1) == 0
    assert sorted(seen) == list(range(20))
    assert log.end_offsets("t") == {0: 20 - len(log.records("t", 1)), 1: len(log.records("t", 1))}


def test_a_release_wakes_a_waiting_poll() -> None:
    log, seen = MemoryLog(), []
    writer = log.writer()
    log.hold()
    writer.produce("t", b"k", b"v", seen.append)
    threading.Timer(0.05, log.release).start()
    assert writer.poll(30) == 1
    assert seen == [None]


@pytest.mark.parametrize("topic", ["t", "none"])
def test_reading_back(topic: str) -> None:
    log = MemoryLog(partitions=1)
    writer = log.writer()
    writer.produce("t", b"k", b"v", lambda _error: None)
    writer.flush(1)
    expected = [LogRecord(0, 0, log.records("t")[0].timestamp_ms, b"k", b"v")] if topic == "t" else []
    assert log.records(topic) == expected
    assert log.topics() == ["t"]
