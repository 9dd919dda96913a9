"""Decoders that are one file in a folder: they may raise, hang or die, and only their message is refused."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.decoders import python_file
from gateway.decoders.shape import RouteMatch
from gateway.devtools.decode_file import describe_outcome
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError

AT_US = 1_795_900_000_000_000
GOOD = """
def decode(topic, payload):
    if payload == b"none":
        return None
    tenths = int.from_bytes(payload, "big", signed=True)
    return {"values": {"temperature": {"value": tenths / 10, "unit": "°C"}}, "ts": 1795890000, "id": "n1"}
"""
FAULTS = """
import os, subprocess, sys, time
print("what a decoder prints is no answer")
def decode(topic, payload):
    word = payload.decode()
    if word == "raise":
        raise ValueError("three bytes are missing")
    if word == "hang":
        while True: pass
    if word == "exit":
        os._exit(7)
    if word == "sysexit":
        sys.exit(1)
    if word == "deaf":
        os.closerange(3, 64)
        time.sleep(1000)
    if word == "child":
        subprocess.run(["sleep", "1000"])
    if word == "odd":
        return ["no object"]
    if word == "set":
        return {"values": {"t": {1, 2}}}
    if word == "memory":
        return {"values": {"t": len(bytearray(3 * 1024**3))}}
    if word == "nan":
        return {"values": {"t": float("nan"), "u": 1}}
    return [{"values": {"pid": os.getpid()}, "device": topic.split("/")[1]}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tenths.py").write_text(GOOD, "utf-8")
    (tmp_path / "faulty.py").write_text(FAULTS, "utf-8")
    (tmp_path / "test_tenths.py").write_text("assert False", "utf-8")
    return tmp_path


@pytest.fixture
def decide(folder: Path) -> Callable[[str, bytes], dict[str, Any]]:
    limits = GatewaySettings(decoders=str(folder), decoder_seconds=1.0, presets=())
    routes = (
        RouteSettings(filter="raw/{device}/#", device="{device}", decoder="tenths"),
        RouteSettings(filter="bad/{device}", device="{device}", decoder="faulty"),
    )
    gate = MessageProcessor(compile_routes(routes, limits), limits)
    numbers = iter(range(1, 1000))
    return lambda topic, payload: describe_outcome(
        gate.decide(Message(next(numbers), 0, AT_US, topic.encode(), payload))
    )


def test_a_file_reads_messages_and_names_device_time_unit_and_identity(decide: Callable[..., dict[str, Any]]) -> None:
    [reading] = decide("raw/kiln-4/x", bytes.fromhex("00d7"))["readings"]
    assert (reading["device"], reading["metric"], reading["value"], reading["unit"]) == (
        "kiln-4",
        "temperature",
        21.5,
        "°C",
    )
    assert reading["time"] == "2026-11-28T18:20:00Z"
    assert "flags" not in reading
    assert decide("raw/kiln-4/x", b"none")["outcome"] == "ignored"


def test_the_tests_in_the_folder_and_unknown_names_are_no_decoders(folder: Path) -> None:
    limits = GatewaySettings(decoders=str(folder))
    with pytest.raises(ConfigError, match=r"decoder 'tenth' is unknown; did you mean 'tenths'"):
        compile_routes((RouteSettings(filter="x", decoder="tenth"),), limits)
    assert sorted(python_file.find_files(str(folder))) == ["faulty", "tenths"]
    assert python_file.find_files(str(folder / "none")) == {}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"raise", "ValueError: three bytes are missing (faulty.py line 7)"),
        (b"exit", "its process ended (code 7)"),
        (b"sysexit", "its process ended"),
        (b"hang", "it took more than 1 s (gateway.decoder_seconds) and was ended"),
        (b"odd", "its answer is neither"),
        (b"set", "the answer holds a set, which is not JSON"),
        (b"memory", "MemoryError"),
    ],
)
def test_a_fault_costs_its_message_and_no_other(
    decide: Callable[..., dict[str, Any]], payload: bytes, said: str
) -> None:
    found = decide("bad/d1", payload)
    assert (found["outcome"], found["reason"]) == ("dead_letter", "undecoded")
    assert said in found["got"]
    assert "correct faulty.py, then redrive" in found["wanted"]
    assert decide("bad/d1", b"good")["outcome"] == "reading"
    assert decide("raw/d1/x", b"\x01")["outcome"] == "reading"


def test_a_decoder_that_lets_go_of_its_channel_does_not_hold_up_the_gateway(
    decide: Callable[..., dict[str, Any]],
) -> None:
    assert "it took more than 1 s" in decide("bad/d1", b"deaf")["got"]
    assert decide("bad/d1", b"good")["outcome"] == "reading"


def test_what_a_decoder_started_ends_with_it(
    decide: Callable[..., dict[str, Any]], wait_until: Callable[..., None]
) -> None:
    pid = int(decide("bad/d1", b"good")["readings"][0]["value"])
    assert decide("bad/d1", b"child")["outcome"] == "dead_letter"

    def of_the_group() -> list[Path]:
        return [stat for stat in Path("/proc").glob("[0-9]*/stat") if _group(stat) == pid]

    wait_until(lambda: not of_the_group(), seconds=20)


