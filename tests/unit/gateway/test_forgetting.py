"""An erased device leaves what gateways keep in Kafka: replaced there, and forgotten by a gateway that runs."""

import json
from collections.abc import Mapping

from gateway.delivery.sequence import SequenceTracker
from gateway.memory.restart_state import GatewayState
from gateway.memory.state_watch import ErasureListener
from ingest.contract.forget import FORGET_KEY, decode_forget, device_digest, encode_forget
from ingest.contract.topics import GATEWAY_STATE
from ingest.memory import MemoryLog
from streaming.history.traces import plan_replacements


def state(log: MemoryLog) -> dict[str, bytes]:
    found = {(record.key or b"").decode(): record.value for record in log.records(GATEWAY_STATE)}
    return {key: value for key, value in found.items() if value}


def test_a_gateway_that_runs_does_not_write_an_erased_device_again() -> None:
    log, tracker, seconds = MemoryLog(), SequenceTracker(), [0.0]
    own = GatewayState("gw-1", "s", tracker, clock=lambda: seconds[0])
    tracker.follow([("patient-B", 1, 5), ("patient-B", 2, 6), ("pump", 1, 7)])
    writer = log.writer()
    own.reopen()
    own._dirty = set(range(256))
    own.save(writer)
    writer.flush(1)
    assert any("patient-B" in value.decode() for value in state(log).values())
    assert len(tracker) == 3
    answers = [([], {0: 1}), ([encode_forget("patient-B"), b"{"], {0: 2})]
    asked: list[tuple[str, Mapping[int, int] | None]] = []

    def read_newer(key: str, since: Mapping[int, int] | None) -> tuple[list[bytes], dict[int, int]]:
        asked.append((key, since))
        return answers.pop(0)  # type: ignore[return-value]

    forgetting = ErasureListener(read_newer)
    assert (forgetting.look(), forgetting.take()) == (0, frozenset())
    assert forgetting.look() == 2
    own.forget(forgetting.take())
    assert forgetting.take() == frozenset()
    assert asked == [(FORGET_KEY, None), (FORGET_KEY, {0: 1})]
    own.save(writer)
    writer.flush(1)
    assert not any("patient-B" in value.decode() for value in state(log).values())
    assert any("pump" in value.decode() for value in state(log).values())
    assert (len(tracker), tracker.high("pump", 1), tracker.high("patient-B", 2)) == (1, 7, None)
    assert tracker.see("patient-B", 2, 50) == (0, 0), "a first number again"


def test_what_names_the_device_in_the_state_is_replaced_and_nothing_else() -> None:
    numbers = {"patient-B": [[1, 5, []]], "patient-B2": [[1, 6, []]]}
    found = [
        ("tidegate/gw-1/numbers/7", json.dumps(numbers).encode()),
        ("tidegate/gw-1/numbers/8", b'{"pump": [[1, 5, []]]}'),
        ("tidegate/gw-1/held", b'{"session": "s", "filters": ["v1/patient-B/#"]}'),
        ("tidegate/gw-1/left_out", b"\xff no JSON"),
        ("sparkplug/hall/patient-B", b"\x91births"),
        ("sparkplug/hall/node", b"\x92\xa9patient-B\x01"),
        ("sparkplug/hall/other", b"\x92\xaapatient-B2\x01"),
    ]
    changed = dict(plan_replacements(found, "patient-B"))
    assert json.loads(changed.pop("tidegate/gw-1/numbers/7") or b"") == {"patient-B2": [[1, 6, []]]}
    assert changed == {"sparkplug/hall/patient-B": None, "sparkplug/hall/node": None}
    short = dict(plan_replacements([("homie/7/x", b"1"), ("homie/8/x", b"\x017\x00")], "7"))
    assert short == {"homie/7/x": None}, "a short id is found in any value by chance"


def test_a_request_to_forget_names_the_device_by_its_hash() -> None:
    assert "patient-B" not in encode_forget("patient-B").decode()
    assert decode_forget(encode_forget("patient-B")) == device_digest("patient-B")
    assert decode_forget(b"null") is None
