"""Client addresses, partitioners, ranges of a group and segment files, without a Kafka."""

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.addresses import (
    assign_partitions,
    client_addresses,
    late_records,
    network_of,
    skew_figures,
    split_keys,
)
from deploy.bench.kafka_load.group_run import GroupRun, MemberJournal, figures_of, range_shares
from deploy.bench.kafka_load.keyed import batches_of, feed_batches
from deploy.bench.kafka_load.partitioner import run_partitioner
from deploy.bench.kafka_load.rewinding import run_rewind, second_half
from deploy.bench.kafka_load.segments import SegmentFiles, resident_bytes
from deploy.bench.kafka_load.workload import Workload, due_us
from deploy.bench.kafka_load.workload_run import run_workload
from deploy.bench.suite.library import load_scenario
from deploy.bench.suite.parameters import cell_text, differing_parameters
from deploy.bench.suite.report.html_tables import figures_shown
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.kafka_settings import KafkaSettings


def test_a_population_repeats_and_few_networks_send_most() -> None:
    found = client_addresses(20_000, networks=200)
    assert found == client_addresses(20_000, networks=200) != client_addresses(20_000, networks=200, seed=2)
    assert all(len(address.split(b".")) == 4 and 1 <= int(address.rpartition(b".")[2]) <= 254 for address in found)
    networks = Counter(map(network_of, found))
    assert len(networks) <= 200
    most = networks.most_common(20)
    assert sum(count for _, count in most) > 10_000, "a tenth of the networks sends more than half"
    assert network_of(b"10.1.2.3") == b"10.1.2"


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.integers(1, 7))
def test_a_network_has_one_partition_and_turns_are_even(chosen: list[int], partitions: int) -> None:
    addresses = [f"10.0.{number // 4}.{number % 4}".encode() for number in chosen]
    for partitioner in ("network", "balanced"):
        places = assign_partitions(addresses, partitioner, partitions)
        of_network = defaultdict(set)
        for address, place in zip(addresses, places, strict=True):
            assert place is not None and 0 <= place < partitions
            of_network[network_of(address)].add(place)
        assert all(len(found) == 1 for found in of_network.values())
    sizes = Counter(assign_partitions(addresses, "round_robin", partitions))
    assert max(sizes.values()) - min(sizes[number] for number in range(partitions)) <= 1
    assert set(assign_partitions(addresses, "murmur2", partitions)) == {None}, "the client library decides"


def test_known_networks_lie_more_evenly_than_hashed_ones() -> None:
    addresses = client_addresses(50_000, networks=300)

    def most(partitioner: Any) -> float:
        sizes = Counter(assign_partitions(addresses, partitioner, 8))
        return skew_figures([sizes[number] for number in range(8)])["most_to_mean"]

    heaviest = Counter(map(network_of, addresses)).most_common(1)[0][1] / (50_000 / 8)
    assert most("balanced") <= max(1.1, heaviest * 1.1) < most("network")


def test_skew_is_one_and_zero_where_partitions_are_equal() -> None:
    assert skew_figures([5, 5, 5]) == {"most_to_mean": 1.0, "size_variation": 0.0}
    assert skew_figures([0, 10]) == {"most_to_mean": 2.0, "size_variation": 1.0}
    assert skew_figures([0, 0]) == {"most_to_mean": 0.0, "size_variation": 0.0}


def test_keys_in_two_partitions_and_late_records_are_counted() -> None:
    read = [(0, b"a", 1), (0, b"a", 3), (1, b"b", 2), (1, b"a", 2), (0, b"b", 4)]
    assert (split_keys(read), late_records(read)) == (2, 1)


@given(st.integers(1, 9), st.integers(1, 40), st.randoms())
def test_ranges_are_contiguous_in_the_order_of_the_names(members: int, partitions: int, chance: Any) -> None:
    names = [f"member-{number:02d}" for number in range(members)]
    chance.shuffle(names)
    shares = range_shares(names, partitions)
    assert [number for name in sorted(names) for number in sorted(shares[name])] == list(range(partitions))
    sizes = [len(shares[name]) for name in sorted(names)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


def test_a_member_off_its_range_is_counted_and_only_of_a_range_group() -> None:
    def figures(first: str, second: str, protocol: Any = "range") -> dict[str, float]:
        run = GroupRun(topic="t", members=2, partitions=4, protocol=protocol)
        journals = {
            "a": MemberJournal.read(f"m z\na 1 {first}\nr 0 0 1\n"),
            "b": MemberJournal.read(f"m y\na 1 {second}\nr 1 1 1\n"),
        }
        return figures_of(run, journals, ["a", "b"], {}, 0)

    assert figures("2,3", "0,1")["off_range_members"] == 0, "member y comes before member z"
    assert figures("0,1", "2,3")["off_range_members"] == figures("0,2", "1,3")["off_range_members"] == 2
    assert "off_range_members" not in figures("2,3", "0,1", "consumer")
    nameless = figures_of(
        GroupRun(topic="t", members=1), {"a": MemberJournal.read("a 1 0,1,2,3\nr 0 0 1\n")}, ["a"], {}, 0
    )
    assert nameless["off_range_members"] == 1


@given(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=200), st.integers(0, 9), st.sampled_from([0.0, 100.0]))
def test_calls_are_for_one_partition_each_and_keep_its_order(places: list[int | None], first: int, rate: float) -> None:
    keys = [f"k{number}".encode() if number % 3 else None for number in range(len(places))]
    found = batches_of(keys, places, b"..", first=first, rate=rate)
    read: dict[int, list[int]] = defaultdict(list)
    for place, records in found:
        assert records and (not rate or len(records) <= 5)
        for one in records:
            number = due_us(one["value"])
            assert one.get("key") == keys[number - first] and len(one["value"]) == 10
            read[place].append(number)
    wanted: dict[int, list[int]] = defaultdict(list)
    for number, place in enumerate(places, start=first):
        wanted[-1 if place is None else place].append(number)
    assert read == wanted