def _group(stat: Path) -> int:
    try:
        return int(stat.read_text("utf-8", "replace").rpartition(")")[2].split()[2])
    except OSError:
        return 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such", "no_such"),
        ("import os\nos._exit(3)", "its process ended (code 3)"),
        ("import os\ndef decode(topic, payload): os._exit(3)", "its process ended (code 3)"),
    ],
)
def test_a_decoder_that_cannot_go_on_is_not_started_for_each_message(
    decide: Callable[..., dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    starts, started = [], python_file._Worker

    def start(file: Path, seconds: float) -> Any:
        starts.append(file)
        return started(file, seconds)

    monkeypatch.setattr(python_file, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(python_file, "_Worker", start)
    (folder / "tenths.py").write_text(text, "utf-8")
    found = [decide("raw/d1/x", b"\x0a") for _ in range(20)]
    assert {each["outcome"] for each in found} == {"dead_letter"}
    assert said in found[0]["got"]
    assert "paused" in found[-1]["got"]
    assert said in found[-1]["got"], "a dead letter says why, also while it rests"
    assert len(starts) <= 3
    (folder / "tenths.py").write_text(GOOD, "utf-8")
    assert decide("raw/d1/x", b"\x0a")["outcome"] == "reading"


def test_a_file_that_hangs_while_it_is_loaded_takes_little_of_the_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, match = [0.0], RouteMatch("tenths", "d1", "readings", topic="raw/d1/x")

    def start(file: Path, seconds: float) -> Any:
        now[0] += 10.0
        raise python_file._Failed("it was not loaded within 10 s")

    monkeypatch.setattr(python_file, "_Worker", start)
    decoder = python_file.PythonFileDecoder(folder / "tenths.py", clock=lambda: now[0])
    for _ in range(1000):
        assert isinstance(decoder(b"x", match, GatewaySettings(), AT_US), Reject)
        now[0] += 1.0
    assert now[0] - 1000.0 <= 0.12 * now[0]


def test_a_value_that_is_none_costs_its_field(decide: Callable[..., dict[str, Any]]) -> None:
    found = decide("bad/d1", b"nan")
    assert [one["metric"] for one in found["readings"]] == ["u"]
    assert [one["reason"] for one in found["rejected"]] == ["bad_number"]


def test_a_decoder_that_hangs_again_and_again_rests(
    decide: Callable[..., dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_file, "LOOK_SECONDS", 0.0)
    assert [decide("bad/d1", b"hang")["outcome"] for _ in range(3)] == ["dead_letter"] * 3
    assert "paused" in decide("bad/d1", b"good")["got"]
    # Another content may be the correction.
    (folder / "faulty.py").write_text(FAULTS + "\n# corrected\n", "utf-8")
    assert decide("bad/d1", b"good")["outcome"] == "reading"


def test_a_changed_file_is_loaded_and_a_broken_one_leaves_the_one_before(
    decide: Callable[..., dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_file, "LOOK_SECONDS", 0.0)
    assert decide("raw/d1/x", b"\x0a")["readings"][0]["value"] == 1.0
    file = folder / "tenths.py"
    file.write_text(GOOD.replace("/ 10", "/ 100"), "utf-8")
    assert decide("raw/d1/x", b"\x0a")["readings"][0]["value"] == 0.1
    file.write_text("def decode(topic, payload:\n", "utf-8")
    assert decide("raw/d1/x", b"\x0a")["readings"][0]["value"] == 0.1
    file.unlink()
    assert decide("raw/d1/x", b"\x0a")["readings"][0]["value"] == 0.1


def test_a_file_that_cannot_be_loaded_says_why_and_stops_nothing(
    decide: Callable[..., dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_file, "LOOK_SECONDS", 0.0)
    file = folder / "tenths.py"
    for text, said in (
        ("x = 1\n", "no function decode"),
        ("def decode(t, p:\n", "line 1"),
        ("import no_such\n", "no_such"),
    ):
        file.write_text(text, "utf-8")
        assert said in decide("raw/d1/x", b"\x0a")["got"]
    file.write_text(GOOD, "utf-8")
    assert decide("raw/d1/x", b"\x0a")["outcome"] == "reading"


def test_the_process_goes_with_its_gate(folder: Path, wait_until: Callable[..., None]) -> None:
    limits = GatewaySettings(decoders=str(folder))
    gate = MessageProcessor(compile_routes((RouteSettings(filter="bad/{device}", decoder="faulty"),), limits), limits)
    found = describe_outcome(gate.decide(Message(1, 0, AT_US, b"bad/d1", b"pid")))
    folder_of_process = Path(f"/proc/{int(found['readings'][0]['value'])}")
    assert folder_of_process.exists()
    del gate
    gc.collect()
    wait_until(lambda: not folder_of_process.exists(), seconds=20)
