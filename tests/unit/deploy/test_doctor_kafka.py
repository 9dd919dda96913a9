"""Findings of `doctor` about topics, copies, retention, the stream's position and clocks, from facts that are given."""

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from deploy.doctor.clock_checks import check_broker_clock, check_kafka_clock
from deploy.doctor.kafka_checks import NEEDED, KafkaFacts, check_topics
from deploy.local.preflight import PreflightCheck
from ingest.contract.topics import GATEWAY_STATE, LAND_GROUP, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_state import ClusterState, GroupPartition, PartitionState, TopicRetention, TopicSettings
from ingest.topics.copies import Copies
from ingest.topics.overview import TopicOverview

DAY = 86_400.0
NOW = 1_800_000_000.0


def overview(
    name: str,
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    oldest: int = 0,
    age_s: float = DAY,
    least: int = 2,
    **retention: float,
) -> TopicOverview:
    partition = PartitionState(name, 0, oldest, 100, replicas[0], replicas, replicas)
    kept = TopicRetention(**{"seconds": 7 * DAY, "size_bytes": 1e10, **retention})  # type: ignore[arg-type]
    settings = TopicSettings(kept, min_in_sync=least)
    return TopicOverview(name, (partition,), settings, {0: int((NOW - age_s) * 1000)})


def facts(*topics: TopicOverview, brokers: int = 3, least: int = 2, wanted: Copies = Copies(3, 2)) -> KafkaFacts:  # noqa: B008
    shown = {one.name: one for one in (*(overview(name, least=least) for name in NEEDED), *topics)}
    partitions = tuple(one for topic in shown.values() for one in topic.partitions)
    group = GroupPartition(LAND_GROUP, READINGS, 0, 100, 0, 0.0, math.inf)
    state = ClusterState(brokers, partitions, (group,), dict.fromkeys(shown, least), wanted)
    return KafkaFacts(state, tuple(shown.values()), {name: [] for name in NEEDED}, NOW)


def check(found: KafkaFacts, *, outage_seconds: float = 3 * DAY) -> list[PreflightCheck]:
    checks = list(check_topics(found, outage_seconds=outage_seconds))
    assert [one for one in checks if one.state != "ok" and not one.fix] == []
    return checks


def bad(checks: Iterable[PreflightCheck]) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in checks if one.state != "ok"]


def test_a_cluster_as_the_settings_want_it_is_ok() -> None:
    found = check(facts())
    assert bad(found) == []
    assert [one.name for one in found] == ["topics", "copies", "retention", "retention", "retention", "unread"]


def test_missing_topics_are_named_with_the_one_who_creates_them() -> None:
    some = facts()
    found = check(replace(some, topics=[one for one in some.topics if one.name != GATEWAY_STATE]))
    (missing,) = (one for one in found if one.name == "topics")
    assert (missing.state, missing.text) == ("warn", f"{GATEWAY_STATE} does not exist, or this user may not see it")


def test_a_difference_keeps_its_next_step() -> None:
    line = "Topic t has retention.ms=1, the settings say 2. Tidegate uses it unchanged. To change it, run `tidegate topics set t`."  # noqa: E501
    (found,) = (one for one in check(replace(facts(), differences={READINGS: [line]})) if one.name == "topics")
    assert (found.state, found.text) == ("warn", "Topic t has retention.ms=1, the settings say 2")
    assert found.fix.endswith("To change it, run `tidegate topics set t`.")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (facts(overview(READINGS, replicas=(1,))), "on 3 brokers one copy is enough"),
        (facts(least=1), "on 3 brokers one copy is enough"),
        (facts(brokers=1), "a lost disk loses acknowledged records"),
    ],
)
def test_one_copy_is_a_warning_with_its_fix(found: KafkaFacts, words: str) -> None:
    """K17: replication 1 on several brokers, or min.insync.replicas 1."""
    (copies,) = (one for one in check(found) if one.name == "copies")
    assert (copies.state, words in copies.text) == ("warn", True)


def test_settings_that_ask_for_one_copy_on_three_brokers_are_named() -> None:
    """They agree with the topic, so no difference shows it."""
    topics = [overview(name, replicas=(1,), least=1) for name in NEEDED]
    (copies,) = (one for one in check(facts(*topics, least=1, wanted=Copies(1, 1))) if one.name == "copies")
    assert (copies.state, "Set kafka.replication = 3" in copies.fix) == ("warn", True)


