"""The gateway's clock against Kafka's, and a clock that was never set."""

import logging
from typing import Any

import pytest
from prometheus_client import Gauge

from gateway.time_rules import YEAR_2000_S, refuse_unset_clock
from ingest.contract.errors import FatalError
from ingest.lag.kafka_clock import ClockWatch


class Cluster:
    """One partition that gets a record every look, stamped by Kafka's clock."""

    def __init__(self, off_seconds: float) -> None:
        self.now, self.off, self.offset = 1_800_000_000.0, off_seconds, 0

    def wall(self) -> float:
        return self.now

    def newest(self, partition: int) -> tuple[int, int] | None:
        return self.offset, int((self.now - 4 + self.off) * 1000)

    def pass_seconds(self, seconds: float, *, records: int = 1) -> None:
        self.now, self.offset = self.now + seconds, self.offset + records


def watch(cluster: Cluster) -> tuple[ClockWatch, Gauge]:
    gauge = Gauge("skew", "Skew.", registry=None)
    return ClockWatch(cluster.newest, gauge, wall=cluster.wall), gauge


@pytest.mark.parametrize("off", [0.0, 2.0, -3.0])
def test_clocks_that_may_agree_show_no_difference(off: float) -> None:
    cluster = Cluster(off)
    watched, gauge = watch(cluster)
    for _ in range(5):
        watched.look()
        cluster.pass_seconds(10)
    assert gauge._value.get() == 0


@pytest.mark.parametrize(("off", "words"), [(600.0, "s behind Kafka's"), (-86_400.0, "s ahead of Kafka's")])
def test_a_wrong_clock_is_measured_logged_once_and_over_when_it_is_set(off: float, words: str, caplog: Any) -> None:
    cluster = Cluster(off)
    watched, gauge = watch(cluster)
    with caplog.at_level(logging.ERROR):
        for _ in range(4):
            watched.look()
            cluster.pass_seconds(10)
    assert abs(gauge._value.get() - off) <= 10
    assert [words in record.getMessage() for record in caplog.records] == [True]
    cluster.off = 0.0
    for _ in range(2):
        watched.look()
        cluster.pass_seconds(10)
    assert gauge._value.get() == 0


def test_without_new_records_nothing_is_claimed() -> None:
    cluster = Cluster(600.0)
    watched, gauge = watch(cluster)
    for _ in range(3):
        watched.look()
        cluster.pass_seconds(10, records=0)
    assert gauge._value.get() == 0
    silent = ClockWatch(lambda partition: None, gauge, wall=cluster.wall)
    assert silent.look() == 0


def test_a_clock_that_was_never_set_is_refused_with_the_next_step() -> None:
    refuse_unset_clock(lambda: YEAR_2000_S)
    with pytest.raises(FatalError, match=r"before 2000.*Set the clock.*The broker keeps"):
        refuse_unset_clock(lambda: 86_400.0)
