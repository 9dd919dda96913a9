"""Each file of the public JSON test suite as a payload: refused or read as declared, and nothing is made up."""

import json
import tomllib
from pathlib import Path

import pytest

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.reading import Reading, decode_record
from ingest.contract.topics import READINGS
from tests.fuzz.checks import faults_of
from tests.fuzz.seeds import FuzzTarget, targets

pytestmark = pytest.mark.promise("P4")

SUITE = Path(__file__).parents[2] / "data" / "json-test-suite"
FILES = sorted(SUITE.glob("*.json"))
DECLARED = tomllib.loads((Path(__file__).parent / "hostile" / "json_suite.toml").read_text("utf-8"))
BY_PREFIX = {"y": {"accepted"}, "n": {"bad_json", "bad_encoding"}, "i": set[str]()}
NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
ROUTES = compile_routes((RouteSettings(filter="site/#"), RouteSettings(filter="j/#", decoder="json")))
NATIVE = "tidegate/v1/dev-1/readings"

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def decide(topic: str, payload: bytes) -> Outcome:
    message = Message(1, 1, NOW_US, topic.encode(), payload)
    outcome = MessageProcessor(ROUTES, LIMITS).decide(message)
    assert faults_of(message, outcome, LIMITS) == []
    return outcome


def word(outcome: Outcome) -> str:
    return "accepted" if outcome.accepted else str(outcome.rejected or outcome.ignored)


def readings_of(outcome: Outcome) -> list[Reading]:
    return [
        one for record in outcome.records if record.topic == READINGS for one in decode_record(record.value).readings
    ]


def _as_sent(reading: Reading) -> object:
    if "numeric_text" in (reading.flags or ()):
        return f"{reading.value:g}"
    return reading.text if reading.value is None else reading.value


def leaves(document: object) -> list[object]:
    """Every value of a document that is one, as the reading must hold it."""
    if isinstance(document, dict):
        return [leaf for inner in document.values() for leaf in leaves(inner)]
    if isinstance(document, list):
        return [leaf for inner in document for leaf in leaves(inner)]
    if document is None or document == "":
        return []
    return [float(document) if isinstance(document, int | float) else document]


@each_file
def test_generic_json(path: Path) -> None:
    payload = path.read_bytes()
    outcome = decide("j/dev/state", payload)
    declared = DECLARED["json"].get(path.stem)
    assert word(outcome) in ({declared} if declared else BY_PREFIX[path.stem[0]])
    if outcome.accepted:
        # A number in a text is a number with a flag.
        values = [_as_sent(one) for one in readings_of(outcome)]
        assert sorted(map(repr, values)) == sorted(map(repr, leaves(json.loads(payload))))
        assert not outcome.parts


@each_file
def test_auto(path: Path) -> None:
    outcome = decide("site/dev/metric", path.read_bytes())
    declared = DECLARED["auto"].get(path.stem)
    if declared is None:
        assert word(outcome) == word(decide("j/dev/state", path.read_bytes()))
    elif declared.strip("<>") in ("no_value",):
        assert word(outcome) == declared.strip("<>")
    else:
        assert [(one.metric, one.value, one.text) for one in readings_of(outcome)] == [("metric", None, declared)]


@each_file
def test_native(path: Path) -> None:
    """No file has `values`: a document is none of ours, and text that is no document is refused as everywhere."""
    found, generic = word(decide(NATIVE, path.read_bytes())), word(decide("j/dev/state", path.read_bytes()))
    if generic in ("bad_json", "bad_encoding", "too_deep", "empty_payload"):
        assert found == generic
    else:
        assert found in ("not_object", "missing_field", "no_value")
        assert (found == "no_value") == (path.read_bytes().strip() == b"[]")


@each_file
def test_inside_a_native_message(path: Path) -> None:
    """As one of two metrics: a value, or refused; and never at its neighbour's cost where the whole is JSON."""
    payload = path.read_bytes()
    outcome = decide(NATIVE, b'{"values":{"good":1,"m":' + payload + b"}}")
    if path.stem.startswith("y_"):
        assert "good" in {one.metric for one in readings_of(outcome)}
        if isinstance(json.loads(payload), str | int | float | bool):
            assert {one.metric for one in readings_of(outcome)} == {"good", "m"}
        else:
            assert len(outcome.parts) == 1 or set(json.loads(payload)) >= {"value"}


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_every_decoder_has_a_sound_outcome_for_every_file(target: FuzzTarget) -> None:
    gate = target.gate(LIMITS)
    for path in FILES:
        for topic in target.topics[:2]:
            message = Message(1, 1, NOW_US, topic.encode(), path.read_bytes())
            assert faults_of(message, gate.decide(message), LIMITS) == [], f"{path.name} on {topic}"


def test_the_table_names_files_of_the_suite_only() -> None:
    stems = {path.stem for path in FILES}
    assert {*DECLARED["json"], *DECLARED["auto"]} <= stems
    assert len(stems) == 318
    assert {stem for stem in stems if stem.startswith("i_")} <= {*DECLARED["json"]}
