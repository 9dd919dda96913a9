"""The same load by other clients: Kafka's own tools, and a C client without Python."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.kafka_load import native, peer
from deploy.bench.kafka_load.native import NativeProducer
from deploy.bench.kafka_load.peer import _consume, _produce, _produce_in_c, batch_bytes
from deploy.bench.kafka_load.workload import Workload
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings


@pytest.mark.parametrize(
    ("records", "size", "wanted"),
    # As Kafka's tool for its log files shows them: a batch of 20 records of 32 bytes takes 841 bytes.
    [(1, 32, 0), (20, 32, 841), (20, 8, 361), (50, 32, 2011), (1000, 10_000, 1_000_000)],
)
def test_a_batch_of_the_peer_holds_as_many_records(records: int, size: int, wanted: int) -> None:
    assert batch_bytes(Workload(topic="t", messages=1, batch_records=records, message_bytes=size)) == wanted


@pytest.mark.parametrize("more", [{"rate": 100.0}, {"keys": "even"}, {"retained_mb": 1}])
def test_the_c_client_is_left_out_where_it_cannot_send_the_same(more: dict[str, Any]) -> None:
    assert _produce_in_c(Workload(topic="t", messages=1, **more), KafkaSettings()) == {}


def test_a_c_client_that_lost_records_has_no_rate_but_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"lost": 3, "produce_per_second": 9.0, "client_cpu_us_per_message": 1.0}
    monkeypatch.setattr(peer, "run_workload", lambda *_args, **_more: figures)
    workload = Workload(topic="t", messages=10)
    assert _produce_in_c(workload, KafkaSettings()) == {"peer_c_lost": 3}
    figures["lost"] = 0
    assert _produce_in_c(workload, KafkaSettings()) == {
        "peer_c_produce_per_second": 9.0, "peer_c_cpu_us_per_message": 1.0,
    }  # fmt: skip


def test_kafkas_tools_that_write_and_read_in_turn_are_no_peers_of_a_load_that_does_both_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tool(*_arguments: str) -> list[str]:
        raise AssertionError

    monkeypatch.setattr(peer, "_produce_in_c", lambda *_args: {"peer_c_produce_per_second": 9.0})
    stream = Workload(topic="t", messages=10, mode="stream")
    assert peer.run_peer(stream, KafkaSettings(), tool) == {"peer_c_produce_per_second": 9.0}


def test_a_c_client_names_the_option_that_it_refuses() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        NativeProducer({"bootstrap.servers": "here:1", "no.such.option": True}, 8)


def test_a_c_client_knows_both_topics_before_its_clock_starts() -> None:
    """Else the first records of the clock wait for the partitions of their topic, which those of Python's client do not."""
    calls: list[tuple[str, str]] = []

    class Client:
        def look_up(self, topic: str) -> None:
            calls.append(("look up", topic))

        def send(self, topic: str, _partition: int, _value: bytes, count: int) -> None:
            calls.append((f"send {count}", topic))

        def drain(self) -> int:
            return 0

    client: Any = Client()
    native._warm(client, Workload(topic="t", messages=50), "t-warm", 9, 0)
    assert calls == [("look up", "t-warm"), ("look up", "t"), ("send 9", "t-warm")]


def test_a_c_client_without_a_kafka_says_so() -> None:
    program = (
        "from deploy.bench.kafka_load import native\nnative._LOOK_UP_SECONDS = 0.1\n"
        "native.NativeProducer({'bootstrap.servers': '127.0.0.1:9', 'log_level': 0}, 8).look_up('t')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UnavailableError: Kafka did not return the metadata of topic t: Local: " in done.stderr


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
        "    assert 'max.in.flight.requests.per.connection=1000000' in words, 'as the load itself'\n"
        "    assert words[words.index('--num-records') + 1] == '45', 'of two producers: half of 2 x 40 + 10'\n"
        "    print('40 records sent, 5000.0 records/sec (1.0 MB/sec), 1.0 ms avg latency, 9.0 ms max latency, '\n"
        "          '1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th.')\n"
        "else:\n"
        "    if words[0] == '4.3': print('Warning: --messages is deprecated.')\n"
        "    print('start.time, data.consumed.in.nMsg, fetch.nMsg.sec')\n"
        "    print('now, 50, 7000.5')\n",
        "utf-8",
    )
    workload = Workload(topic="t", messages=40, warmup_messages=10, producers=2, sessions=2)
    for version in ("3.9", "4.3"):

        def tool(name: str, *arguments: str, version: str = version) -> list[str]:
            return [sys.executable, str(program), version, name, *arguments, "-XX:TieredStopAtLevel=1"]

        kafka = KafkaSettings(bootstrap_servers="here:1")
        produced = _produce(workload, "t", kafka, tool)
        assert produced == {"peer_produce_per_second": 10_000.0, "peer_ack_p50_ms": 1.0, "peer_ack_p99_ms": 3.0}
        assert _consume(workload, "t", kafka, tool) == {"peer_consume_per_second": 7000.5}
