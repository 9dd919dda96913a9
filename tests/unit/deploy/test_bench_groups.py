"""Figures of a consumer group from what its members wrote down."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from deploy.bench.kafka_load.group_run import GroupRun, MemberJournal, _Member, figures_of
from deploy.bench.kafka_load.worker import LoadWorker
from deploy.bench.suite.scenario import Scenario, ScenarioTarget

RUN = GroupRun(topic="t", members=2, partitions=2, protocol="cooperative")


def journal(records: Sequence[tuple[int, int, int]], has: str = "") -> MemberJournal:
    lines = [f"a 1 {has}", *(f"r {partition} {number} {at}" for partition, number, at in records)]
    return MemberJournal.read("\n".join(lines) + "\n")


def figures(one: MemberJournal, other: MemberJournal, *, at_us: int = 0, acknowledged: int = 4) -> dict[str, float]:
    return figures_of(RUN, {"a": one, "b": other}, ["a", "b"], {n: n * 1000 for n in range(acknowledged)}, at_us)


def test_a_line_that_a_kill_cut_off_is_left_out() -> None:
    found = MemberJournal.read("a 5 0,1\nr 0 7 100\na 6 \nr 1 8 2")
    assert found.records == [(0, 7, 100)]
    assert [has for _, has in found.assignments] == [frozenset({0, 1}), frozenset()]


def test_a_journal_is_read_once_however_often_it_is_looked_at(tmp_path: Path) -> None:
    member = _Member("m", cast("LoadWorker", None), tmp_path / "m")
    assert member.journal().records == []
    with member.file.open("a") as file:
        file.write("a 5 0\nr 0 7 100\nr 0 ")
        file.flush()
        assert member.journal().records == [(0, 7, 100)]
        file.write("8 200\nr 1 9 300\n")
    found = member.journal()
    assert (found.records, found.read_at) == ([(0, 7, 100), (0, 8, 200), (1, 9, 300)], {0: 200, 1: 300})
    assert member.journal() is found and len(found.records) == 3


def test_a_quiet_group_has_nothing_lost_again_or_out_of_order() -> None:
    found = figures(
        journal([(0, 0, 10_000), (0, 2, 30_000)], "0"), journal([(1, 1, 20_000), (1, 3, 45_000)], "1"), at_us=25_000
    )
    assert found == {
        "idle_members": 0, "most_partitions": 1, "least_partitions": 1, "unread_partitions": 0, "pause_ms": 25.0,
        "partition_pause_ms": 25.0, "unacknowledged_ms": 0.0, "lost": 0, "again": 0, "out_of_order": 0,
    }  # fmt: skip


def test_loss_repeats_and_wrong_order_are_counted() -> None:
    # 0 is read twice, which a death allows; 2 comes after 4, which nothing allows; 1 and 3 never come.
    found = figures(journal([(0, 0, 1), (0, 0, 2), (0, 4, 3), (0, 2, 4)], "0"), journal([], ""), acknowledged=5)
    assert (found["lost"], found["again"], found["out_of_order"]) == (2, 1, 1)
    assert (found["idle_members"], found["unread_partitions"]) == (1, 1)


def test_the_longest_wait_for_an_acknowledgement_is_that_of_a_partition() -> None:
    """Partition 0 waits 30 s for its next leader; the records of partition 1 are acknowledged meanwhile."""
    event, back = 5_000_000, 35_000_000

    def waited(zero: Sequence[int]) -> float:
        times = {2 * number: at for number, at in enumerate(zero)}
        times |= {2 * number + 1: at for number, at in enumerate(range(0, 60_000_001, 10_000))}
        quiet = {"a": journal([(0, 0, 1), (1, 1, 1)], "0"), "b": journal([], "1")}
        return figures_of(RUN, quiet, ["a", "b"], times, event)["unacknowledged_ms"]

    assert waited([0, event - 1000, back, *range(back, 60_000_001, 10_000)]) == 30_001.0
    # One that no leader serves until the end of the run waits until then, also where it was never served.
    assert waited([0, event - 1000]) == 55_001.0
    assert waited([]) == 55_000.0
    assert waited(range(0, 60_000_001, 10_000)) == 10.0


@pytest.mark.parametrize(("at_us", "pause"), [(15_000, 50.0), (60_000, 30.0), (95_000, 0.0), (5_000, 0.0)])
def test_a_pause_counts_after_the_event_and_for_who_had_read_before_it(at_us: int, pause: float) -> None:
    records = [(0, 0, 10_000), (0, 2, 60_000), (0, 3, 90_000)]
    assert figures(journal(records, "0"), journal([], "1"), at_us=at_us)["pause_ms"] == pause


def test_a_cell_with_more_copies_than_brokers_is_left_out_of_that_target() -> None:
    scenario = Scenario(
        title="t", matrix=[{"replication": [1, 3]}], targets=[ScenarioTarget(brokers=1), ScenarioTarget(brokers=3)]
    )  # fmt: skip
    assert [(cell.target.brokers, cell.workload.replication) for cell in scenario.cells() if cell.target] == [
        (1, 1), (3, 1), (3, 3),
    ]  # fmt: skip


def test_a_block_that_names_a_property_of_targets_is_for_those_alone() -> None:
    scenario = Scenario(
        title="t",
        matrix=[{"security": "plaintext", "message_bytes": [10, 20]}, {"message_bytes": 30}],
        targets=[ScenarioTarget(), ScenarioTarget(security="sasl_ssl")],
    )

    def cells(one: Scenario) -> list[tuple[str, int]]:
        return [(cell.target.security, cell.workload.message_bytes) for cell in one.cells() if cell.target]

    assert cells(scenario) == [("plaintext", 10), ("plaintext", 20), ("plaintext", 30), ("sasl_ssl", 30)]
    assert [one.message_bytes for one in scenario.workloads] == [10, 20, 30]
    asked = scenario.with_parameters({"security": "sasl_ssl"})
    assert cells(asked) == [("sasl_ssl", 10), ("sasl_ssl", 20), ("sasl_ssl", 30)], "what is asked for now wins"
