"""Profiles and devices that gateways take from Kafka: copies on a machine, whatever Kafka and the files do."""

import threading
from pathlib import Path

import pytest

from gateway.device_registry import DeviceRegistry, read_registry
from gateway.gateway_settings import GatewaySettings
from gateway.lease.lease_record import is_lease
from gateway.memory.known_gateways import is_gateway_record
from gateway.profiles.profile_folder import ProfileFolder
from gateway.shared_inputs import SharedInputs, device_input, device_inputs, plan_push, profile_inputs
from ingest.contract.errors import ConfigError, RetryableError
from ingest.contract.shared_input import device_key, input_name, is_shared_input, profile_key
from ingest.contract.topics import GATEWAY_STATE
from ingest.memory import MemoryFollower, MemoryLog

PUMP = b'name = "pump"\nversion = 1\ndevices = ["pump-*"]\n[metrics.t]\ntype = "number"\n'
FAN = PUMP.replace(b"pump", b"fan")


class Bed:
    """Kafka in memory, and gateways with folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, MemoryLog(partitions=1)

    def settings(self, gateway: str = "gw") -> GatewaySettings:
        place = self.folder / gateway
        return GatewaySettings(
            shared_inputs=True, profiles=str(place / "profiles"), device_registry=str(place / "devices.jsonl")
        )

    def inputs(self, gateway: str = "gw") -> SharedInputs:
        follower = MemoryFollower(self.log, is_shared_input, held=is_shared_input)
        return SharedInputs(follower, self.settings(gateway))

    def send(self, *records: tuple[str, bytes | None]) -> None:
        writer = self.log.writer()
        for key, value in records:
            writer.produce(GATEWAY_STATE, key.encode(), value or b"", lambda error: None)
        assert writer.flush(10) == 0

    def profiles(self, gateway: str = "gw") -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (self.folder / gateway / "profiles").glob("*.toml*")}


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_each_gateway_gets_the_same(bed: Bed) -> None:
    bed.send(
        (profile_key("pump.toml"), PUMP),
        *device_input("pump-1", "pump", {"site": "b"}).items(),
        ("sparkplug/a/b", b"x"),
    )
    for gateway in ("one", "two"):
        bed.inputs(gateway).refresh()
        assert bed.profiles(gateway) == {"pump.toml": PUMP}
        assert read_registry(bed.folder / gateway / "devices.jsonl")["pump-1"].tags == {"site": "b"}


def test_changes_and_removals_follow(bed: Bed) -> None:
    bed.send((profile_key("pump.toml"), PUMP), (profile_key("fan.toml"), FAN), *device_input("a", None, {}).items())
    inputs = bed.inputs()
    inputs.refresh()
    changed = PUMP.replace(b"= 1", b"= 2")
    bed.send((profile_key("pump.toml"), changed), (profile_key("fan.toml"), None), (device_key("a"), None))
    bed.send(*device_input("b", "pump", {}).items())
    inputs.refresh()
    assert bed.profiles() == {"pump.toml": changed}
    assert list(read_registry(bed.folder / "gw" / "devices.jsonl")) == ["b"]
    # Another process continues with the same files.
    bed.send((profile_key("new.toml"), FAN), (profile_key("pump.toml"), None))
    bed.inputs().refresh()
    assert bed.profiles() == {"new.toml": FAN}


def test_files_of_before_are_not_lost(bed: Bed) -> None:
    place = bed.folder / "gw"
    (place / "profiles").mkdir(parents=True)
    (place / "profiles" / "pump.toml").write_bytes(FAN)
    (place / "profiles" / "mine.toml").write_bytes(FAN)
    (place / "devices.jsonl").write_text('{"device":"old"}\n')
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())
    bed.inputs().refresh()
    assert bed.profiles() == {"pump.toml": PUMP, "pump.toml.local": FAN, "mine.toml": FAN}
    assert (place / "devices.jsonl.local").read_text() == '{"device":"old"}\n'
    assert list(read_registry(place / "devices.jsonl")) == ["a"]


def _former_files(place: Path) -> None:
    (place / "profiles").mkdir(parents=True)
    (place / "profiles" / "pump.toml").write_bytes(FAN)
    (place / "devices.jsonl").write_text('{"device":"old"}\n')


def test_a_reader_always_finds_a_file_while_it_is_replaced(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bed.folder / "gw"
    _former_files(place)
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())
    found: list[bool] = []
    monkeypatch.setattr(
        "gateway.shared_inputs.os.fsync",
        lambda _: found.append((place / "devices.jsonl").exists() and (place / "profiles" / "pump.toml").exists()),
    )
    bed.inputs().refresh()
    assert len(found) >= 4
    assert all(found)


@pytest.mark.parametrize("written", range(8))
def test_a_crash_at_any_step_loses_no_former_file(bed: Bed, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    place, replace, left = bed.folder / "gw", Path.replace, written
    _former_files(place)
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())

    def crash(self: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return replace(self, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            bed.inputs().refresh()
    bed.inputs().refresh()
    assert bed.profiles() == {"pump.toml": PUMP, "pump.toml.local": FAN}
    assert (place / "devices.jsonl.local").read_text() == '{"device":"old"}\n'
    assert list(read_registry(place / "devices.jsonl")) == ["a"]


def test_an_empty_file_that_a_gateway_made_is_not_kept(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    inputs = bed.inputs()
    inputs.make_missing()
    bed.send(*device_input("a", None, {}).items())
    inputs.refresh()
    assert list(read_registry(bed.folder / "gw" / "devices.jsonl")) == ["a"]
    assert [file.name for file in (bed.folder / "gw").glob("*.local")] == []
    assert "is replaced" not in caplog.text


def test_both_kinds_may_share_a_folder(bed: Bed) -> None:
    settings = GatewaySettings(
        shared_inputs=True, profiles=str(bed.folder), device_registry=str(bed.folder / "devices.jsonl")
    )
    inputs = SharedInputs(MemoryFollower(bed.log, is_shared_input, held=is_shared_input), settings)
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())
    inputs.refresh()
    bed.send((profile_key("fan.toml"), FAN))
    inputs.refresh()
    assert sorted(file.name for file in bed.folder.glob("[!.]*")) == ["devices.jsonl", "fan.toml", "pump.toml"]
    assert list(read_registry(bed.folder / "devices.jsonl")) == ["a"]


def test_an_empty_topic_removes_nothing(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())
    bed.inputs().refresh()
    bed.log = MemoryLog(partitions=1)  # deleted and created again
    bed.inputs().refresh()
    assert bed.profiles() == {"pump.toml": PUMP}
    assert list(read_registry(bed.folder / "gw" / "devices.jsonl")) == ["a"]
    assert "The copies of before stay in use" in caplog.text


@pytest.mark.parametrize(
    "name", ["../evil.toml", "/etc/evil.toml", ".hidden.toml", "a/b.toml", "no-toml", "", "\0.toml", "é.toml"]
)
def test_a_name_that_leads_out_of_the_folder_is_left_out(bed: Bed, name: str, caplog: pytest.LogCaptureFixture) -> None:
    bed.send((profile_key(name), PUMP), (profile_key("pump.toml"), PUMP))
    bed.inputs().refresh()
    assert bed.profiles() == {"pump.toml": PUMP}
    assert [file.name for file in bed.folder.rglob("*") if file.is_file() and "evil" in file.name] == []
    assert "left out" in caplog.text


def test_a_crash_between_two_files_is_made_good(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.send((profile_key("a.toml"), PUMP), (profile_key("b.toml"), FAN))
    replace, calls = Path.replace, 0

    def crash(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 3:  # the list, the first profile, and then
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            bed.inputs().refresh()
    bed.send((profile_key("a.toml"), None))
    bed.inputs().refresh()
    assert bed.profiles() == {"b.toml": FAN}, "a file of the first process is known as a shared one"


def test_a_device_is_judged_again_when_its_profile_comes(bed: Bed) -> None:
    bed.send(*device_input("pump-1", "pump", {}).items(), (profile_key("fan.toml"), FAN))
    inputs, settings = bed.inputs(), bed.settings()
    inputs.refresh()
    assert settings.profiles is not None
    assert settings.device_registry is not None
    folder, registry = ProfileFolder(Path(settings.profiles)), DeviceRegistry(Path(settings.device_registry))
    registry.devices = {}
    bed.send((profile_key("pump.toml"), PUMP))
    inputs.refresh()
    applied = []
    for _ in range(3):  # a change counts once it is unchanged between two looks
        folder.refresh()
        applied.append(registry.refresh(set(folder.current.names())))
    assert any(applied)
    assert list(registry.devices) == ["pump-1"]


def test_a_start_without_kafka(bed: Bed) -> None:
    said: list[str] = []
    stop = threading.Event()

    class Away(SharedInputs):
        tries = 0

        def refresh(self) -> None:
            self.tries += 1
            if self.tries == 2:
                stop.set()
            message = "Kafka does not answer"
            raise RetryableError(message)

    def away() -> Away:
        return Away(MemoryFollower(bed.log, is_shared_input), bed.settings())

    with away().following(stop, tell=said.append):
        pass
    assert said == ["Kafka does not answer. The gateway waits for the shared profiles and devices."]
    stop.clear()
    bed.send((profile_key("pump.toml"), PUMP), *device_input("a", None, {}).items())
    bed.inputs().refresh()
    with away().following(stop, tell=said.append):
        assert bed.profiles() == {"pump.toml": PUMP}
    assert said[1] == "Kafka does not answer. The gateway starts with its copies of the shared profiles and devices."


def test_missing_places_are_made(bed: Bed) -> None:
    with bed.inputs().following(threading.Event(), tell=lambda text: None):
        settings = bed.settings()
        assert ProfileFolder(Path(str(settings.profiles))).current.names() == []
        assert DeviceRegistry(Path(str(settings.device_registry))).devices == {}


def test_a_push_sends_only_what_differs(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "pump.toml").write_bytes(PUMP)
    (folder / "fan.toml").write_bytes(FAN)
    (folder / ".hidden.toml").write_bytes(FAN)
    held = [(profile_key("pump.toml"), PUMP), (profile_key("old.toml"), FAN), *device_input("a", None, {}).items()]
    plan = plan_push(held, profile_inputs(folder), profiles=True)
    assert plan.records == [(profile_key("fan.toml"), FAN), (profile_key("old.toml"), None)]
    assert plan.sentence("profile", dry_run=False) == (
        "Profiles in Kafka: 1 new or changed, 1 removed, 1 as before (fan.toml, old.toml)."
    )
    registry = tmp_path / "devices.jsonl"
    registry.write_text('{"device":"a"}\n{"device":"b","profile":"pump"}\n{"device":"b","profile":"fan"}\n')
    plan = plan_push(held, device_inputs(registry), profiles=False)
    assert plan.records == [(device_key("b"), b'{"device":"b","profile":"fan"}')]
    assert plan.summary(dry_run=True) == {"dry_run": True, "changed": ["b"], "removed": [], "unchanged": 1}


def test_a_name_that_cannot_be_shared_is_not_pushed(tmp_path: Path) -> None:
    (tmp_path / "pümp.toml").write_bytes(PUMP)
    with pytest.raises(ConfigError, match="cannot be shared under this name"):
        profile_inputs(tmp_path)


@pytest.mark.parametrize("device", ["held", "lease", "x", "device", "input"])
def test_no_key_looks_like_that_of_a_gateway(device: str) -> None:
    key = device_key(device)
    assert (is_shared_input(key), is_gateway_record(key), is_lease(key), input_name(key)) == (
        True,
        False,
        False,
        device,
    )


def test_settings_need_a_place() -> None:
    with pytest.raises(ValueError, match="shared_inputs needs a place for the copies"):
        GatewaySettings(shared_inputs=True)
