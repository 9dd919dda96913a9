"""Drafts for formats that nothing shipped knows: right means device, values, units and times as a person expects them."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.gateway_settings import GatewaySettings
from gateway.suggest.message_families import SampleMessage
from gateway.suggest.propose import propose_routes

CASES: Final = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data/route-drafts.jsonl").read_text("utf-8").splitlines()
]
LIMITS: Final = GatewaySettings(presets=())
"""Without any shipped format: each of these has to be found out."""
RECEIVED_US: Final = 1_795_900_000_000_000
WANTED_SHARE: Final = 0.8


def drafted(case: dict[str, Any]) -> list[list[Any]]:
    samples = [SampleMessage(topic, payload.encode(), RECEIVED_US) for topic, payload in case["messages"]]
    found = propose_routes(samples, (), LIMITS, zone=case.get("zone"))
    return [
        [one["device"], one["metric"], one["value"] if one["text"] is None else one["text"], one["unit"], one["time"]]
        for proposal in found
        for message in proposal.decoded
        for one in message["readings"]
    ]


def test_most_formats_need_no_edit(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {
        case["id"]: drafted(case) for case in CASES if sorted(drafted(case), key=str) != sorted(case["expect"], key=str)
    }
    share = 1 - len(wrong) / len(CASES)
    count = f"{len(CASES) - len(wrong)} of {len(CASES)} ({share:.0%})"
    with capsys.disabled():
        sys.stdout.write(f"\ndrafts right without an edit: {count}; not: {', '.join(wrong)}\n")
    assert share >= WANTED_SHARE, wrong
