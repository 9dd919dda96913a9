"""Topics, records and groups of a real Kafka by the commands alone: no tool of Kafka's is needed."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from deploy.cli import run
from ingest.contract.topics import LAND_GROUP, READINGS, stream_group
from ingest.groups.rewind import OffsetMove, rewind
from ingest.kafka_settings import KafkaSettings
from ingest.topics import admin

TOPIC = "kafka-tools"


class Commands:
    """Runs a command on one Kafka; `out` is what it printed."""

    def __init__(self, servers: str, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._servers, self._captured, self._monkeypatch = servers, capsysbinary, monkeypatch
        self.out = self.err = ""

    def __call__(self, *arguments: str, given: bytes = b"") -> int:
        self._monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given), isatty=lambda: False))
        code = run([*arguments, "-b", self._servers])
        out, err = self._captured.readouterr()
        self.out, self.err = out.decode(), err.decode()
        return code


@pytest.fixture
def tidegate(kafka_server: Any, capsysbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(kafka_server.bootstrap_servers, capsysbinary, monkeypatch)


def test_a_topic_is_made_filled_read_and_removed(tidegate: Commands, tmp_path: Path) -> None:
    assert tidegate("topics", "create", TOPIC, "-p", "2", "--set", "retention.ms=3600000") == 0
    assert tidegate("topics", "create", TOPIC) == 1 and "already has topic kafka-tools" in tidegate.err
    assert tidegate("topics", "create", "other", "--set", "no.such.setting=1") == 78
    assert tidegate("topics", "create", "other", "-r", "3") == 78 and "with 3 copies: " in tidegate.err
    assert "Set --replication, or kafka.replication in the settings, to at most the number of brokers" in tidegate.err

    assert tidegate("topics", "create", "bad name") == 78 and "Topic name is invalid" in tidegate.err
    assert tidegate("topics", "create", f"{TOPIC}-compact", "--set", "cleanup.policy=compact") == 0
    assert tidegate("produce", f"{TOPIC}-compact", "-K", ":", "-Z", given=b"k:v\nk:\n:none\nplain\n") == 1
    assert (
        "2 records acknowledged" in tidegate.err
        and "2 records failed" in tidegate.err
        and "needs a key" in tidegate.err
    )
    assert tidegate("tail", f"{TOPIC}-compact", "-o", "beginning", "-e", "-f", "%k %S|") == 0
    assert tidegate.out == "k 1|k -1|", "a tombstone has no value"
    assert tidegate("topics", "rm", f"{TOPIC}-compact", "--yes") == 0

    assert tidegate("produce", TOPIC, "-K", ":", "-H", "src=x", "-z", "lz4", given=b"a:1\na:2\n\nb:\xff") == 0
    assert "3 records acknowledged" in tidegate.err
    lines = tmp_path / "lines"
    lines.write_bytes(b"last")
    assert tidegate("produce", "-t", TOPIC, "-p", "1", "-k", "key", "-l", str(lines), "--json") == 0
    assert json.loads(tidegate.out) == {
        "topic": TOPIC,
        "acknowledged": 1,
        "failed": 0,
        "why": None,
        "interrupted": False,
    }

    assert tidegate("tail", TOPIC, "-o", "beginning", "-e", "--json") == 0
    found = [json.loads(line) for line in tidegate.out.splitlines()]
    assert sorted((one["key"], one.get("payload", one.get("payload_base64"))) for one in found) == [
        ("a", "1"), ("a", "2"), ("b", "/w=="), ("key", "last"),
    ]  # fmt: skip
    assert [one["payload"] for one in found if one["key"] == "a"] == ["1", "2"], "the order of a key"
    assert found[0]["headers"] in (["src", "x"], [])
    assert (
        tidegate("tail", TOPIC, "-o", "-1", "-e", "-p", "1", "-f", "%p %k %s|") == 0 and tidegate.out == "1 key last|"
    )
    assert tidegate("tail", TOPIC, "-o", "beginning", "-c", "2") == 0 and tidegate.out.count("\n") == 2
    assert tidegate("tail", TOPIC, "-o", "s@1000", "--until", "1h-ago") == 0 and tidegate.out == ""
    assert tidegate("tail", TOPIC, "-o", "s@1h-ago", "-e", "-p", "7") == 69 and "has no partition 7" in tidegate.err

    assert tidegate("topics", "describe", TOPIC, "--json") == 0
    told = json.loads(tidegate.out)
    assert (told["records"], told["settings"], len(told["by_partition"])) == (4, {"retention.ms": "3600000"}, 2)
    assert tidegate("topics", "describe", TOPIC) == 0 and "retention.ms = 3600000" in tidegate.out

    change = ("topics", "set", TOPIC, "--set", "segment.ms=60000", "--retention-hours", "2")
    assert tidegate(*change, "--dry-run") == 0 and "Nothing was changed" in tidegate.out
    assert tidegate(*change, "--json") == 0
    assert json.loads(tidegate.out)["changes"] == [
        {"setting": "retention.ms", "before": "3600000", "after": "7200000"},
        {"setting": "segment.ms", "before": "604800000", "after": "60000"},
    ]
    assert tidegate(*change) == 0 and "nothing was changed" in tidegate.out
    assert tidegate("topics", "set", TOPIC, "--as-settings") == 1 and "not one of Tidegate's" in tidegate.err
    assert (
        tidegate("topics", "set", TOPIC, "--set", "segment.ms=soon") == 78
        and "Kafka rejects these settings" in tidegate.err
    )

    assert tidegate("topics", "ls") == 0 and TOPIC not in tidegate.out and "add --all" in tidegate.err
    assert tidegate("topics", "describe", "kafka-tool") == 1 and "Did you mean kafka-tools?" in tidegate.err
    assert tidegate("topics", "rm", TOPIC) == 2 and "add --yes" in tidegate.err
    assert tidegate("topics", "rm", TOPIC, "--yes") == 0 and "with 4 records" in tidegate.err
    assert tidegate("tail", TOPIC, "-e") == 1 and "has no topic kafka-tools" in tidegate.err


def test_what_is_tidegates_or_kafkas_own_is_refused(tidegate: Commands) -> None:
    for command in (
        ("produce", READINGS),
        ("topics", "create", READINGS),
        ("topics", "rm", READINGS, "--yes"),
        ("topics", "set", READINGS, "--retention-hours", "1"),
        ("topics", "set", READINGS, "--set", "cleanup.policy=compact"),
        ("topics", "set", "__consumer_offsets", "--set", "cleanup.policy=delete"),
        ("topics", "rm", "__consumer_offsets", "--yes"),
        ("rewind", LAND_GROUP, "-t", READINGS, "--to", "earliest", "--yes"),
        ("rewind", stream_group("hot"), "-t", READINGS, "--to", "latest", "--yes"),
    ):
        assert tidegate(*command) == 1, command
    assert "streams rewind hot" in tidegate.err
    assert tidegate("produce", "no-such-topic", given=b"x") == 1 and "topics create no-such-topic" in tidegate.err


def test_a_group_is_seen_and_rewound_only_while_it_is_empty(
    tidegate: Commands, kafka_server: Any, wait_until: Callable[..., Any]
) -> None:
    topic, group = f"{TOPIC}-groups", "kafka-tools-group"
    assert tidegate("topics", "create", topic) == 0
    assert tidegate("produce", topic, given=b"1\n2\n3\n4\n") == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.bootstrap_servers, "group.id": group, "client.id": "reader",
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    try:
        wait_until(lambda: len(consumer.assignment()) == 1 or consumer.poll(0.1), what="the member has its partition")
        wait_until(lambda: [one for one in (consumer.poll(0.2),) if one and one.offset() == 2], what="three records")
        consumer.commit(asynchronous=False)

        assert tidegate("groups", "ls", "--json") == 0
        assert {"group": group, "state": "STABLE", "protocol": "classic"} in json.loads(tidegate.out)
        assert tidegate("groups", "describe", group, "--json") == 0
        told = json.loads(tidegate.out)
        assert [(one["committed"], one["end"], one["lag"]) for one in told["places"]] == [(3, 4, 1)]
        assert [(one["client_id"], one["partitions"]) for one in told["members"]] == [("reader", [[topic, 0]])]
        assert tidegate("groups", "describe", group) == 0 and "reader" in tidegate.out.splitlines()[2]

        assert tidegate("rewind", group, "-t", topic, "--to", "earliest", "--yes") == 1
        assert "is in use (STABLE; 1 members: reader on" in tidegate.err
        settings = KafkaSettings(bootstrap_servers=kafka_server.bootstrap_servers)
        with pytest.raises(Exception, match="is in use"):  # a member that joins between plan and commit
            rewind(settings, group, topic, [OffsetMove(0, 3, 0, 4)])
    finally:
        consumer.close()
    wait_until(
        lambda: tidegate("groups", "describe", group) == 0 and "EMPTY" in tidegate.out, what="the group is empty"
    )

    assert tidegate("rewind", group, "-t", topic, "--to", "1", "--json") == 0
    plan = {"partition": 0, "before": 3, "after": 1, "end": 4, "again": 2}
    assert json.loads(tidegate.out) == {"group": group, "topic": topic, "written": False, "partitions": [plan]}
    assert tidegate("groups", "describe", group, "--json") == 0
    assert json.loads(tidegate.out)["places"][0]["committed"] == 3, "a plan writes nothing"
    assert tidegate("rewind", group, "-t", topic, "--to", "1", "--yes") == 0 and "reads 2 again" in tidegate.out
    assert tidegate("groups", "describe", group, "--json") == 0
    assert json.loads(tidegate.out)["places"][0]["committed"] == 1
    assert tidegate("tail", topic, "-G", group, "-e", "-c", "2") == 0 and tidegate.out == "2\n3\n"
    assert tidegate("tail", topic, "-G", group, "-e", "--protocol", "consumer") == 0 and tidegate.out == "4\n"
    assert "this member reads kafka-tools-groups [0]\n" in tidegate.err and "no partition" not in tidegate.err
    assert tidegate("tail", topic, "-G", "fresh", "-e", "-o", "beginning") == 0 and tidegate.out == "1\n2\n3\n4\n"
    assert tidegate("tail", topic, "-G", "late", "-e") == 0 and tidegate.out == "", "a new group begins at the end"
    assert tidegate("tail", topic, "-G", LAND_GROUP, "-e") == 1 and "Tidegate's own group" in tidegate.err
    assert tidegate("tail", topic, "-G", group, "-o", "-5") == 2 and "-o beginning or -o end" in tidegate.err
    assert tidegate("tail", f"{topic}x", "-G", group) == 1 and f"Did you mean {topic}?" in tidegate.err
    assert tidegate("rewind", "no-such-group", "-t", topic, "--to", "latest") == 1
    assert tidegate("rewind", group, "-t", topic, "--to", "soon") == 2 and "an offset such as 1234" in tidegate.err
    assert tidegate("rewind", group, "-t", topic, "--to", "9") == 69 and "no offset 9 yet" in tidegate.err
    assert (
        tidegate("rewind", group, "-t", topic, "--to", "latest", "-p", "1") == 69 and "no partition 1" in tidegate.err
    )
    assert tidegate("groups", "describe", "") == 1 and "'' is not a valid name of a consumer group" in tidegate.err
    assert tidegate("topics", "rm", topic, "--yes") == 0


@pytest.mark.parametrize(
    "command",
    [("groups", "ls"), ("groups", "describe", "g"), ("tail", "t", "-e"), ("produce", "t"), ("topics", "create", "t")],
    ids=" ".join,
)
def test_where_no_broker_answers_each_command_says_why(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    assert run([*command, "-b", "127.0.0.1:1"]) == 69
    assert "Connection refused" in capsys.readouterr().err


def test_a_closed_pipe_ends_a_tail_that_waits(tidegate: Commands, kafka_server: Any) -> None:
    topic = f"{TOPIC}-pipe"
    assert tidegate("topics", "create", topic) == 0
    assert tidegate("produce", topic, given=b"1\n") == 0
    read, write = os.pipe()
    command = [sys.executable, "-P", "-m", "deploy.cli", "tail", topic, "-b", kafka_server.bootstrap_servers]
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE) as follower:
        os.close(write)
        assert os.read(read, 100) == b"1\n"
        os.close(read)
        assert follower.wait(60) == 0, "no record came that a write would have failed with"
        assert follower.stderr is not None and follower.stderr.read() == b""
    assert tidegate("topics", "rm", topic, "--yes") == 0