class _Producer:
    def __init__(self, *, refuses: bool = False, keeps: int = 0) -> None:
        self._refuses, self._keeps = refuses, keeps

    def produce_batch(self, _topic: str, records: list[dict[str, Any]], *, partition: int) -> int:
        if self._refuses:
            records[-1]["_error"] = "too large"
        return len(records) - self._refuses

    def poll(self, _seconds: float) -> None:
        pass

    def flush(self, _seconds: float) -> int:
        return self._keeps


def test_a_refused_record_ends_the_run_for_a_second_try_would_come_out_of_order() -> None:
    batches = batches_of([b"k"], [0], b"")
    feed_batches(cast("Any", _Producer()), "t", batches)
    with pytest.raises(UnavailableError, match="rejected a record of topic t: too large"):
        feed_batches(cast("Any", _Producer(refuses=True)), "t", batches)
    with pytest.raises(UnavailableError, match="did not accept 3 records"):
        feed_batches(cast("Any", _Producer(keeps=3)), "t", batches)


def test_runs_out_of_range_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="wanted at most 1,000 MB together"):
        run_partitioner(Workload(topic="t", messages=2_000_000, message_bytes=1000), KafkaSettings())
    with pytest.raises(ConfigError, match="7 messages, wanted two for each of 4 partitions"):
        run_rewind(Workload(topic="t", messages=7, partitions=4), KafkaSettings())
    assert second_half(Workload(topic="t", messages=9, partitions=2)) == range(4, 9)


def test_what_is_dropped_from_the_page_cache_and_what_stays_is_all_of_it(tmp_path: Path) -> None:
    place = tmp_path / "records" / "t-0"
    for folder in (place, tmp_path / "records" / "t-0.4f-delete", tmp_path / "records" / "t-warm-0"):
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(os.urandom(300_001))
        (folder / "0.index").write_bytes(b"x")
    (place / "1.log").touch()
    files = SegmentFiles([tmp_path / "records"], "t", {"me": os.getpid(), "gone": 2**22 + 1})
    assert files.logs == [place / "0.log", place / "1.log"] and files.stored_mb == 0.300001
    assert resident_bytes(place / "0.log") == 300_001
    assert files.drop() * 1e6 == pytest.approx(300_001 - resident_bytes(place / "0.log"))
    with files.cost() as cost:
        sum(range(2_000_000))
    assert cost.cpu_seconds > 0 <= cost.disk_bytes


def test_a_run_waits_for_the_files_of_its_large_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t-0.4f-delete").mkdir()
    files = SegmentFiles([tmp_path], "t")
    monkeypatch.setattr("deploy.bench.kafka_load.segments._GONE_SECONDS", 0.0)
    assert not files.await_gone()
    (tmp_path / "t-0.4f-delete").rmdir()
    assert files.await_gone()


def test_cold_segments_want_files_that_can_be_reached() -> None:
    with pytest.raises(UnavailableError, match="cold segments need a cluster on this machine"):
        run_workload(Workload(topic="t", messages=1, cold=True), KafkaSettings())
    with pytest.raises(ConfigError, match="cold is True, wanted False in mode stream"):
        Workload(topic="t", messages=1, cold=True, mode="stream")
    with pytest.raises(ConfigError, match="retained_mb is 1, wanted 0 in mode stream"):
        Workload(topic="t", messages=1, retained_mb=1, mode="stream")


def test_retained_data_counts_as_records_and_as_bytes() -> None:
    workload = Workload(topic="t", messages=500, message_bytes=10_000, retained_mb=20, replication=2)
    assert (workload.retained, workload.stored, workload.megabytes) == (2000, 2500, 50)
    assert Workload(topic="t", messages=500, message_bytes=10_000, sessions=4).megabytes == 20, (
        "each session writes all"
    )


def test_a_cell_is_shown_with_the_parameters_of_its_kind_alone() -> None:
    _, scenario = load_scenario("partitioner")
    cells = [cell.parameters for cell in scenario.cells()]
    names = differing_parameters(cells)
    texts = {cell_text(cell, names) for cell in cells}
    assert {"kind=partitioner partitioner=balanced", "kind=rewind rewind=seek_time", "kind=group event=die"} <= texts
    assert len(texts) == len(cells), "each cell is told apart from the others"


def test_a_cell_shows_what_it_measured_and_a_failed_one_what_is_missing() -> None:
    def cell(**figures: float) -> dict[str, Any]:
        return {"kind": "load", "goals": [], "baselines": {}, "spread": dict.fromkeys(figures)}

    cells = [cell(stored_mb=1, cold_mb=1), cell(stored_mb=1), cell()]
    shows = ["cold_mb", "stored_mb", "never_seen"]
    assert [figures_shown(one, cells, shows) for one in cells] == [
        ["cold_mb", "stored_mb"], ["stored_mb"], ["cold_mb", "stored_mb"],
    ]  # fmt: skip
