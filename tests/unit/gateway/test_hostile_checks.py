"""The checks that judge hostile input can fail, and the fuzzer says what it lacks and what it found."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.decoders.shape import Reply
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter, encode_dead_letter
from ingest.contract.errors import UnavailableError
from ingest.contract.reading import Reading, ReadingRecord, decode_record, encode_record
from ingest.contract.reasons import IgnoredReason, Reason
from tests.fuzz import run as fuzz
from tests.fuzz.bombs import BOMBS, make_bomb
from tests.fuzz.checks import faults_of
from tests.fuzz.mutate import bend
from tests.fuzz.seeds import FuzzTarget, fitting_seeds, read_seeds, targets

NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
GOOD = Message(1, 1, NOW_US, b"tidegate/v1/dev-1/readings", b'{"values":{"a":1,"b":2}}')
BAD = GOOD._replace(payload=b"[")


def decided(message: Message) -> Outcome:
    return MessageProcessor(compile_routes(()), LIMITS).decide(message)


def spoiled(change: Callable[[ReadingRecord], Any]) -> list[str]:
    outcome = decided(GOOD)
    record = decode_record(outcome.records[0].value)
    change(record)
    outcome.records[0] = outcome.records[0]._replace(value=encode_record(record))
    return faults_of(GOOD, outcome, LIMITS)


def put(name: str, value: Any, *, reading: bool = True) -> Callable[[ReadingRecord], None]:
    return lambda record: setattr(record.readings[0] if reading else record, name, value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("metric", "a\nb"), "no metric name"),
        (put("value", None), "neither value nor text"),
        (put("time_us", 5), "before 2000"),
        (put("time_us", NOW_US + 10**9), "too far ahead"),
        (put("index", 2**31), "32 bits"),
        (put("claimed_us", 2**63), "64 bits"),
        (put("flags", ["Has Blanks"]), "short word"),
        (put("seq", -1), "not a counter"),
        (put("device", "a\0", reading=False), "wanted a name without NUL"),
        (put("device", "other", reading=False), "is not device"),
        (put("topic", "x", reading=False), "not the message's"),
        (put("readings", [], reading=False), "without readings"),
        (put("readings", [Reading("a", 1.0), Reading("a", 2.0)], reading=False), "is there twice"),
    ],
)
def test_each_fault_of_a_record_is_told(change: Callable[[ReadingRecord], Any], told: str) -> None:
    assert any(told in fault for fault in spoiled(change))


def test_a_sound_outcome_has_no_fault() -> None:
    assert spoiled(lambda record: None) == []
    assert faults_of(BAD, decided(BAD), LIMITS) == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("payload_base64", "AAAA", "neither the payload nor its beginning"),
        ("payload_bytes", 7, "says 7 bytes"),
        ("got", "a\x1b[31m", "not safe to show"),
        ("path", "x" * 121, "not safe to show"),
    ],
)
def test_each_fault_of_a_dead_letter_is_told(name: str, value: Any, told: str) -> None:
    outcome = decided(BAD)
    letter = decode_dead_letter(outcome.records[0].value)
    setattr(letter, name, value)
    outcome.records[0] = outcome.records[0]._replace(value=encode_dead_letter(letter))
    assert any(told in fault for fault in faults_of(BAD, outcome, LIMITS))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ignored": IgnoredReason.STATUS}, "wanted exactly one"),
        ({"accepted": False}, "outcomes set: none"),
        ({"readings": 5}, "5 counted"),
        ({"records": []}, "accepted without a record"),
        ({"parts": [Reason.INTERNAL_ERROR]}, "internal_error"),
        ({"parts": [Reason.BAD_NUMBER]}, "1 parts rejected, 0 dead letters"),
        ({"replies": [Reply("a/#", b"")]}, "which is not a topic"),
    ],
)
def test_each_fault_of_an_outcome_is_told(changes: dict[str, Any], told: str) -> None:
    assert any(told in fault for fault in faults_of(GOOD, msgspec.structs.replace(decided(GOOD), **changes), LIMITS))


def test_every_target_has_a_topic_that_leads_to_it() -> None:
    for target in targets():
        gate = target.gate(LIMITS)
        for topic in target.topics:
            outcome = gate.decide(Message(1, 1, NOW_US, topic.encode(), b"\xff\xfe\xfd\xfc"))
            assert outcome.rejected != Reason.NO_ROUTE or target.presets, (target.name, topic)


def test_seeds_are_read_and_chosen(tmp_path: Path) -> None:
    lines = [{"topic": "a/b", "payload": "21.5"}, {"topic": "a/c", "payload_base64": "//8="}]
    (tmp_path / "examples.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    seeds = read_seeds(tmp_path / "examples.jsonl")
    assert [seed.payload for seed in seeds] == [b"21.5", b"\xff\xff"]
    plain = next(target for target in targets() if target.name == "plain")
    assert seeds[0] in fitting_seeds(plain, seeds, LIMITS, NOW_US)
    assert seeds[1] not in fitting_seeds(plain, seeds, LIMITS, NOW_US)


def test_bending_repeats_and_changes() -> None:
    bent = [bend(Random(seed), GOOD.payload, b"other") for seed in range(200)]
    assert bent == [bend(Random(seed), GOOD.payload, b"other") for seed in range(200)]
    assert len(set(bent)) > 150


def test_bending_takes_what_is_nested_deeply() -> None:
    deep = b"[" * 990 + b"]" * 990
    assert all(bend(Random(seed), deep, deep) for seed in range(50) if seed)


def test_bombs_are_made_by_name_and_stay_small() -> None:
    sizes = {name: len(make_bomb(name)) for name in BOMBS if "gzip" not in name}
    assert {name for name, size in sizes.items() if size > LIMITS.max_payload_bytes + 64} <= {
        "text 1 MiB", "text 1000033", "keys 9999 bad units",
    }  # fmt: skip
    with pytest.raises(KeyError):
        make_bomb("none such")


# The fuzzer. It runs in `make chaos` only; what it says does not need it.


def test_without_atheris_the_fuzzer_says_so_and_ends_with_69(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="--provide"):
        fuzz.find_atheris(tmp_path)
    (tmp_path / "atheris").mkdir()
    assert fuzz.find_atheris(tmp_path) == [str(tmp_path)]
    monkeypatch.setattr(fuzz.find_atheris, "__defaults__", (tmp_path / "none",))
    assert fuzz.main(["native"]) == 69
    assert capsys.readouterr().err.startswith("Fuzzing needs atheris")


def test_an_unknown_target_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fuzz.main(["nativ"])
    assert "known: auto" in capsys.readouterr().err


@dataclass
class Ended:
    stderr: bytes
    returncode: int


SAID = b"""#2	INITED cov: 40 ft: 41 corp: 1/1b
#9	NEW    cov: 48 ft: 50 corp: 3/9b lim: 4
stat::number_of_executed_units: 99
stat::peak_rss_mb: 63
"""


@pytest.mark.parametrize(
    ("left", "code", "told"),
    [
        ({}, 0, []),
        ({"finding-1.json": '{"fault":"no metric name"}'}, 0, ["no metric name"]),
        ({"crash-ab": "x", "timeout-cd": "y"}, 77, ["libFuzzer stopped: crash", "libFuzzer stopped: timeout"]),
        ({}, 1, ["the fuzzer ended with 1: "]),
    ],
)
def test_a_run_is_told_with_its_figures_and_findings(
    left: dict[str, str], code: int, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: Ended(SAID, code))
    run = fuzz.fuzz_target(FuzzTarget("native", ("t",)), 5, tmp_path, [])
    assert (run["executions"], run["coverage"], run["features"], run["corpus"], run["peak_mb"]) == (99, 48, 50, 3, 63)
    assert [found["fault"][: len(text)] for found, text in zip(run["findings"], told, strict=True)] == told


def test_a_fuzzer_that_hangs_is_ended_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 1, stderr=SAID)

    monkeypatch.setattr(subprocess, "run", hang)
    run = fuzz.fuzz_target(FuzzTarget("native", ("t",)), 5, tmp_path, [])
    assert run["findings"][0]["fault"].startswith("the fuzzer ended with 124")
