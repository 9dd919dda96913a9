"""What a power cut, a full disk or Kafka itself takes away: refused, mended by `tidegate repair`, and landed once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from deltalake import DeltaTable

from ingest.contract.errors import FatalError
from ingest.contract.reading import encode_record

pytestmark = pytest.mark.promise("P1")


def numbers(lander: Any, table: str = "readings") -> list[int]:
    """Message numbers of the rows, a number per row, ascending."""
    return sorted(row["message_number"] for row in lander.rows(table))


def twice(*messages: int) -> list[int]:
    """The numbers of messages that are stored once: each has two readings."""
    return sorted([*messages, *messages])


def refused(lander: Any) -> str:
    with pytest.raises(FatalError) as caught:
        lander.start()
    assert "tidegate repair" in str(caught.value)
    return str(caught.value)


def log_file(lander: Any, table: str, name: str) -> Path:
    return Path(lander.root) / table / "_delta_log" / name


def test_torn_logs_lost_files_and_broken_checkpoints_are_mended_and_nothing_is_doubled(
    lander: Any, record: Any, dead_letter: Any
) -> None:
    # One batch of readings only, one of both tables.
    lander.land(record(1), record(2, seq=2))
    lander.land(record(3), dead_letter(4), record(5, seq=5))
    # The newest commit of readings is torn, that of dead_letters is whole, and the checkpoint says that all is done.
    torn = log_file(lander, "readings", f"{2:020d}.json")
    torn.write_bytes(torn.read_bytes()[:300])
    assert "its commit 2 is empty or torn" in refused(lander)
    lander.repair()
    lander.land(record(5, seq=5), record(7))
    assert numbers(lander) == twice(1, 2, 3, 5, 7)
    assert numbers(lander, "dead_letters") == [4]

    # Newest of dead_letters of zero bytes: a reader would take it for a commit without rows.
    log_file(lander, "dead_letters", f"{1:020d}.json").write_bytes(b"")
    assert "its commit 1 is empty" in refused(lander)
    lander.repair()
    lander.land()
    assert (numbers(lander), numbers(lander, "dead_letters")) == (twice(1, 2, 3, 5, 7), [4])

    # A torn checkpoint of the log, a torn hint, and torn offsets beside a batch whose commit the checkpoint lacks.
    DeltaTable(f"{lander.root}/readings").create_checkpoint()
    (parquet,) = log_file(lander, "readings", "").glob("*.checkpoint.parquet")
    parquet.write_bytes(parquet.read_bytes()[:100])
    newest = max(int(path.name) for path in (lander.checkpoint / "offsets").iterdir() if path.name.isdigit())
    (lander.checkpoint / "offsets" / str(newest)).write_bytes(b"")
    assert "is torn" in refused(lander)
    lander.repair()
    lander.land(record(8))
    assert numbers(lander) == twice(1, 2, 3, 5, 7, 8)

    # A data file is gone: dropped from the log only where that is asked; a copy of its rows is stored again then.
    gone = Path(unquote(DeltaTable(f"{lander.root}/readings").file_uris()[-1]))
    lost = set(pq.read_table(gone, columns=["message_number"])["message_number"].to_pylist())
    assert lost == {1, 2}
    gone.unlink()
    assert "1 data file with 4 rows" in lander.repair()[0]
    lander.repair("--drop-missing-files")
    lander.land(record(2, seq=2), record(5, seq=5))
    assert numbers(lander) == twice(2, 3, 5, 7, 8)


def delete_records(lander: Any, upto: int) -> None:
    admin = AdminClient({"bootstrap.servers": lander.kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(lander.topics.readings, 0, upto)]).values():
        done.result(60)


def test_what_kafka_lost_is_passed_over_only_by_command_and_said_in_the_table(
    lander: Any, record: Any, wait_until: Any
) -> None:
    lander.land(record(1))
    lander.send(record(2), record(3), record(4))
    delete_records(lander, 3)
    topic = lander.topics.readings
    assert f"{topic} partition 0 offsets 1 to 2 (2 records)" in refused(lander)
    # Neither a repair without the flag nor a lost checkpoint passes over them.
    lander.repair()
    lander.forget_checkpoint()
    assert "Kafka no longer has the records that come next" in refused(lander)
    lander.repair("--accept-loss")
    lander.land(record(5))
    assert numbers(lander) == twice(1, 4, 5)
    told = json.loads(DeltaTable(f"{lander.root}/readings").history(1)[0]["userMetadata"])
    assert told["lost"] == [[topic, 0, 0, 3]], "a new checkpoint begins with the newest batch, of which record 0 was"

    # The topic made anew, and filled past what was stored of the old one: its offsets alone would not tell.
    admin = AdminClient({"bootstrap.servers": lander.kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(60)
    wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, what="the topic being gone")

    def made() -> bool:
        return admin.create_topics([NewTopic(topic, 2, 1)])[topic].exception(20) is None

    wait_until(made, what="the topic being made anew")
    producer = Producer({"bootstrap.servers": lander.kafka.bootstrap_servers})
    for number in range(10, 20):
        producer.produce(topic, key=b"d1", value=encode_record(record(number)), partition=0)
    assert producer.flush(120) == 0
    assert f"{topic} partition 0 was recreated or cut back: stored up to offset 4" in refused(lander)
    lander.repair("--accept-loss")
    lander.land()
    assert numbers(lander) == twice(1, 4, 5, *range(10, 20))
    lander.forget_checkpoint()
    lander.land()
    assert numbers(lander) == twice(1, 4, 5, *range(10, 20))

    # More partitions while it runs: they are read from their beginning, and a new checkpoint knows them.
    started = lander.start()
    try:
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
        wait_until(lambda: len(admin.list_topics(topic, timeout=5).topics[topic].partitions) == 4, what="4 partitions")
        producer = Producer({"bootstrap.servers": lander.kafka.bootstrap_servers})
        producer.produce(topic, key=b"d9", value=encode_record(record(30, device="d9")), partition=3)
        assert producer.flush(120) == 0
        wait_until(lambda: 30 in numbers(lander), seconds=60, what="the row of the new partition")
    finally:
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    lander.forget_commit()
    lander.land()
    lander.forget_checkpoint()
    lander.land()
    assert numbers(lander) == twice(1, 4, 5, *range(10, 20), 30)


class FullDisk:
    """The tables' folder on a small disk of its own, which a test fills up."""

    def __init__(self, folder: Path) -> None:
        import subprocess

        self.folder = folder
        folder.mkdir(exist_ok=True)
        options = ["mount", "-t", "tmpfs", "-o", "size=24m", "tidegate-test", str(folder)]
        if subprocess.run(options, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount a small disk")

    def fill(self) -> None:
        with (self.folder / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(b"\0" * size)
                except OSError:
                    continue

    def free(self) -> None:
        (self.folder / "ballast").unlink()


@pytest.fixture
def full_disk(lander: Any) -> Iterator[FullDisk]:
    import subprocess

    disk = FullDisk(Path(lander.root))
    yield disk
    subprocess.run(["umount", "-l", str(disk.folder)], check=False, capture_output=True)


def test_a_full_disk_ends_the_batch_and_the_next_try_lands_it_once(
    lander: Any, record: Any, dead_letter: Any, full_disk: FullDisk
) -> None:
    from streaming.query_failures import classify_query_failure

    lander.land(record(1))
    full_disk.fill()
    lander.send(record(2), record(3, seq=3), dead_letter(4))
    failed = None
    with pytest.raises(Exception, match=r".") as caught:  # executors already write at the start
        started = lander.start()
        try:
            started.query.processAllAvailable()
        finally:
            failed = started.landing.failure
    fault = classify_query_failure(failed or caught.value, bootstrap_servers="k", log="l")
    assert "disk" in str(fault)
    assert numbers(lander) == twice(1)
    full_disk.free()
    lander.lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    lander.land(record(5))
    assert numbers(lander) == twice(1, 2, 3, 5)
    assert numbers(lander, "dead_letters") == [4]
