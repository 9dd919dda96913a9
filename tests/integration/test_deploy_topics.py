"""`tidegate topics` on a real Kafka: what a start says of a topic that differs is mended by the command that it names."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics

Captured = pytest.CaptureFixture[str]
MIB = 1024**2


def test_a_topic_is_brought_to_the_settings_by_the_command_that_a_start_names(
    empty_kafka: Any, tmp_path: Path, capsys: Captured
) -> None:
    servers = empty_kafka.bootstrap_servers
    ensure_topics(KafkaSettings(bootstrap_servers=servers, partitions=2))
    config = tmp_path / "other.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{servers}"\npartitions = 2\nretention_bytes = {32 * MIB}\nretention_hours = 24\n'
        f'[lake]\nroot = "{tmp_path / "tables"}"\n'
    )
    wanted = KafkaSettings(bootstrap_servers=servers, partitions=2, retention_bytes=32 * MIB, retention_hours=24)
    told = ensure_topics(wanted)
    commands = {found for line in told for found in re.findall(r"`tidegate (topics set [^`]+)`", line)}
    assert len(told) == 9, "three settings of three topics"
    assert {command.split()[2] for command in commands} == {READINGS, DEAD_LETTERS, OUTCOMES}
    with_config = ["--config", str(config)]
    for command in sorted(commands):
        assert run([*command.split(), "--dry-run", *with_config]) == 0
        assert "dry run" in capsys.readouterr().out
        assert run([*command.split(), *with_config]) == 0
        assert "retention.ms" in capsys.readouterr().out
    assert ensure_topics(wanted) == []

    assert run(["topics", "set", READINGS, "--retention-hours", "unlimited", "--json", *with_config]) == 0
    change = {"setting": "retention.ms", "before": str(24 * 3_600_000), "after": "-1"}
    assert json.loads(capsys.readouterr().out) == {"topic": READINGS, "dry_run": False, "changes": [change]}

    assert run(["topics", "ls", *with_config]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"topic", READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE}
    assert lines[READINGS].split()[4:] == ["no", "limit", "32", "MiB", "delete"]
    assert run(["topics", "ls", "--json", *with_config]) == 0
    found = {each["topic"]: each for each in json.loads(capsys.readouterr().out)}
    assert (found[READINGS]["partitions"], found[READINGS]["records"], found[READINGS]["problems"]) == (2, 0, [])
    assert found[READINGS]["bytes"] is None, "the disk of another machine is not looked at"
    assert found[OUTCOMES]["retention_hours"] == 24


def test_a_kafka_that_is_not_there_is_a_sentence(tmp_path: Path, capsys: Captured, no_kafka: KafkaSettings) -> None:
    config = tmp_path / "none.toml"
    config.write_text(f'[kafka]\nbootstrap_servers = "{no_kafka.bootstrap_servers}"\n')
    for command, words in (
        (["topics", "ls"], "does not answer: "),
        (["topics", "set", READINGS, "--retention-hours", "24"], "failed while listing topics"),
    ):
        assert run([*command, "--config", str(config)]) == 69
        assert f"Kafka at 127.0.0.1:1 {words}" in capsys.readouterr().err