def test_retention_below_the_outage_fails_by_age_and_by_size() -> None:
    short = overview(READINGS, seconds=2 * DAY)
    (found,) = (one for one in check(facts(short)) if one.state != "ok")
    assert (found.state, "keeps records for 2 d" in found.text) == ("fail", True)
    assert f"topics set {READINGS} --retention-hours 72" in found.fix
    full = overview(READINGS, oldest=50, age_s=DAY)
    (found,) = (one for one in check(facts(full)) if one.state != "ok")
    assert (found.state, "reaches back only 24 h" in found.text, "3 times" in found.fix) == ("fail", True, True)
    assert bad(check(facts(full), outage_seconds=DAY / 2)) == []
    assert bad(check(facts(overview(READINGS, age_s=60.0)))) == [], "a new topic has dropped nothing"


@pytest.mark.parametrize(
    ("group", "oldest", "state", "words"),
    [
        ((100, 0, 0.0, math.inf), 0, "ok", "has read everything"),
        ((90, 10, 3600.0, 6 * DAY), 0, "ok", "the oldest 60 min old; Kafka deletes the first of them in 6 d"),
        ((90, 10, None, None), 0, "ok", "has not read 10 records"),
        ((90, 10, 6.5 * DAY, 0.5 * DAY), 0, "warn", "in 12 h"),
        ((90, 10, 6.9 * DAY, 3600.0), 0, "fail", "in 60 min"),
        ((30, 70, None, 0.0), 50, "fail", "has deleted 20 records that the stream has not read (telemetry.readings/0)"),
        ((None, 100, None, None), 0, "ok", "no stream has landed records"),
    ],
)
def test_the_streams_position_is_compared_with_what_kafka_still_has(
    group: tuple[int | None, int, float | None, float | None], oldest: int, state: str, words: str
) -> None:
    some = facts(overview(READINGS, oldest=oldest, age_s=6.99 * DAY))
    landing = GroupPartition(LAND_GROUP, READINGS, 0, *group)
    found = check(replace(some, state=replace(some.state, groups=(landing,))))
    (position,) = (one for one in found if one.name == "unread")
    assert (position.state, words in position.text) == (state, True), position.text


def test_sql_streams_have_positions_of_their_own() -> None:
    some = facts(overview(READINGS, oldest=50, age_s=6.99 * DAY))
    groups = (
        GroupPartition(LAND_GROUP, READINGS, 0, 100, 0, 0.0, math.inf),
        GroupPartition("tidegate-stream-far", READINGS, 0, 30, 70, None, 0.0),
    )
    found = [one for one in check(replace(some, state=replace(some.state, groups=groups))) if one.name == "unread"]
    assert [one.state for one in found] == ["ok", "fail"]
    assert "that tidegate-stream-far has not read" in found[1].text


def clock_finding(offsets: list[int], ahead_s: float) -> PreflightCheck:
    """The finding about a Kafka whose clock is ahead, whose newest record has these offsets, look by look."""
    times = iter(range(1000))
    last = [NOW]

    def wall() -> float:
        last[0] = NOW + next(times) / 100
        return last[0]

    answers = iter(offsets)

    def newest() -> tuple[int, int] | None:
        offset = next(answers, offsets[-1])
        return (offset, int((last[0] + ahead_s) * 1000))

    (found,) = check_kafka_clock(KafkaSettings(), newest=newest, wall=wall, sleep=lambda _seconds: None)
    return found


def test_kafkas_clock_is_compared_by_a_record_that_comes_meanwhile() -> None:
    assert clock_finding([7, 7, 8], 0.0).state == "ok"
    ahead = clock_finding([7, 8], 90.0)
    assert (ahead.state, "behind Kafka's" in ahead.text, bool(ahead.fix)) == ("fail", True, True)
    assert "ahead of Kafka's" in clock_finding([7, 8], -90.0).text
    assert clock_finding([7, 8], 10.0).state == "warn"


def test_without_a_new_record_only_a_clock_that_is_ahead_shows() -> None:
    assert clock_finding([7], 90.0).state == "fail"
    quiet = clock_finding([7], -90.0)
    assert (quiet.state, "does not show" in quiet.text) == ("ok", True)
    (none,) = check_kafka_clock(KafkaSettings(), newest=lambda: None, wall=lambda: NOW)
    assert none.state == "ok"


def test_the_brokers_clock_counts_only_with_its_zone() -> None:
    (found,) = check_broker_clock(("2027-01-15T08:02:00.000+00:00", NOW))
    assert (found.state, "120 s behind the broker's" in found.text) == ("fail", True)
    assert list(check_broker_clock(("2027-01-15 08:02:00", NOW))) == []
    assert list(check_broker_clock(None)) == []
    (late,) = check_broker_clock(("2027-01-15T07:59:30+00:00", NOW))
    assert late.state == "ok", "it publishes once a minute"
