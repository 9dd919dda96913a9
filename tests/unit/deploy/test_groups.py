"""`tidegate groups` and `rewind`: both commands name the fields of a group alike, and a plan says what it changes."""

import json

import pytest

from deploy.bench.kafka_load import rewinding
from deploy.cli import run
from ingest.groups import describe as group_state
from ingest.groups.describe import ConsumerGroup
from ingest.groups.rewind import OffsetMove


def test_both_commands_name_the_fields_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = ConsumerGroup("meters", "STABLE", "consumer")
    monkeypatch.setattr(group_state, "list_groups", lambda settings: [group])
    monkeypatch.setattr(group_state, "describe_group", lambda settings, name: group)

    assert run(["groups", "ls", "--json", "-b", "127.0.0.1:9"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed == {"group": "meters", "state": "STABLE", "protocol": "consumer"}
    assert run(["groups", "describe", "meters", "--json", "-b", "127.0.0.1:9"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert {name: described[name] for name in listed} == listed
    assert not {"name", "kind"} & set(described)


def test_a_partition_in_which_the_group_never_committed_begins_at_the_new_offset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--to latest` skips every record there for a consumer that would begin at the earliest."""
    moves = [
        OffsetMove(0, None, 100, 100),
        OffsetMove(1, 40, 100, 100),
        OffsetMove(2, 100, 60, 100),
        OffsetMove(3, 100, 100, 100),
    ]
    monkeypatch.setattr("ingest.groups.rewind.plan_rewind", lambda *_args, **_more: moves)
    command = ["rewind", "meters", "-t", "t", "--to", "latest", "-b", "127.0.0.1:9"]
    assert run(command) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    effects = ["begins at 100", "skips 60", "reads 40 again", "-"]
    assert [line.split(maxsplit=4)[4] for line in lines] == effects
    assert run([*command, "--json"]) == 0
    assert [one["again"] for one in json.loads(capsys.readouterr().out)["partitions"]] == [None, -60, 40, 0]
    assert rewinding._planned_again(moves) is None, "nor does the benchmark take it for none"
    assert rewinding._planned_again(moves[1:]) == -20
