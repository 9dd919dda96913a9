"""`tidegate groups`: both commands name the fields of a group alike."""

import json

import pytest

from deploy.cli import run
from ingest import group_state
from ingest.group_state import Group


def test_both_commands_name_the_fields_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group("meters", "STABLE", "consumer")
    monkeypatch.setattr(group_state, "list_groups", lambda settings: [group])
    monkeypatch.setattr(group_state, "describe_group", lambda settings, name: group)

    assert run(["groups", "ls", "--json", "-b", "127.0.0.1:9"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed == {"group": "meters", "state": "STABLE", "protocol": "consumer"}
    assert run(["groups", "describe", "meters", "--json", "-b", "127.0.0.1:9"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert {name: described[name] for name in listed} == listed
    assert not {"name", "kind"} & set(described)
