"""`tidegate topics`: what is read from flags and refused, what the lines say, and what an embedded Kafka takes on its disk."""

from pathlib import Path

import pytest
import typer

from deploy.cli import run
from deploy.commands.topics import parse_bytes, parse_hours
from deploy.commands.topics_text import change_lines, describe_lines, topic_dict, topic_lines
from deploy.local.kafka import topic_bytes
from ingest.lag.cluster_state import PartitionState, TopicRetention, TopicSettings
from ingest.topics.overview import TopicOverview
from ingest.topics.retention import ConfigChange

Captured = pytest.CaptureFixture[str]
KEPT = TopicSettings(TopicRetention(seconds=604_800, size_bytes=536_870_912), min_in_sync=2)
HEALTHY = PartitionState("t", 0, 10, 1510, 1, (1, 2, 3), (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "size"),
    [("8388608", 8 * 1024**2), ("512MiB", 512 * 1024**2), ("2g", 2 * 1024**3), ("1 TB", 1024**4), ("unlimited", -1)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "8388607", "7MiB", "1.5GiB", "many", "1PiB", "1e12"])
def test_a_size_that_is_none_or_too_small_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="wanted 8MiB or more"):
        parse_bytes(text)


def test_hours_are_read_and_nonsense_refused() -> None:
    assert (parse_hours("720"), parse_hours("unlimited")) == (720, -1)
    for text in ("0", "-1", "1.5", "2d", ""):
        with pytest.raises(typer.BadParameter, match="wanted a whole number of 1 or more"):
            parse_hours(text)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "Use --retention-hours, --retention-bytes or --set"),
        (["--as-settings", "--retention-hours", "1"], 2, "or --as-settings alone"),
        (["--retention-hours", "0"], 2, "--retention-hours '0': wanted"),
        (["--retention-bytes", "1k"], 2, "--retention-bytes '1k': wanted"),
        (["--set", "retention.ms"], 2, "--set 'retention.ms': wanted NAME=VALUE"),
        (["--as-settings", "--set", "a=b"], 2, "or --as-settings alone"),
        (["--set", "cleanup.policy=compact"], 1, "is Tidegate's: use only"),
        (["--retention-hours", "1", "-b", "127.0.0.1:1"], 1, "--config or --data of its streams"),
        (["--retention-hours", "1"], 69, "Nothing runs on"),
        (["--retention-hours", "1", "--config", "none.toml"], 78, "no such file"),
    ],
)
def test_a_fault_is_one_sentence(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEGATE_DATA", raising=False)
    assert run(["topics", "set", "telemetry.readings", *arguments]) == code
    told = capsys.readouterr()
    assert words in " ".join(told.err.split())
    assert told.out == ""


def test_a_healthy_topic_is_a_line_and_no_more() -> None:
    topic = TopicOverview("telemetry.readings", (HEALTHY,), KEPT)
    head, line = topic_lines([topic_dict(topic, 3 * 1024**2, is_own=True)])
    assert head.split()[:3] == ["topic", "partitions", "records"]
    assert line.split() == ["telemetry.readings", "1", "1,500", "3", "MiB", "168", "h", "512", "MiB", "delete"]


def test_what_is_not_known_is_no_figure() -> None:
    topic = TopicOverview("t", (PartitionState("t", 0, None, None, 1, (1,), (1,)), HEALTHY), None)
    found = topic_dict(topic, None, is_own=False)
    assert [found[name] for name in ("records", "bytes", "retention_hours", "retention_bytes", "cleanup")] == [None] * 5
    assert topic_lines([found])[1].split() == ["t", "2", "?", "?", "?", "?", "?"]


def test_no_limit_and_what_compaction_keeps_are_told() -> None:
    unlimited = TopicOverview("a", (HEALTHY,), TopicSettings(TopicRetention(seconds=604_800)))
    compacted = TopicOverview("b", (HEALTHY,), TopicSettings(TopicRetention(policy="compact")))
    found = [topic_dict(each, None, is_own=True) for each in (unlimited, compacted)]
    assert found[0]["retention_bytes"] == -1
    assert topic_lines(found)[1].split()[4:] == ["168", "h", "no", "limit", "delete"]
    assert topic_lines(found)[2].split()[4:] == ["no", "limit", "no", "limit", "compact"]


def test_partitions_that_need_somebody_are_named_with_the_brokers_that_are_missing() -> None:
    ill = (
        HEALTHY,
        PartitionState("t", 1, 0, 5, 1, (1, 2, 3), (1, 2)),
        PartitionState("t", 2, 0, 5, 1, (1, 2, 3), (1,)),
        PartitionState("t", 3, None, None, -1, (1, 2, 3), (3,)),
    )
    topic = TopicOverview("telemetry.readings", ill, KEPT)
    assert topic.problems() == [
        "partition 1 has 2 of 3 replicas in sync (missing brokers: 3)",
        "partition 2 has 1 of 3 replicas in sync, needs 2: Kafka refuses its records (missing brokers: 2, 3)",
        "partition 3 has no leader, so nobody can read or write it (missing brokers: 1, 2)",
    ]
    lines = topic_lines([topic_dict(topic, None, is_own=True)])
    assert lines[2:] == ["", *(f"telemetry.readings: {problem}" for problem in topic.problems())]


def test_a_change_says_what_was_and_what_is() -> None:
    changes = [
        ConfigChange("retention.ms", "604800000", "86400000"),
        ConfigChange("retention.bytes", "536870912", "-1"),
        ConfigChange("segment.bytes", "67108864", "131072"),
        ConfigChange("cleanup.policy", "", "delete"),
    ]
    lines = change_lines("t", changes, dry_run=False)
    assert [" ".join(line.split()) for line in lines] == [
        "t before now",
        "retention.ms 604800000 (168 h) 86400000 (24 h)",
        "retention.bytes 536870912 (512 MiB) -1 (no limit)",
        "segment.bytes 67108864 (64 MiB) 131072 (128 KiB)",
        "cleanup.policy (not set) delete",
        "Kafka deletes the records beyond the limit within minutes, the oldest segments first.",
    ]
    assert "dry run" in change_lines("t", changes, dry_run=True)[-1]
    assert "deletes" not in " ".join(change_lines("t", changes[1:], dry_run=False)), "nothing goes where more is kept"
    assert change_lines("t", [], dry_run=False) == ["t already has these settings; nothing was changed."]


def test_the_disk_is_counted_by_topic(tmp_path: Path) -> None:
    for name, size in (("telemetry.readings-0", 9000), ("telemetry.readings-1", 5000), ("__cluster_metadata-0", 100)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "0.log").write_bytes(b"x" * size)
    (tmp_path / "meta.properties").write_text("no topic")
    (tmp_path / "snapshots").mkdir()
    found = topic_bytes(tmp_path)
    assert set(found) == {"telemetry.readings", "__cluster_metadata"}
    assert 14_000 <= found["telemetry.readings"] <= 14_000 + 2 * 65_536, "whole blocks"
    with (tmp_path / "telemetry.readings-0" / "0.index").open("wb") as index:
        index.truncate(10_000_000)
    assert topic_bytes(tmp_path)["telemetry.readings"] < 1_000_000, "what an index has not filled takes no room"
    assert topic_bytes(tmp_path / "none") == {}


def test_settings_that_a_user_may_not_read_are_not_the_defaults() -> None:
    sight = TopicOverview("t", (PartitionState("t", 0, None, None, 3, (3,), (3,)),), None)
    topic = {**topic_dict(sight, None, is_own=False), "by_partition": [], "settings": None}
    lines = describe_lines(topic)
    assert "  not known: this user may not read them; grant it DESCRIBE_CONFIGS on the topic" in lines
    assert lines[-1] == "partition 0 shows no offsets: its leader, broker 3, does not answer"
    assert "  none: all are the broker's defaults" in describe_lines({**topic, "settings": {}})
