"""The monitor's look at a real Kafka: exact counts, lag in seconds, and a Kafka that stops, hangs, refuses, moves."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from deploy.local.ports import choose_port
from ingest.contract.topics import DEAD_LETTERS, LAND_GROUP, READINGS
from ingest.groups.offset_mirror import OffsetMirror
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import ClusterProbe
from ingest.topics.setup import ensure_topics
from monitoring.periodic_query import IncompleteError
from tests.support.servers import fill, make_topics

Samples = dict[str, list[tuple[tuple[str, ...], float]]]
MakeProbe = Callable[..., ClusterProbe]
MakeKafka = Callable[[], Any]

PARTITIONS = 3
LOOK_LIMIT_SECONDS = 5.5
"""A look promises about 3 s; a busy machine gets a little more."""
DOWN: Samples = {"tidegate_kafka_reachable": [((), 0.0)]}


@pytest.fixture
def settings(kafka_server: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers, partitions=PARTITIONS)


@pytest.fixture
def topic(settings: KafkaSettings, unique_name: str) -> str:
    make_topic(settings, unique_name)
    return unique_name


class Lenient(ClusterProbe):
    """Tells what it saw also where that is not all: what is missing then is for tests of group_reader."""

    def look(self) -> Samples:
        try:
            return super().look()
        except IncompleteError as error:
            samples: Samples = error.answer
            return samples


@pytest.fixture
def make_probe() -> Iterator[MakeProbe]:
    made: list[ClusterProbe] = []

    def make(settings: KafkaSettings, topic: str, *groups: str, **more: Any) -> ClusterProbe:
        made.append(Lenient(settings, lambda: groups, topics=lambda name: name == topic, **more))
        return made[-1]

    yield make
    for probe in made:
        probe.close()


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look tells is right however busy the machine is; how long it takes is for the tests of outages."""
    monkeypatch.setattr("ingest.lag.cluster_probe.LOOK_SECONDS", 60.0)
    monkeypatch.setattr("ingest.lag.cluster_probe.ASK_SECONDS", 60.0)


