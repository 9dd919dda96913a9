"""A load on Kafka: what its settings allow, its records, its keys and its latencies."""

import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.latency import Latencies, merged
from deploy.bench.kafka_load.peer import _consume, _produce, batch_bytes
from deploy.bench.kafka_load.workload import Workload, due_us, message_keys, producer_options, shares, stamped
from ingest.contract.errors import ConfigError
from ingest.settings import KafkaSettings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"message_bytes": 7}, "message_bytes is 7, wanted 8 to 900000"),
        ({"messages": 0}, "messages is 0, wanted 1 or more"),
        ({"consumers": 3, "partitions": 2}, "consumers is 3, wanted 1 to 2, the number of partitions"),
        ({"rate": -1.0}, "rate is -1.0, wanted 0 or more"),
        ({"acks": "2"}, "acks is 2, wanted 0, 1 or all"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Workload(**{"topic": "t", "messages": 10, **given})


@given(st.integers(0, 2**62), st.integers(0, 200))
def test_a_value_says_when_it_was_due(due: int, padding: int) -> None:
    value = stamped(due, bytes(padding))
    assert (len(value), due_us(value)) == (8 + padding, due)
    assert value[:8] == struct.pack(">q", due)


@given(st.integers(1, 10_000), st.integers(1, 40))
def test_shares_add_up_and_differ_by_one(total: int, parts: int) -> None:
    found = shares(total, parts)
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
    found = merged([first.encode(), second.encode()])
    figures = found.figures("ack")
    assert found.count == 102
    assert figures["ack_p50_ms"] == pytest.approx(50, rel=0.03)
    assert figures["ack_max_ms"] == pytest.approx(5000, rel=0.002)
    assert [at for at, _ in found.curve()] == sorted(at for at, _ in found.curve())
    assert Latencies().figures("ack") == {} and Latencies().curve() == []


@pytest.mark.parametrize(
    ("records", "size", "wanted"),
    # As Kafka's tool for its log files shows them: a batch of 20 records of 32 bytes takes 841 bytes.
    [(1, 32, 0), (20, 32, 841), (20, 8, 361), (50, 32, 2011)],
)
def test_a_batch_of_the_peer_holds_as_many_records(records: int, size: int, wanted: int) -> None:
    assert batch_bytes(Workload(topic="t", messages=1, batch_records=records, message_bytes=size)) == wanted


def test_kafkas_own_tools_run_in_both_versions_and_with_both_compilers(tmp_path: Path) -> None:
    """A stand-in for the tools of Kafka 3.9 and 4.3: their options and their answers."""
    program = tmp_path / "tool.py"
    program.write_text(
        "import sys\n"
        "words = sys.argv[1:]\n"
        "if '-XX:TieredStopAtLevel=1' in words: sys.exit('slow compiler')\n"
        "if words[0] == '3.9' and '--warmup-records' in words: sys.exit('unrecognized arguments: --warmup-records')\n"
        "if 'ProducerPerformance' in words[1]:\n"
        "    assert 'bootstrap.servers=here:1' in words\n"
        "    print('40 records sent, 5000.0 records/sec (1.0 MB/sec), 1.0 ms avg latency, 9.0 ms max latency, '\n"
        "          '1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th.')\n"
        "else:\n"
        "    if words[0] == '4.3': print('Warning: --messages is deprecated.')\n"
        "    print('start.time, data.consumed.in.nMsg, fetch.nMsg.sec')\n"
        "    print('now, 50, 7000.5')\n",
        "utf-8",
    )
    workload = Workload(topic="t", messages=40, warmup_messages=10)
    for version in ("3.9", "4.3"):

        def tool(name: str, *arguments: str, version: str = version) -> list[str]:
            return [sys.executable, str(program), version, name, *arguments, "-XX:TieredStopAtLevel=1"]

        kafka = KafkaSettings(bootstrap_servers="here:1")
        produced = _produce(workload, "t", kafka, tool)
        assert produced == {"peer_produce_per_second": 5000.0, "peer_ack_p50_ms": 1.0, "peer_ack_p99_ms": 3.0}
        assert _consume(workload, "t", kafka, tool) == {"peer_consume_per_second": 7000.5}
