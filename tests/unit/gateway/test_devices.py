"""The simulated fleet: the same seed is the same script, identities are unique, faults come as often as asked."""

import json
from collections import Counter

from gateway.devtools.simulator import FaultRates, FleetScript

NOW_MS = 1_800_000_000_000
FAULTS = FaultRates(bad_json=0.05, out_of_order=0.05, wrong_clock=0.05, duplicate=0.05)


def script(seed: int, faults: FaultRates | None = None, metrics: int = 4) -> FleetScript:
    return FleetScript(10, seed=seed, boot=7, faults=faults, metrics=metrics)


def test_the_same_seed_gives_the_same_messages() -> None:
    first, second, other = script(1, FAULTS), script(1, FAULTS), script(2, FAULTS)
    told = [[source.next_message(NOW_MS) for _ in range(500)] for source in (first, second, other)]
    assert told[0] == told[1] != told[2]


def test_good_messages_hold_identity_time_and_values_with_units() -> None:
    message = script(1).next_message(NOW_MS)
    payload = json.loads(message.payload)
    assert message.topic == f"tidegate/v1/{message.device}/readings"
    assert (payload["ts"], payload["boot"], payload["seq"]) == (NOW_MS, 7, 1)
    assert payload["values"]["temperature"]["unit"] == "°C"
    assert len(json.loads(script(1, metrics=1).next_message(NOW_MS).payload)["values"]) == 1


def test_each_device_counts_without_gaps() -> None:
    source = script(3, FAULTS)
    seen: dict[str, set[int]] = {}
    for _ in range(2000):
        message = source.next_message(NOW_MS)
        seen.setdefault(message.device, set()).add(message.seq)
    assert all(seqs == set(range(1, max(seqs) + 1)) for seqs in seen.values())


def test_faults_come_about_as_often_as_asked_and_are_what_they_say() -> None:
    source = script(4, FAULTS)
    messages = [source.next_message(NOW_MS) for _ in range(4000)]
    count = Counter(message.fault for message in messages)
    assert all(100 < count[name] < 500 for name in ("bad_json", "out_of_order", "wrong_clock", "duplicate"))
    by_identity = Counter((message.device, message.seq) for message in messages)
    assert {n for identity, n in by_identity.items()} == {1, 2}
    wrong = next(message for message in messages if message.fault == "wrong_clock")
    assert json.loads(wrong.payload)["ts"] > NOW_MS