def make_topic(settings: KafkaSettings, name: str, **config: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime", **config}
    make_topics(settings.bootstrap_servers, NewTopic(name, PARTITIONS, 1, config=config))


def commit(settings: KafkaSettings, group: str, topic: str, offsets: dict[int, int]) -> None:
    mirror = OffsetMirror(settings, group)
    mirror.mirror({topic: offsets})
    assert mirror.drain(60)
    mirror.close()


def ends(samples: Samples) -> dict[int, int]:
    return {int(labels[1]): int(value) for labels, value in samples["kafka_topic_partition_current_offset"]}


def total(samples: Samples, name: str) -> float:
    return sum(value for _labels, value in samples[name])


def age(probe: ClusterProbe) -> float | None:
    series = probe.look().get("tidegate_kafka_lag_seconds", [])
    return series[0][1] if series else None


@pytest.mark.usefixtures("_patient")
class TestFigures:
    def test_a_thousand_records_are_a_thousand_on_every_count(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        group = f"group-{topic}"
        probe = make_probe(settings, topic, group)
        fill(settings, topic, 50)
        before = probe.look()
        commit(settings, group, topic, ends(before))
        assert total(probe.look(), "kafka_consumergroup_lag") == 0
        fill(settings, topic, 1000)
        after = probe.look()
        assert len(after["kafka_topic_partition_current_offset"]) == PARTITIONS
        produced = {number: end - ends(before)[number] for number, end in ends(after).items()}
        assert sum(produced.values()) == 1000
        assert all(produced.values()), "every partition got some"
        assert total(after, "kafka_consumergroup_lag") == 1000
        lag = {int(labels[2]): value for labels, value in after["kafka_consumergroup_lag"]}
        assert lag == {number: float(count) for number, count in produced.items()}
        commit(settings, group, topic, ends(after))
        moved = total(probe.look(), "kafka_consumergroup_current_offset")
        assert moved - total(after, "kafka_consumergroup_current_offset") == 1000

    def test_only_what_is_asked_for_is_told(self, settings: KafkaSettings, topic: str, make_probe: MakeProbe) -> None:
        samples = make_probe(settings, topic, f"group-{topic}").look()
        assert samples["tidegate_kafka_reachable"] == [((), 1.0)]
        assert samples["kafka_brokers"] == [((), 1.0)]
        assert samples["kafka_topic_partitions"] == [((topic,), float(PARTITIONS))]
        labels = [(topic, str(number)) for number in range(PARTITIONS)]
        for name, value in {"in_sync_replica": 1.0, "leader": 1.0, "under_replicated_partition": 0.0}.items():
            assert samples[f"kafka_topic_partition_{name}"] == [(one, value) for one in labels]
        assert samples["kafka_consumergroup_lag"] == [], "a group that never read is not behind"

    def test_what_a_group_must_read_counts_though_it_never_committed(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        group = f"group-{topic}"
        fill(settings, topic, 30)
        samples = make_probe(settings, topic, group, must_read={group: [topic]}).look()
        assert total(samples, "kafka_consumergroup_lag") == 30
        assert samples["kafka_consumergroup_current_offset"] == []

    def test_a_group_that_is_gone_leaves_nothing(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        fill(settings, topic, 30)
        groups = [f"group-{topic}"]
        commit(settings, groups[0], topic, {0: 0})
        probe = Lenient(settings, lambda: groups, topics=lambda name: name == topic)
        try:
            assert probe.look()["kafka_consumergroup_lag"]
            groups.clear()
            samples = probe.look()
            assert samples["kafka_consumergroup_lag"] == samples["tidegate_kafka_lag_seconds"] == []
        finally:
            probe.close()


@pytest.mark.usefixtures("_patient")
class TestLagInSeconds:
    def test_it_grows_while_the_stream_is_down_and_nothing_comes(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        group = f"group-{topic}"
        begun = time.time()
        fill(settings, topic, 30)
        commit(settings, group, topic, dict.fromkeys(range(PARTITIONS), 0))
        probe = make_probe(settings, topic, group)
        first = wait_until(lambda: age(probe), what="the age of the oldest record")
        assert 0 < first <= time.time() - begun + 0.1
        fill(settings, topic, 30)
        wait_until(lambda: (age(probe) or 0) > first + 2, what="the oldest record to grow old")
        assert (age(probe) or 0) <= time.time() - begun + 0.1
        commit(settings, group, topic, ends(probe.look()))
        assert age(probe) == 0.0

    def test_the_worst_partition_counts_and_a_step_forward_is_seen(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        group = f"group-{topic}"
        probe = make_probe(settings, topic, group)
        fill(settings, topic, 30)
        old = ends(probe.look())
        commit(settings, group, topic, dict.fromkeys(range(PARTITIONS), 0))
        wait_until(lambda: (age(probe) or 0) > 3, what="old records")
        between = time.time()
        fill(settings, topic, 30)
        commit(settings, group, topic, {**old, 0: 0})
        assert (age(probe) or 0) > 3, "partition 0 is where it was"
        commit(settings, group, topic, old)
        wait_until(
            lambda: 0 < (age(probe) or 0) <= time.time() - between + 0.1, what="the age of records of the second fill"
        )

    def test_committed_offsets_out_of_range_count_from_the_oldest_record(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        group = f"group-{topic}"
        fill(settings, topic, 300)
        probe = make_probe(settings, topic, group)
        known = ends(probe.look())
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        admin.delete_records([TopicPartition(topic, 0, 20)])[TopicPartition(topic, 0)].result(60)
        commit(settings, group, topic, {0: 5, 1: known[1] + 1000, 2: known[2]})
        samples = probe.look()
        assert samples["kafka_topic_partition_oldest_offset"][0] == ((topic, "0"), 20.0)
        lag = {int(labels[2]): value for labels, value in samples["kafka_consumergroup_lag"]}
        assert lag == {0: known[0] - 20.0, 1: float(known[1]), 2: 0.0}
        assert 0 < samples["tidegate_kafka_lag_seconds"][0][1] < 600

    def test_a_topic_made_anew_counts_what_is_in_it(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        group = f"group-{topic}"
        fill(settings, topic, 300)
        probe = make_probe(settings, topic, group, must_read={group: [topic]})
        commit(settings, group, topic, ends(probe.look()))
        admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: probe.look().get("kafka_topic_partitions") == [], what="the topic to be gone")
        make_topic(settings, topic)
        fill(settings, topic, 40)
        wait_until(
            lambda: total(probe.look(), "kafka_consumergroup_lag") == 40, what="the new topic's records to be the lag"
        )

    def test_a_topic_tells_how_many_replicas_must_be_in_sync(
        self, settings: KafkaSettings, unique_name: str, make_probe: MakeProbe
    ) -> None:
        """One replica is there, and Kafka takes records though two are wanted: no partition is under its bound."""
        make_topic(settings, unique_name, **{"min.insync.replicas": "2"})
        probe = make_probe(settings, unique_name)
        assert probe.state().min_in_sync == {unique_name: 2}
        assert probe.look()["tidegate_kafka_under_min_isr_partitions"] == [((unique_name,), 0.0)]
        fill(settings, unique_name, 3)

    def test_time_to_data_loss_is_retention_less_the_age(
        self, settings: KafkaSettings, unique_name: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        make_topic(settings, unique_name, **{"retention.ms": "3600000"})
        group = f"group-{unique_name}"
        fill(settings, unique_name, 30)
        probe = make_probe(settings, unique_name, group)
        commit(settings, group, unique_name, ends(probe.look()))
        name = "tidegate_kafka_time_to_data_loss_seconds"
        assert probe.look()[name] == [((group, unique_name), float("inf"))]
        commit(settings, group, unique_name, dict.fromkeys(range(PARTITIONS), 0))
        samples = wait_until(
            lambda: (found := probe.look())["tidegate_kafka_lag_seconds"][0][1] > 0 and found, what="a lag"
        )
        left, lag = samples[name][0][1], samples["tidegate_kafka_lag_seconds"][0][1]
        assert left == pytest.approx(3600 - lag, abs=0.5)


class TestOutages:
    """What a look says in a fault, how long it takes, and that it recovers by itself."""

    def test_a_kafka_that_hangs(
        self, settings: KafkaSettings, topic: str, kafka_server: Any, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        probe = make_probe(settings, topic, f"group-{topic}")
        self.see_up(probe, wait_until)
        kafka_server.hold()
        try:
            for _ in range(2):
                self.see_down(probe)
        finally:
            kafka_server.resume_process()
        self.see_up(probe, wait_until)

    def test_a_kafka_that_hangs_while_the_monitor_starts(
        self, settings: KafkaSettings, topic: str, kafka_server: Any, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        kafka_server.hold()
        try:
            probe = make_probe(settings, topic, f"group-{topic}")
            self.see_down(probe)
        finally:
            kafka_server.resume_process()
        self.see_up(probe, wait_until)

    def test_a_kafka_that_is_killed_and_comes_back(
        self, new_kafka: MakeKafka, unique_name: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        server = new_kafka()
        settings = KafkaSettings(bootstrap_servers=server.bootstrap_servers, partitions=PARTITIONS)
        make_topic(settings, unique_name)
        group = f"group-{unique_name}"
        probe = make_probe(settings, unique_name, group)
        # A new cluster has no coordinator at first: the group is left out, nothing breaks.
        self.see_up(probe, wait_until)
        fill(settings, unique_name, 30)
        commit(settings, group, unique_name, {0: 0})
        server.kill()
        self.see_down(probe)
        server.restart()
        self.see_up(probe, wait_until)
        wait_until(lambda: total(probe.look(), "kafka_consumergroup_lag") == 30, what="the group's lag again")

    def test_a_kafka_that_comes_back_on_another_port(
        self, new_kafka: MakeKafka, unique_name: str, make_probe: MakeProbe, wait_until: Any
    ) -> None:
        server = new_kafka()
        other, _ = choose_port(0)
        both = f"{server.bootstrap_servers},{server.part.host}:{other}"
        make_topic(KafkaSettings(bootstrap_servers=server.bootstrap_servers), unique_name)
        probe = make_probe(KafkaSettings(bootstrap_servers=both), unique_name, f"group-{unique_name}")
        self.see_up(probe, wait_until)
        server.kill()
        self.see_down(probe)
        server.part.port = other
        server.restart()
        self.see_up(probe, wait_until)

    def test_a_kafka_that_is_not_there_or_refuses_the_way_in(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe, caplog: pytest.LogCaptureFixture
    ) -> None:
        nobody = KafkaSettings(bootstrap_servers=f"127.0.0.1:{choose_port(0)[0]}")
        self.see_down(make_probe(nobody, topic))
        refused = settings.model_copy(
            update={
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "nobody",
                "sasl_password": SecretStr("hidden words"),
            }
        )
        caplog.clear()
        probe = make_probe(refused, topic)
        for _ in range(2):
            self.see_down(probe)
        said = [record.getMessage() for record in caplog.records if "does not answer: " in record.message]
        assert len(said) == 1, "said once, not at each look"
        assert "hidden" not in caplog.text

    @pytest.mark.parametrize("closes", [True, False])
    def test_a_hung_kafka_does_not_hold_up_the_end_of_the_process(
        self, settings: KafkaSettings, kafka_server: Any, closes: bool, tmp_path: Any
    ) -> None:
        script = tmp_path / "watch.py"
        script.write_text(
            "import sys, threading, time\n"
            "from ingest.lag.cluster_probe import ClusterProbe\n"
            "from ingest.kafka_settings import KafkaSettings\n"
            "from monitoring.periodic_query import IncompleteError\n"
            "probe = ClusterProbe(KafkaSettings(bootstrap_servers=sys.argv[1]), lambda: ['tidegate-land'])\n"
            "def look():\n"
            "    try:\n"
            "        probe.look()\n"
            "    except IncompleteError:\n"
            "        pass\n"
            "look()\n"
            "print('looked', flush=True)\n"
            "sys.stdin.readline()\n"
            "threading.Thread(target=lambda: [look() for _ in range(100)], daemon=True).start()\n"
            "time.sleep(1)\n" + ("probe.close()\n" if closes else "")
        )
        process = subprocess.Popen(
            [sys.executable, str(script), settings.bootstrap_servers],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "looked\n"
            kafka_server.hold()
            process.communicate("go\n", timeout=20)
            assert process.returncode == 0
        finally:
            kafka_server.resume_process()
            process.kill()
            process.wait()

    def see_down(self, probe: ClusterProbe) -> None:
        begun = time.monotonic()
        assert probe.look() == DOWN
        assert time.monotonic() - begun < LOOK_LIMIT_SECONDS

    def see_up(self, probe: ClusterProbe, wait_until: Any) -> None:
        wait_until(lambda: probe.look()["tidegate_kafka_reachable"] == [((), 1.0)], what="Kafka to be found again")


@pytest.mark.usefixtures("_patient")
class TestItsOwnLife:
    def test_many_looks_need_no_more_threads_nor_memory(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        group = f"group-{topic}"
        fill(settings, topic, 1000)
        commit(settings, group, topic, dict.fromkeys(range(PARTITIONS), 0))
        probe = make_probe(settings, topic, group)
        me = psutil.Process()
        for _ in range(20):
            probe.look()
        threads, used = me.num_threads(), me.memory_info().rss
        for _ in range(300):
            probe.look()
        assert me.num_threads() <= threads + 2
        assert me.memory_info().rss - used < 20 * 1024 * 1024

    def test_after_its_end_it_says_no_more_than_that_it_does_not_know(
        self, settings: KafkaSettings, topic: str, make_probe: MakeProbe
    ) -> None:
        probe = make_probe(settings, topic, f"group-{topic}")
        probe.look()
        probe.close()
        assert probe.look() == DOWN

    def test_by_default_it_looks_at_the_pipelines_own_topics(self, settings: KafkaSettings) -> None:
        ensure_topics(settings)
        probe = Lenient(settings, lambda: [LAND_GROUP])
        try:
            samples = probe.look()
        finally:
            probe.close()
        topics = {labels[0] for labels, _value in samples["kafka_topic_partitions"]}
        assert {READINGS, DEAD_LETTERS} <= topics
        assert all(topic.startswith("telemetry.") for topic in topics)
