"""Lag in seconds, time to data loss and Kafka's clock: what follows from offsets and times, without Kafka."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.lag.cluster_facts import DataLossForecast
from ingest.lag.cluster_probe import cluster_samples, unreachable_samples
from ingest.lag.cluster_state import ClusterState, GroupPartition, PartitionState, TopicRetention
from ingest.lag.kafka_clock import KafkaClock
from ingest.lag.tracker import UnreadTimes
from ingest.topics.copies import Copies
from monitoring.metrics.monitor import KAFKA

KEY = ("group", "topic", 0)
LOG = ("topic", 0)


class TestUnreadTimes:
    def test_nothing_is_known_before_the_first_read(self) -> None:
        assert UnreadTimes().age_seconds(KEY, 5, end=9, now=100.0) is None

    def test_an_unread_record_grows_old_while_nothing_moves(self) -> None:
        times = UnreadTimes()
        times.learn(KEY, 5, 90.0, end=9, now=100.0)
        assert [times.age_seconds(KEY, 5, end=9, now=now) for now in (100.0, 130.0)] == [10.0, 40.0]

    def test_a_record_is_read_once_and_a_partition_at_most_every_five_seconds(self) -> None:
        times = UnreadTimes()
        assert times.is_due(KEY, 5, 100.0)
        assert not times.is_due(KEY, 5, 103.0), "a read that failed waits its turn too"
        assert times.is_due(KEY, 5, 105.0)
        times.learn(KEY, 5, 90.0, end=9, now=105.0)
        assert not times.is_due(KEY, 5, 1000.0), "its time does not change"
        assert times.is_due(KEY, 6, 1000.0)
        assert not times.is_due(KEY, 7, 1004.0)
        assert times.is_due(KEY, 7, 900.0), "a clock that was set back does not end the reading"

    def test_between_reads_it_is_reckoned_from_the_pace_at_which_records_came(self) -> None:
        times = UnreadTimes()
        times.learn(KEY, 0, 0.0, end=100, now=100.0)
        assert times.age_seconds(KEY, 50, end=120, now=102.0) == 52.0
        assert times.age_seconds(KEY, 110, end=120, now=102.0) == 1.0
        assert times.age_seconds(KEY, 0, end=120, now=102.0) == 102.0

    @given(
        position=st.integers(0, 100),
        end=st.integers(1, 200),
        asked=st.integers(0, 100),
        now=st.floats(0, 1e6, allow_nan=False),
    )
    def test_an_age_is_never_negative_nor_older_than_what_was_read(
        self, position: int, end: int, asked: int, now: float
    ) -> None:
        times = UnreadTimes()
        times.learn(KEY, asked, 10.0, end=50, now=20.0)
        age = times.age_seconds(KEY, position, end=end, now=20.0 + now)
        assert age is not None
        assert 0.0 <= age <= 10.0 + now + 1e-6

    def test_groups_that_are_gone_are_forgotten(self) -> None:
        times = UnreadTimes()
        times.learn(KEY, 5, 90.0, end=9, now=100.0)
        times.keep([])
        assert times.age_seconds(KEY, 5, end=9, now=100.0) is None


class TestDataLoss:
    full = TopicRetention(seconds=7 * 86400.0, size_bytes=8000.0, segment_bytes=1000.0)

    def left(
        self, loss: DataLossForecast, position: int, age: float, end: int, now: float, retention: TopicRetention
    ) -> float:
        return loss.seconds_left(LOG, position=position, age_seconds=age, end=end, retention=retention, now=now)

    def test_age_alone_counts_where_the_log_never_dropped_anything(self) -> None:
        loss = DataLossForecast()
        loss.observe(LOG, oldest=0, end=100, now=0.0)
        loss.observe(LOG, oldest=0, end=10_000, now=20.0)
        assert self.left(loss, 5, 3600.0, 10_000, 20.0, self.full) == 7 * 86400.0 - 3600.0
        assert self.left(loss, 5, 8 * 86400.0, 10_000, 20.0, self.full) == 0.0
        assert self.left(loss, 5, 1e9, 10_000, 20.0, TopicRetention()) == math.inf

    def test_a_full_log_gives_its_headroom_over_the_pace_of_what_comes_in(self) -> None:
        loss = DataLossForecast()
        loss.observe(LOG, oldest=1000, end=9000, now=0.0)
        assert self.left(loss, 3000, 1.0, 9000, 0.0, self.full) > 86400.0, "no pace is known yet"
        loss.observe(LOG, oldest=1000, end=11_000, now=20.0)
        assert self.left(loss, 3000, 1.0, 11_000, 20.0, self.full) == 20.0
        assert self.left(loss, 1000, 1.0, 11_000, 20.0, self.full) == 0.0

    def test_a_log_whose_limit_was_raised_is_not_full(self) -> None:
        loss = DataLossForecast()
        end = 9000
        for step in range(200):
            loss.observe(LOG, oldest=1000, end=end, now=10.0 * step)
            end += 100
        assert self.left(loss, 3000, 1.0, end, 2000.0, self.full) > 86400.0
        loss.observe(LOG, oldest=2000, end=end, now=2001.0)
        assert self.left(loss, 3000, 1.0, end, 2001.0, self.full) < 200.0, "it drops again"

    def test_a_topic_that_was_made_anew_begins_anew(self) -> None:
        loss = DataLossForecast()
        loss.observe(LOG, oldest=1000, end=9000, now=0.0)
        loss.observe(LOG, oldest=0, end=10, now=20.0)
        assert self.left(loss, 0, 1.0, 10, 20.0, self.full) == 7 * 86400.0 - 1.0


class TestKafkaClock:
    def test_clocks_that_may_both_be_right_are_taken_so(self) -> None:
        clock = KafkaClock(lambda: 1000.0)
        assert clock.now() == 1000.0
        clock.observe(999_000, after=998.5, before=1000.0)
        assert clock.now() == 1000.0

    def test_bounds_of_many_looks_narrow_a_difference_down(self) -> None:
        clock = KafkaClock(lambda: 1000.0)
        # Kafka is 30 s ahead; the record came in somewhere between two looks.
        clock.observe(1028_500, after=998.0, before=1000.0)
        assert 28.4 < clock.skew_seconds < 30.6
        for look in range(50):
            came_in = 1000.0 + 2 * look + (look * 7 % 20) / 10
            clock.observe(round((came_in + 30.0) * 1000), after=1000.0 + 2 * look, before=1002.0 + 2 * look)
        assert abs(clock.skew_seconds - 30.0) < 0.11

    def test_a_clock_that_was_set_counts_from_then_on(self) -> None:
        clock = KafkaClock(lambda: 1000.0)
        clock.observe(1_029_000, after=998.0, before=1000.0)
        clock.observe(999_000, after=998.0, before=1000.0)
        assert clock.skew_seconds == 0.0


class TestSamples:
    state = ClusterState(
        1,
        (PartitionState("a", 0, 3, 9, 1, (1, 2), (1,)), PartitionState("a", 1, None, None, -1, (1, 2), ())),
        (
            GroupPartition("g", "a", 0, 4, 5, 7.0, 100.0),
            GroupPartition("g", "a", 1, None, 2, 9.0, None),
            GroupPartition("g", "b", 0, None, 2, None, None),
            GroupPartition("g", "b", 1, 5, 0, 0.0, math.inf),
            GroupPartition("g", "c", 0, 5, 0, 0.0, math.inf),
        ),
    )

    def test_names_and_labels_are_the_declared_ones(self) -> None:
        declared = {family.name: len(family.labels) for family in KAFKA}
        samples = cluster_samples(self.state)
        assert samples.keys() == declared.keys()
        assert all(len(labels) == declared[name] for name, series in samples.items() for labels, _ in series)
        assert unreachable_samples() == {"tidegate_kafka_reachable": [((), 0.0)]}

    def test_what_is_not_known_has_no_series(self) -> None:
        samples = cluster_samples(self.state)
        assert samples["kafka_topic_partition_current_offset"] == [(("a", "0"), 9.0)]
        assert samples["kafka_topic_partition_leader"] == [(("a", "0"), 1.0), (("a", "1"), -1.0)]
        assert samples["kafka_topic_partition_under_replicated_partition"] == [(("a", "0"), 1.0), (("a", "1"), 1.0)]
        assert samples["kafka_consumergroup_current_offset"][0] == (("g", "a", "0"), 4.0)
        assert len(samples["kafka_consumergroup_current_offset"]) == 3
        # The worst partition; none of `b`, of which one is behind and it is not known since when; 0 of `c`.
        assert samples["tidegate_kafka_lag_seconds"] == [(("g", "a"), 9.0), (("g", "c"), 0.0)]
        left = [(("g", "a"), 100.0), (("g", "c"), math.inf)]
        assert samples["tidegate_kafka_time_to_data_loss_seconds"] == left

    @pytest.mark.parametrize(
        ("in_sync", "least", "told"),
        [
            ((3, 3), 2, 0.0),
            ((3, 2), 2, 0.0),
            ((3, 1), 2, 1.0),
            ((1, 0), 2, 2.0),
            # Kafka wants no more replicas in sync than there are.
            ((3, 3), 5, 0.0),
            ((3, 2), 5, 1.0),
        ],
    )
    def test_partitions_that_kafka_refuses_records_for(self, in_sync: tuple[int, ...], least: int, told: float) -> None:
        partitions = tuple(
            PartitionState("a", number, 0, 9, 1, (1, 2, 3), (1, 2, 3)[:count]) for number, count in enumerate(in_sync)
        )
        other = PartitionState("b", 0, 0, 9, 1, (1, 2, 3), ())
        samples = cluster_samples(ClusterState(1, (*partitions, other), (), {"a": least}))
        assert samples["tidegate_kafka_under_min_isr_partitions"] == [(("a",), told)], "of `b` nobody knows the bound"

    @pytest.mark.parametrize(
        ("replicas", "least", "wanted", "missing"),
        [
            ((1, 2, 3), 2, Copies(3, 2), 0.0),
            ((1, 2, 3), 1, Copies(3, 2), 1.0),
            # Kafka takes one copy for enough where there is only one, whatever min.insync.replicas says.
            ((1,), 2, Copies(3, 2), 2.0),
            ((1, 2), 2, Copies(3, 2), 1.0),
            ((1, 2), None, Copies(2, 2), 0.0),
            ((1, 2, 3), 3, Copies(2, 1), 0.0),
        ],
    )
    def test_copies_that_an_acknowledged_record_lacks(
        self, replicas: tuple[int, ...], least: int | None, wanted: Copies, missing: float
    ) -> None:
        """K17: one copy was enough for PUBACK, and nothing watched it."""
        partitions = (
            PartitionState("a", 0, 0, 9, 1, (1, 2, 3), (1, 2, 3)),
            PartitionState("a", 1, 0, 9, 1, replicas, replicas),
        )
        known = {} if least is None else {"a": least}
        samples = cluster_samples(ClusterState(3, partitions, (), known, wanted))
        assert samples["tidegate_kafka_missing_copies"] == [(("a",), missing)]
