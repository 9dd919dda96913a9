"""A load on Kafka: what its settings allow, its records, its keys and its latencies."""

import statistics
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load import consume, produce
from deploy.bench.kafka_load import workload_run as run
from deploy.bench.kafka_load.client_work import ClientWork
from deploy.bench.kafka_load.feed import RecordFeed, SteadyLoad
from deploy.bench.kafka_load.latency import Latencies, merge_latencies
from deploy.bench.kafka_load.segments import ReadCost
from deploy.bench.kafka_load.workload import Workload, due_us, message_keys, producer_options, split_evenly, stamp_value
from deploy.bench.kafka_load.workload_run import LoadSession, are_stable, figures_of, median_error
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"message_bytes": 7}, "message_bytes is 7, wanted 8 to 900000"),
        ({"messages": 0}, "messages is 0, wanted 1 or more"),
        ({"consumers": 3, "partitions": 2}, "consumers is 3, wanted 1 to 2, the number of partitions"),
        ({"rate": -1.0}, "rate is -1.0, wanted 0 or more"),
        ({"sessions": 2, "retained_mb": 1}, "sessions is 2, wanted 1 with retained_mb or cold"),
        ({"acks": "2"}, "acks is 2, wanted 0, 1 or all"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Workload(**{"topic": "t", "messages": 10, **given})


@given(st.integers(0, 2**62), st.integers(0, 200))
def test_a_value_says_when_it_was_due(due: int, padding: int) -> None:
    value = stamp_value(due, bytes(padding))
    assert (len(value), due_us(value)) == (8 + padding, due)
    assert value[:8] == struct.pack(">q", due)


@given(st.integers(1, 10_000), st.integers(1, 40))
def test_shares_add_up_and_differ_by_one(total: int, parts: int) -> None:
    found = split_evenly(total, parts)
    assert sum(found) == total and len(found) == parts
    assert max(found) - min(found) <= 1


def test_keys_repeat_for_a_seed_and_skew_where_wanted() -> None:
    even, skewed = (Workload(topic="t", messages=1, keys=keys) for keys in ("even", "skewed"))
    assert message_keys(even, 50, seed=1) == message_keys(even, 50, seed=1) != message_keys(even, 50, seed=2)
    most = [Counter(message_keys(one, 20_000, seed=1)).most_common(1)[0][1] for one in (even, skewed)]
    assert most[1] > 20 * most[0]  # an even key comes 20 times, the first of the skewed ones about 2,670
    assert set(message_keys(Workload(topic="t", messages=1), 5, seed=1)) == {None}


def test_a_batch_of_one_is_a_request_for_each_record() -> None:
    assert producer_options(Workload(topic="t", messages=1, batch_records=1))["batch.num.messages"] == 1
    assert producer_options(Workload(topic="t", messages=1, rate=5.0, linger_ms=0))["linger.ms"] == 0


def test_latencies_of_several_processes_are_one() -> None:
    first, second = Latencies(), Latencies()
    for microseconds in range(1000, 101_000, 1000):
        first.record(microseconds)
    second.record(5_000_000)
    second.record(-3)  # clocks may step back
    found = merge_latencies([first.encode(), second.encode()])
    figures = found.figures("ack")
    assert found.count == 102
    assert figures["ack_p50_ms"] == pytest.approx(50, rel=0.03)
    assert figures["ack_max_ms"] == pytest.approx(5000, rel=0.002)
    assert [at for at, _ in found.curve()] == sorted(at for at, _ in found.curve())
    assert Latencies().figures("ack") == {} and Latencies().curve() == []


@pytest.mark.parametrize(
    ("timed", "names"),
    [
        (1, ["max"]),
        (2, ["p50", "max"]),
        (99, ["p50", "p95", "max"]),
        (100, ["p50", "p95", "p99", "max"]),
        (1000, ["p50", "p95", "p99", "p999", "max"]),
    ],
)
def test_a_percentile_of_too_few_records_is_left_out(timed: int, names: list[str]) -> None:
    found = Latencies()
    for number in range(timed):
        found.record(1000 + number, records=500)
    assert list(merge_latencies([found.encode()]).figures("ack")) == [f"ack_{name}_ms" for name in names]
    assert found.timed == timed and found.count == 500 * timed
    assert found.curve()[-1][0] == 100.0


class _Message:
    def __init__(self, due: int) -> None:
        self._value = stamp_value(due, b"")

    def value(self) -> bytes:
        return self._value

    def error(self) -> None:
        return None


def test_records_that_a_stall_held_back_count_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """900 calls with 10 records each, then one with 1,000 that waited: a tenth of all records was slow."""
    monkeypatch.setattr(consume, "Consumer", lambda _conf: None)
    load = consume._Load("t", [0], {}, 1000, 1)

    def call(records: int, late_us: int) -> None:
        due = time.time_ns() // 1000 - late_us
        load._count([_Message(due) for _ in range(records)])  # type: ignore[misc]

    for _ in range(900):
        call(10, 0)
    call(1000, 60_000_000)
    figures = load._latencies.figures("end_to_end")
    assert load.work.messages == load._latencies.count == 10_000
    assert figures["end_to_end_p50_ms"] < 30_000 < figures["end_to_end_p95_ms"]


def test_a_consumer_of_sessions_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads to the ends that come while it reads, and has taken its partitions after its clock began."""
    log: list[Any] = []

    class Log:
        def __init__(self, conf: dict[str, Any]) -> None:
            assert (conf["fetch.message.max.bytes"], conf["fetch.min.bytes"]) == (1000, 64)

        def assign(self, places: list[Any]) -> None:
            log.append([(place.partition, place.offset) for place in places])

        def consume(self, count: int, _seconds: float) -> list[_Message]:
            return [_Message(0) for _ in range(min(count, 7))]

        def unassign(self) -> None:
            log.append("left")

    monkeypatch.setattr(consume, "Consumer", Log)
    load = consume._Load("t", [0, 2], {}, 1000, 64)
    lines = iter([None, '{"0": 4, "1": 90, "2": 6}', '{"0": 9, "1": 95, "2": 6}'])
    began = time.time()
    first, second = [replace(load.run(0.0, lambda: next(lines))) for _ in range(2)]
    assert (first.messages, second.messages) == (10, 5)
    assert log == [[(0, 0), (2, 0)], "left", [(0, 4), (2, 6)], "left"]
    assert began <= first.began <= first.ended <= second.began


class _Producer:
    """Takes all records of a load, and acknowledges them at once."""

    def __init__(self, _conf: object) -> None:
        self.topics = Counter[str]()
        self.partitions = Counter[int]()
        self.values: list[bytes] = []
        self.batches = 0

    def produce_batch(self, topic: str, block: list[dict[str, Any]], partition: int) -> int:
        self.topics[topic] += len(block)
        self.partitions[partition] += len(block)
        self.values += [one["value"] for one in block]
        self.batches += 1
        for one in block:
            if "callback" in one:
                one["callback"](None, None)
        return len(block)

    def produce(self, topic: str, _value: bytes, _key: bytes | None, on_delivery: Any) -> None:
        self.topics[topic] += 1
        if on_delivery:
            on_delivery(None, None)

    def poll(self, seconds: float) -> None:
        time.sleep(seconds)

    def list_topics(self, *_args: object, **_more: object) -> None:
        pass

    def __len__(self) -> int:
        return 0


def test_a_load_at_full_speed_times_enough_records_for_its_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "Producer", _Producer)
    load = produce._Load(Workload(topic="t", messages=30_000), {}, 30_000, 0)
    sent = load.run(0.0)
    found = merge_latencies([sent.latencies])
    assert (sent.messages, found.timed) == (30_000, 300)
    assert "ack_p99_ms" in found.figures("ack") and "ack_p999_ms" not in found.figures("ack")


def test_records_that_kafka_refuses_or_never_answers_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(_Producer):
        def produce_batch(self, topic: str, block: list[dict[str, Any]], partition: int) -> int:
            for one in block:
                if "callback" in one:
                    one["callback"]("refused", None)
            return len(block)

        def __len__(self) -> int:
            return 2

    monkeypatch.setattr(produce, "Producer", Refusing)
    monkeypatch.setattr(produce, "WAIT_SECONDS", 0.0)
    work = produce._Load(Workload(topic="t", messages=300), {}, 300, 0).run(0.0)
    assert (work.errors, merge_latencies([work.latencies]).timed) == (3 + 2, 0), "of 300 records three were timed"


def test_a_warm_up_keeps_to_the_rate_which_may_be_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "Producer", _Producer)
    load = produce._Load(Workload(topic="t", messages=1, rate=5000.0), {}, 1, 0)
    began = time.monotonic()
    load.warm("t-warm", 500, 0)
    assert time.monotonic() - began >= 499 / 5000
    producer: Any = load._producer
    assert (producer.topics, producer.batches) == (Counter({"t-warm": 500}), 0)


def test_a_feed_goes_on_when_the_client_holds_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, _conf: object) -> None:
            self.calls = 0

        def produce(self, *_args: object, on_delivery: Any, **_more: object) -> None:
            self.calls += 1
            if self.calls % 3 == 0:
                raise BufferError
            on_delivery(None, None)

        def poll(self, seconds: float) -> None:
            time.sleep(seconds)

        def flush(self, _seconds: float) -> int:
            return 0

    monkeypatch.setattr("deploy.bench.kafka_load.feed.Producer", Full)
    feed = RecordFeed(SteadyLoad(topic="t", partitions=2, rate=2000.0), {})
    feed.start()
    deadline = time.monotonic() + 30
    while len(feed.acknowledged) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    feed.stop()
    assert list(feed.acknowledged) == list(range(len(feed.acknowledged))) and len(feed.acknowledged) >= 20


def test_records_that_come_late_are_waited_for_and_lost_ones_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{0: 3, 1: 0}, {0: 3, 1: 0}, {0: 5, 1: 2}, {0: 5, 1: 5}])
    monkeypatch.setattr(run, "end_offsets", lambda *_: next(looks))
    assert run.settled_ends(KafkaSettings(), "t", 10) == {0: 5, 1: 5}
    monkeypatch.setattr(run, "end_offsets", lambda *_: {0: 9})
    monkeypatch.setattr(run, "_ARRIVE_SECONDS", 0.2)
    assert run.settled_ends(KafkaSettings(), "t", 10) == {0: 9}


def part(messages: int, seconds: float, **more: Any) -> ClientWork:
    """The work of one process of a load in a session."""
    return ClientWork(
        messages=messages, began=1.0, ended=1.0 + seconds, cpu_seconds=0.1, python_cpu_seconds=0.05, bytes=10 * messages,
        latencies=Latencies().encode(), **more,
    )  # fmt: skip


@pytest.mark.parametrize(("stored", "lost", "duplicates"), [(10, 0, 0), (8, 2, 0), (13, 0, 3)])
def test_a_record_that_kafka_has_twice_is_no_negative_loss(stored: int, lost: int, duplicates: int) -> None:
    session = LoadSession(sent=[part(10, 1.0, errors=3)], read=[], stored=stored)
    found = figures_of(Workload(topic="t", messages=10, consume=False), [session])
    assert (found["lost"], found["duplicates"], found["errors"]) == (lost, duplicates, 3)
    assert not {"consume_per_second", "consume_client_cores", "produce_broker_cores", "sessions_run"} & set(found)


def test_rates_of_sessions_are_medians_and_their_counts_sums() -> None:
    """One session of three stalled, and one lost a record that another one had twice."""
    stored = [100, 99, 101]
    sessions = [
        LoadSession(
            sent=[part(100, seconds)], read=[part(count, 0.5)], stored=count, costs=(ReadCost(0, 0.2), ReadCost(0, 0.1))
        )
        for count, seconds in zip(stored, (1.0, 20.0, 1.01), strict=True)
    ]
    workload = Workload(topic="t", messages=100, message_bytes=10, sessions=9)
    found = figures_of(workload, sessions)
    assert (found["produce_per_second"], found["consume_per_second"]) == (100.0, 200.0)
    assert (found["produced"], found["consumed"], found["lost"], found["duplicates"]) == (300, 300, 1, 1)
    assert found["sessions_run"] == 3
    # CPU over the time of the sessions alone; in mode `split` each side by itself.
    assert found["produce_client_cores"] == pytest.approx(0.3 / 22.01, abs=0.001)
    assert found["consume_broker_cores"] == pytest.approx(0.3 / 1.5, abs=0.001)
    assert found["produce_broker_cpu_us_per_message"] == pytest.approx(2000)
    whole = ReadCost(0, 0.3)
    both = figures_of(replace(workload, mode="stream"), [replace(one, costs=(whole, whole)) for one in sessions])
    assert both["produce_broker_cores"] == pytest.approx(0.9 / 22.01, abs=0.001)
    assert both["produce_client_cores"] == pytest.approx(0.6 / 22.01, abs=0.001)


def test_sessions_end_when_the_medians_of_all_rates_are_known() -> None:
    def sessions(produced: Sequence[float], consumed: Sequence[float]) -> list[LoadSession]:
        pairs = zip(produced, consumed, strict=True)
        return [LoadSession(sent=[part(10, a)], read=[part(10, b)], stored=10) for a, b in pairs]

    calm, wild = [1.0, 1.01, 0.99] * 5, [1.0, 5.0, 0.2] * 5
    assert are_stable(sessions(calm, calm), 0.05)
    assert not are_stable(sessions(calm, wild), 0.05)
    assert not are_stable(sessions(calm, calm), 0.0), "without a wanted ratio all sessions run"
    assert not are_stable(sessions(calm[:5], calm[:5]), 0.05), "five that agree may agree by chance"
    # One stall, however long, does not make a median unstable.
    assert are_stable(sessions([*calm, 900.0], [*calm, 1.0]), 0.05)


@given(st.lists(st.floats(1, 1e6), min_size=8, max_size=60))
def test_the_error_of_a_median_is_within_the_range_of_its_values(values: list[float]) -> None:
    error = median_error(values)
    assert 0 <= error <= (max(values) - min(values)) / statistics.median(values)
    assert median_error([3 * value for value in values]) == pytest.approx(error)


def test_blocks_go_round_the_partitions_and_make_no_object_for_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "Producer", _Producer)
    load = produce._Load(Workload(topic="t", messages=24_000, partitions=3), {}, 24_000, 1)
    for _ in range(2):
        assert load.run(0.0).messages == 24_000
    producer: Any = load._producer
    assert producer.partitions == {0: 16_000, 1: 16_000, 2: 16_000}
    assert len({id(value) for value in producer.values}) <= producer.batches

    by_key = produce._block(b"value", [b"a", b"b", b"a"])
    assert [one["key"] for one in by_key] == [b"a", b"b", b"a"] and by_key[0] is by_key[2]


def test_a_block_that_the_client_took_in_part_is_sent_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Filling(_Producer):
        def produce_batch(self, topic: str, block: list[dict[str, Any]], partition: int) -> int:
            assert not any("_error" in one for one in block)
            if self.batches % 2:
                self.batches += 1
                raise BufferError
            super().produce_batch(topic, block[:700], partition)
            for one in block[700:]:
                one["_error"] = "queue full"
            return min(700, len(block))

    monkeypatch.setattr(produce, "Producer", Filling)
    load = produce._Load(Workload(topic="t", messages=5000), {}, 5000, 0)
    load.run(0.0)
    producer: Any = load._producer
    assert producer.topics == {"t": 5000}
    assert producer.values == sorted(producer.values)


def test_what_was_retained_before_the_clock_is_read_and_not_counted_as_produced() -> None:
    workload = Workload(topic="t", messages=10, message_bytes=1000, retained_mb=2)
    sent = [part(10, 1.0, fill_seconds=4.0)]
    found = figures_of(workload, [LoadSession(sent=sent, read=[part(2010, 1.0)], stored=2010)])
    assert (found["produce_per_second"], found["consume_per_second"], found["fill_mb_per_second"]) == (10, 2010, 0.5)
    assert (found["produced"], found["lost"], found["duplicates"]) == (2010, 0, 0)
    assert "client_cpu_us_per_message" not in found, "the clients did not spend it on the same messages"
    missing = figures_of(workload, [LoadSession(sent=sent, read=[part(10, 1.0)], stored=2010)])
    assert missing["lost"] == 2000
