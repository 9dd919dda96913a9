"""The fuzzing process of one target: `python -m tests.fuzz.child TARGET FOLDER DATA [libFuzzer's options]`.

An input is one byte that chooses the topic, then the payload. What breaks a promise is written to the folder with its
input, once for each kind, and the run continues.
"""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import atheris  # type: ignore[import-untyped, unused-ignore]

with atheris.instrument_imports(include=["gateway", "ingest"]):
    from gateway.gateway_settings import GatewaySettings
    from gateway.message_processor import Message
    from tests.fuzz.checks import faults_of
    from tests.fuzz.mutate import bend
    from tests.fuzz.seeds import FuzzTarget, SeedMessage, fitting_seeds, read_seeds, targets

if TYPE_CHECKING:
    from gateway.message_processor import MessageProcessor

__all__ = ["main"]

NOW_US: Final = 1_796_000_000_000_000
LIMITS: Final = GatewaySettings(max_payload_bytes=16 * 1024, max_readings_per_message=500)
MESSAGES_PER_GATE: Final = 200
"""Messages after which each session starts again, because decoders may keep state."""
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


class FuzzSession:
    """One target with its topics, its session, and what was found."""

    def __init__(self, target: FuzzTarget, seeds: list[SeedMessage], folder: Path) -> None:
        self._target, self._folder, self.seeds = target, folder, seeds
        self.topics = list(dict.fromkeys([*target.topics, *(seed.topic for seed in seeds)]))[:256]
        self._gate: MessageProcessor = target.gate(LIMITS)
        self._number = self._accepted = 0
        self._session: list[tuple[str, bytes]] = []
        self._known: set[str] = set()

    def run(self, data: bytes) -> None:
        """One input."""
        if not data:
            return
        if self._number % MESSAGES_PER_GATE == 0:
            self._gate, self._session = self._target.gate(LIMITS), []
            self._write_counts()
        self._number += 1
        topic, payload = self.topics[data[0] % len(self.topics)], data[1:]
        self._session.append((topic, payload))
        message = Message(self._number, 1, NOW_US, topic.encode(), payload)
        outcome = self._gate.decide(message)
        self._accepted += outcome.accepted
        for fault in faults_of(message, outcome, LIMITS):
            self._report(fault)

    def bend(self, data: bytes, max_size: int, seed: int) -> bytes:
        """LibFuzzer's own change, or one that knows numbers, times and JSON."""
        random = Random(seed)
        if not data or random.random() < 0.5:
            changed: bytes = atheris.Mutate(data, max_size)
            return changed
        other = random.choice(self.seeds).payload if self.seeds else b"1"
        return (data[:1] + bend(random, data[1:], other))[:max_size]

    def _report(self, fault: str) -> None:
        kind = _VARIABLE.sub("…", fault)[:120]
        if kind in self._known:
            return
        self._known.add(kind)
        name = hashlib.sha256(kind.encode()).hexdigest()[:12]
        session = [
            {"topic": topic, "payload_base64": base64.b64encode(payload).decode()} for topic, payload in self._session
        ]
        found = {"fault": fault, "target": self._target.name, "messages": session}
        (self._folder / f"finding-{name}.json").write_text(json.dumps(found, indent=1), "utf-8")

    def _write_counts(self) -> None:
        counts = {"executions": self._number, "accepted": self._accepted}
        (self._folder / "counts.json").write_text(json.dumps(counts), "utf-8")


def _write_corpus(fuzzed: FuzzSession, folder: Path, suite: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(fuzzed.seeds):
        topic = fuzzed.topics.index(seed.topic) if seed.topic in fuzzed.topics else 0
        (folder / f"seed-{number}").write_bytes(bytes([topic]) + seed.payload)
    for file in suite.glob("*.json"):
        (folder / file.stem).write_bytes(b"\0" + file.read_bytes()[:8000])


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer's time is over; it ends the process itself."""
    name, folder, data = arguments[1], Path(arguments[2]), Path(arguments[3])
    target = next(target for target in targets() if target.name == name)
    examples = data / "payloads.jsonl"
    every = read_seeds(examples) if examples.exists() else []
    fuzzed = FuzzSession(target, fitting_seeds(target, every, LIMITS, NOW_US) or every, folder)
    _write_corpus(fuzzed, folder / "corpus", data / "json-test-suite")
    options: list[Any] = [arguments[0], *arguments[4:]]
    atheris.Setup(options, fuzzed.run, custom_mutator=fuzzed.bend)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
