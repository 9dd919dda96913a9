"""Registered devices: lines in a file, added one at a time, read anew when they change; and who a payload says it is."""

import json
import threading
from pathlib import Path

import pytest

from gateway.device_registry import DeviceRegistry, RegisteredDevice, add_device, identity_fault, read_registry
from ingest.contract.errors import ConfigError
from ingest.contract.reasons import Reason


def settle(registry: DeviceRegistry, profiles: frozenset[str] = frozenset()) -> bool:
    return [registry.refresh(profiles), registry.refresh(profiles)][1]


def test_a_device_is_one_line_and_the_last_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "new" / "devices.jsonl"
    assert add_device(file, "pump-1")
    assert add_device(file, 'a/b "ü" +#%', profile="pump", tags={"site": "berlin"})
    assert not add_device(file, "pump-1"), "it says so already"
    assert add_device(file, "pump-1", profile="pump")
    assert len(file.read_text().splitlines()) == 3
    assert read_registry(file) == {
        "pump-1": RegisteredDevice("pump-1", "pump"),
        'a/b "ü" +#%': RegisteredDevice('a/b "ü" +#%', "pump", {"site": "berlin"}),
    }
    assert json.loads(file.read_text().splitlines()[0]) == {"device": "pump-1"}


def test_a_line_that_was_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    file = tmp_path / "devices.jsonl"
    file.write_text('{"device": "a"}')
    add_device(file, "b")
    assert set(read_registry(file)) == {"a", "b"}


def test_many_commands_at_once_lose_no_line(tmp_path: Path) -> None:
    file = tmp_path / "devices.jsonl"
    names = [f"d{n}" for n in range(40)]
    threads = [threading.Thread(target=add_device, args=(file, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_registry(file)) == set(names)


@pytest.mark.parametrize(
    ("device", "tags", "told"),
    [
        ("", {}, "at least one character"),
        ("a\nb", {}, "control characters"),
        ("a" * 5000, {}, "at most 4096 bytes"),
        ("a", {"": "x"}, "tag =x of device a"),
        ("a", {"k": "x\0"}, "control characters"),
    ],
)
def test_what_is_no_device_is_told_and_not_written(
    tmp_path: Path, device: str, tags: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        add_device(tmp_path / "devices.jsonl", device, tags=tags)
    assert not (tmp_path / "devices.jsonl").exists()


@pytest.mark.parametrize(
    "line",
    [
        "nope",
        "[]",
        '{"device": 7}',
        '{"devise": "a"}',
        '{"device": ""}',
        '{"device": "a", "tags": {"k": 1}}',
        "\xff",
        "[" * 9999,
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "devices.jsonl"
    file.write_bytes(b'{"device": "a"}\r\n\n' + line.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"devices\.jsonl:3: "):
        DeviceRegistry(file)


def test_a_registry_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tidegate device add"):
        DeviceRegistry(tmp_path / "devices.jsonl")


def test_it_is_read_anew_and_a_bad_one_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "devices.jsonl"
    add_device(file, "a")
    registry = DeviceRegistry(file)
    assert not settle(registry)
    add_device(file, "b", profile="pump")
    assert not settle(registry), "no profile of that name yet"
    assert registry.refused == "device b names profile pump, but no file of the folder has that profile"
    assert set(registry.devices) == {"a"}
    add_device(file, "b")
    assert settle(registry)
    assert (set(registry.devices), registry.refused) == ({"a", "b"}, None)
    content = file.read_bytes()
    file.write_bytes(content + b"{torn")
    assert not settle(registry)
    assert set(registry.devices) == {"a", "b"}
    file.unlink()
    assert not settle(registry)
    assert set(registry.devices) == {"a", "b"}
    file.write_bytes(content)
    assert settle(registry)
    assert registry.refused is None
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 3, "each refusal is told once"


def test_who_a_payload_says_it_is() -> None:
    assert identity_fault("a", None, "$.device") is None
    assert identity_fault("a", "a", "$.device") is None
    assert identity_fault("007", "7", "$.device") is not None
    assert identity_fault("7", 7, "$.device") is None
    assert identity_fault("1", True, "$.device") is not None
    fault = identity_fault("a", "b\n", "$.device")
    assert fault is not None
    assert (fault.reason, fault.path, fault.got) == (Reason.IDENTITY_MISMATCH, "$.device", "b\\u000a")
    assert fault.wanted == "a, the device of the topic"
