"""Partitioners by client address, a reader that goes back, and cold segments, on a real Kafka."""

from collections import Counter
from typing import Any

import pytest

from deploy.bench.kafka_load.addresses import assign_partitions, client_addresses, skew_figures
from deploy.bench.kafka_load.group_run import GroupRun, run_group
from deploy.bench.kafka_load.partitioner import run_partitioner
from deploy.bench.kafka_load.rewinding import Way, run_rewind
from deploy.bench.kafka_load.segments import SegmentFiles
from deploy.bench.kafka_load.workload import Workload
from deploy.bench.kafka_load.workload_run import run_workload
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import admin_client, partition_counts

TOPIC = "tidegate-bench-keyed"
COUNT = 6000


@pytest.fixture
def kafka(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)


def test_each_partitioner_spreads_as_it_says_and_loses_nothing(kafka: KafkaSettings) -> None:
    found = {
        name: run_partitioner(
            Workload(topic=f"{TOPIC}-{name}", messages=COUNT, partitions=4), kafka, partitioner=name, networks=50
        )
        for name in ("network", "balanced", "murmur2", "round_robin")
    }
    addresses = client_addresses(COUNT, networks=50)
    for name in ("network", "balanced"):
        sizes = Counter(assign_partitions(addresses, name, 4))
        expected = skew_figures([sizes[number] for number in range(4)])
        assert {key: found[name][key] for key in expected} == expected, "Kafka has what the partitioner chose"
        assert found[name]["split_networks"] == 0
    assert all(found[name]["split_keys"] == found[name]["out_of_order"] == 0 for name in found if name != "round_robin")
    assert found["murmur2"]["split_networks"] > 0 and found["round_robin"]["split_keys"] > 0
    assert found["round_robin"]["most_to_mean"] == 1
    for one in found.values():
        assert (one["lost"], one["again"], one["consumed"], one["errors"]) == (0, 0, COUNT, 0)
    assert not [name for name in partition_counts(admin_client(kafka), kafka) if name.startswith(TOPIC)]


@pytest.mark.parametrize("way", ["seek_offset", "seek_time", "group_offset", "group_time"])
def test_a_rewound_reader_reads_the_second_half_again_and_nothing_else(kafka: KafkaSettings, way: Way) -> None:
    found = run_rewind(Workload(topic=f"{TOPIC}-{way}", messages=4001, partitions=3), kafka, way)
    assert (found["again"], found["lost"], found["unexpected"]) == (2003, 0, 0)
    assert found.get("planned_again", found["again"]) == found["again"]
    assert 0 < found["rewind_first_ms"] <= found["rewind_all_ms"]


def test_members_of_a_range_group_have_their_contiguous_ranges_after_a_change(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.bench.kafka_load.group_run._STEADY_SECONDS", 0.5)
    found = run_group(GroupRun(topic=f"{TOPIC}-range", members=2, event="join", partitions=5), kafka)
    assert (found["off_range_members"], found["most_partitions"], found["lost"]) == (0, 2, 0)


def test_cold_segments_come_from_the_disk_and_what_is_retained_is_read_too(
    kafka: KafkaSettings, kafka_server: Any
) -> None:
    workload = Workload(
        topic=TOPIC, messages=2000, message_bytes=5000, retained_mb=5, cold=True, fetch_bytes=100_000,
        properties=(("segment.bytes", "2097152"),),
    )  # fmt: skip
    files = SegmentFiles([kafka_server.part.data_dir / "records"], TOPIC, {"broker": kafka_server.pid})
    found = run_workload(workload, kafka, files=files)
    assert (found["consumed"], found["lost"], found["duplicates"], found["errors"]) == (3000, 0, 0, 0)
    assert found["stored_mb"] >= 15 and found["cold_mb"] == found["stored_mb"]
    assert found["disk_read_mb"] >= 0.9 * found["cold_mb"]
    assert found["fill_mb_per_second"] > 0 < found.get("broker_cpu_us_per_mb_read", 1)
    with pytest.raises(UnavailableError, match="need a cluster on this machine"):
        run_workload(workload, kafka)
