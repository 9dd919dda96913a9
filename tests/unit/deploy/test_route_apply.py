"""`tidegate route apply`: routes of a person's file go into the settings that an embedded run's gateway watches."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import settings_reload
from deploy.cli import run
from deploy.local.runfile import DataLock, RunFile
from deploy.settings import Settings, load_settings
from deploy.settings_file import to_toml, write_private
from deploy.settings_reload import SettingsFile
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import MessageProcessor
from gateway.routes import compile_routes

OURS = """
[mqtt]
port = 9
[[routes]]
filter = "kiln/{device}"
device = "{device}"
mapping = "kiln"
[mappings.kiln]
extends = "owntracks"
skip = ["...", "fw"]
[vendors.acme]
brands = "acme"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """That of a run with one route."""
    folder = tmp_path / "the data"
    folder.mkdir()
    settings = Settings.model_validate({"mqtt": {"port": 1234}, "routes": [{"filter": "old/#"}]})
    write_private(folder / "config.toml", to_toml(settings))
    lock = DataLock(folder)
    RunFile("id", 1, 0.0).write(folder)
    (tmp_path / "my.toml").write_text(OURS, "utf-8")
    yield folder
    lock.release()


def test_a_run_gets_routes_mappings_and_vendors_and_keeps_the_rest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder.parent / "my.toml"
    watched = SettingsFile(folder / "config.toml")
    assert watched.new_routes() is None
    assert run(["route", "apply", str(file), "--data", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "The gateway applies 1 route of" in said
    assert "Removed: old/#." in said
    assert f"up --data '{folder}' --config {file}` for the next start" in said
    written, given = load_settings(folder / "config.toml", environ={}), load_settings(file, environ={})
    assert (written.routes, dict(written.vendors), written.mqtt.port) == (given.routes, dict(given.vendors), 1234)
    assert written.routes[0].mapping is not None
    assert watched.new_routes() is None, "it has to stand still first"
    new = watched.new_routes()
    assert new is not None
    assert (new.routes, dict(new.vendors), watched.new_routes()) == (given.routes, dict(given.vendors), None)


def test_each_part_of_a_secured_run_gets_the_routes_and_keeps_its_own_login(folder: Path) -> None:
    part, other = Settings.model_validate({"kafka": {"sasl_username": "gateway"}}), folder / "config-gateway.toml"
    write_private(other, to_toml(part))
    RunFile("id", 1, 0.0, part_configs=[other.name]).write(folder)
    assert run(["route", "apply", str(folder.parent / "my.toml"), "--data", str(folder)]) == 0
    written, shared = load_settings(other, environ={}), load_settings(folder / "config.toml", environ={})
    assert (written.routes, written.vendors, written.mappings) == (shared.routes, shared.vendors, shared.mappings)
    assert [route.filter for route in written.routes] == ["kiln/{device}"]
    assert (written.kafka.sasl_username, written.mqtt.port, shared.mqtt.port) == ("gateway", 1883, 1234)


def test_what_the_gateway_would_refuse_is_not_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "config.toml").read_bytes()
    for bad in ('[[routes]]\nfilter = "a/#"\nmapping = "nobody"\n', '[[routes]]\nfilter = "a"\nprofile = "p"\n', "[["):
        (folder.parent / "my.toml").write_text(bad, "utf-8")
        assert run(["route", "apply", str(folder.parent / "my.toml"), "--data", str(folder)]) == 78
    assert (folder / "config.toml").read_bytes() == before
    assert run(["route", "apply", str(folder.parent / "my.toml"), "--data", str(folder.parent / "none")]) != 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("half", ["", "[["])
def test_a_file_that_is_written_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    file = folder / "config.toml"
    watched = SettingsFile(file)
    file.write_text('[[routes]]\nfilter = "new/#"\n', "utf-8")
    assert watched.new_routes() is None

    def read_late(path: Path) -> Settings:
        monkeypatch.undo()
        path.write_text(half, "utf-8")
        return load_settings(path, environ={})

    monkeypatch.setattr(settings_reload, "load_settings", read_late)
    assert watched.new_routes() is None, "a half-written file is no change"
    file.write_text('[[routes]]\nfilter = "newer/#"\n', "utf-8")
    assert watched.new_routes() is None, "it has to stand still first"
    new = watched.new_routes()
    assert new is not None
    assert [route.filter for route in new.routes] == ["newer/#"]


def test_the_page_judges_by_the_routes_that_apply_now(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    file = folder / "config.toml"
    source = SettingsFile(file, load_settings(file, environ={}))
    first = source.newest()
    assert source.newest() is first
    changed = first.model_copy(update={"routes": (), "mqtt": first.mqtt.model_copy(update={"port": 9})})
    write_private(file, to_toml(changed))
    newest = source.newest()
    assert (newest.routes, newest.mqtt.port) == ((), 1234), "what needs a start stays"
    write_private(file, "[[")
    assert source.newest() is newest
    assert "Rejected the changed settings" in caplog.text
    file.unlink()
    assert source.newest() is newest


def test_a_decoder_whose_file_came_since_is_found_and_the_others_keep_what_they_know(tmp_path: Path) -> None:
    limits = GatewaySettings(decoders=str(tmp_path))
    gate = MessageProcessor(compile_routes((), limits), limits)
    before = dict(gate._decoders)
    (tmp_path / "kiln.py").write_text("def decode(topic, payload):\n    return None\n", "utf-8")
    gate.find_decoders()
    assert gate._decoders.keys() - before.keys() == {"kiln"}
    assert all(gate._decoders[name] is one for name, one in before.items())
