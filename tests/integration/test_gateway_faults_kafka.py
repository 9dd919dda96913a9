"""What Kafka does to the gateway: dies, hangs, fills up, loses a topic, takes less than before (F16-F20, F23, F24)."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.chaos.run import KafkaReader
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import choose_port
from deploy.testbed.server_process import SingleServer
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.topics import READINGS
from tests.support.servers import refuses

pytestmark = pytest.mark.durable_broker

PROTOCOLS = ("5", "3.1.1")
CLIENT = {
    # A queue smaller than the window, requests that time out while Kafka hangs, and no long hope for a lost topic.
    "queue.buffering.max.messages": "100",
    "socket.timeout.ms": "1000",
    "request.timeout.ms": "1000",
    "topic.metadata.propagation.max.ms": "1000",
}


@pytest.fixture(scope="module")
def rig(shared_rig: Callable[..., Any], start_all: Callable[..., None]) -> Any:
    made = shared_rig()
    for protocol in PROTOCOLS:
        made.add(protocol, kafka={"extra": CLIENT})
    start_all(made)
    return made


def test_a_kafka_that_is_killed_and_comes_again(rig: Any, assert_whole: Callable[..., Any]) -> None:
    rig.load.start(200)
    rig.kafka.kill()
    rig.kafka.start()
    for verdict in assert_whole(rig):
        assert verdict.repeated == 0, "the writer sent again what it had no report for, and Kafka knew it"
    for gateway in rig.gateways:
        assert gateway.metric("tidegate_gateway_connections_total") == 1


def test_a_kafka_that_hangs_while_the_queue_of_the_writer_is_small_and_its_requests_time_out(
    rig: Any, assert_whole: Callable[..., Any], wait_until: Any
) -> None:
    rig.load.send(20)
    wait_until(lambda: all(rig.has_all(one) for one in rig.gateways), what="the connections to Kafka")
    rig.kafka.hold()
    held_at = time.monotonic()
    try:
        rig.load.send(500)
        for gateway in rig.gateways:
            wait_until(lambda one=gateway: one.metric("tidegate_gateway_inflight_messages") == 500, what="all received")
        wait_until(lambda: time.monotonic() - held_at > 3.0, what="some requests timed out")
    finally:
        rig.kafka.resume_process()
    for verdict in assert_whole(rig):
        assert verdict.repeated == 0


def set_largest_record(kafka: Any, topic: str, limit_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    change = ConfigEntry("max.message.bytes", str(limit_bytes), incremental_operation=AlterConfigOpType.SET)
    [future] = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]
    ).values()
    future.result(60)


def test_a_topic_that_takes_less_than_before_costs_only_what_is_too_large(rig: Any, wait_until: Any) -> None:
    """Kafka refuses whole batches: the neighbours of the large one must not share its fate, nor wait for it for ever."""
    rig.load.send(20)
    before = rig.kafka_settings.max_record_bytes
    set_largest_record(rig.kafka_settings, READINGS, 3000)
    too_large = encode_record(ReadingRecord(1, "probe", 1, 1, 1, "t", "probe", [Reading("text", text="x" * 4000)]))
    servers = rig.kafka_settings.bootstrap_servers
    wait_until(lambda: refuses(servers, READINGS, too_large), what="the broker going by it")
    try:
        rig.load.send(30)
        # Not compressible: Kafka weighs the compressed batch.
        values = {f"metric-{number}-{os.urandom(8).hex()}": number / 7 for number in range(400)}
        large = json.dumps({"boot": 1, "seq": 1, "values": values}).encode()
        assert rig.load._publisher.publish(f"tidegate/v1/{rig.name}-large/readings", large)
        rig.load.send(30)
        for gateway in rig.gateways:
            wait_until(lambda one=gateway: rig.has_all(one), what="the good ones")
            wait_until(lambda one=gateway: rig.landed(one).dead_letters, what="the dead letter")
    finally:
        set_largest_record(rig.kafka_settings, READINGS, before)
    for gateway in rig.gateways:
        letters = {(letter.device, letter.reason) for _, letter in rig.landed(gateway).dead_letters}
        assert letters == {(f"{rig.name}-large", "kafka_too_large")}
        assert rig.judge(gateway).reordered == 0


def test_a_topic_that_is_deleted_is_made_anew_aloud(rig: Any, wait_until: Any) -> None:
    rig.load.send(20)
    wait_until(lambda: all(rig.has_all(one) for one in rig.gateways), what="all stored")
    admin = AdminClient({"bootstrap.servers": rig.kafka_settings.bootstrap_servers})
    admin.delete_topics([READINGS])[READINGS].result(60)
    rig.load.start(50)
    told = "Topic telemetry.readings was deleted while in use"
    wait_until(lambda: any(told in one.log() for one in rig.gateways), what=told)
    for gateway in rig.gateways:
        wait_until(gateway.healthy, what="messages flowing again")
    rig.load.pause()
    first_after = len(rig.load.sent)
    rig.load.send(20)
    newest = set(list(rig.load.sent)[first_after:])
    assert rig.load.finish()
    for gateway in rig.gateways:
        reader = KafkaReader(rig.kafka_settings, gateway.name)
        reader._at[READINGS] = {}
        wait_until(lambda one=reader: newest <= one.look().keys(), what="what came after it")


class SmallDisk:
    """A file system of its own for Kafka's records, which can be full, or refuse to be written to."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder, self._image = folder, image
        with image.open("wb") as file:
            file.truncate(80 * 1024**2)
        self._run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        folder.mkdir()
        self.mount()

    def mount(self) -> None:
        self._run("mount", "-o", "loop", str(self._image), str(self.folder))

    def fill(self) -> None:
        left = shutil.disk_usage(self.folder).free
        with (self.folder / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, left - 64 * 1024)

    def free(self) -> None:
        (self.folder / "filler").unlink()

    def refuse(self) -> None:
        """As after a fault of the device: read-only, with files open for writing."""
        self._run("sync", "-f", str(self.folder))
        self._run("mount", "-o", "remount,abort", str(self.folder))

    def repair(self) -> None:
        self._run("umount", str(self.folder))
        self._run("e2fsck", "-p", str(self._image), ok=(0, 1))
        self.mount()

    def close(self) -> None:
        self._run("umount", "-l", str(self.folder))

    def _run(self, *command: str, ok: tuple[int, ...] = (0,)) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in ok:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        disk = SmallDisk(tmp_path / "image", tmp_path / "small disk")
    except OSError as error:
        pytest.skip(f"this user can make no file system of its own ({error})")
    yield disk
    disk.close()


def test_a_kafka_whose_disk_is_full_and_then_read_only(
    fault_rig: Callable[..., Any],
    start_all: Callable[..., None],
    assert_whole: Callable[..., Any],
    wait_until: Any,
    small_disk: SmallDisk,
    tmp_path: Path,
) -> None:
    """Kafka ends itself when it cannot write. The gateway acknowledges nothing meanwhile, and goes on afterwards."""
    part = EmbeddedKafka(small_disk.folder / "kafka", find_java(), choose_port(0)[0], choose_port(0)[0], heap="256m")
    kafka = SingleServer(part, tmp_path / "small-kafka.log")
    try:
        rig = fault_rig(kafka=kafka)
        for protocol in PROTOCOLS:
            rig.add(protocol)
        start_all(rig)
        rig.load.send(20)
        assert_whole(rig)
        for begin, end in ((small_disk.fill, small_disk.free), (small_disk.refuse, small_disk.repair)):
            begin()
            rig.load.start(300)
            wait_until(lambda: kafka.ended is not None, seconds=60, what="Kafka's end")
            rig.load.pause()
            end()
            kafka.start()
            for verdict in assert_whole(rig):
                assert verdict.repeated == 0
    finally:
        kafka.kill()
