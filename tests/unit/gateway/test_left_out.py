"""What mappings leave out is told beside a gateway's own state, and listed from there."""

import json
from typing import Any

import pytest

from deploy.cli import run
from gateway.delivery.sequence import SequenceTracker
from gateway.left_out import encode_left_out, read_left_out
from gateway.memory.restart_state import GatewayState
from ingest.contract.outcome import OutcomeRecord
from ingest.contract.topics import GATEWAY_STATE
from ingest.memory import MemoryLog


def test_a_gateway_tells_what_its_mappings_left_out_and_does_not_take_it_for_numbers() -> None:
    log, fields, seconds = MemoryLog(), {"preset owntracks number 2 (owntracks/#)": {"conn": 3, "bs": 1}}, [0.0]

    def gateway() -> GatewayState:
        return GatewayState(
            "gw-1",
            "a@b:1",
            SequenceTracker(),
            left_out=lambda: fields,
            wall_ms=lambda: 5_000_000,
            clock=lambda: seconds[0],
        )

    first, writer = gateway(), log.writer()
    for _ in range(2):
        first.save(writer)
        writer.flush(1)
        seconds[0] += 100
    told = [record for record in log.records(GATEWAY_STATE) if (record.key or b"").endswith(b"/left_out")]
    assert len(told) == 1, "what is the same is told once"
    state = [((record.key or b"").decode(), record.value or b"") for record in log.records(GATEWAY_STATE)]
    rows = [(row["gateway"], row["field"], row["count"], row["since_ms"]) for row in read_left_out(state)]
    assert rows == [("gw-1", "conn", 3, 5_000_000), ("gw-1", "bs", 1, 5_000_000)]
    second = gateway()
    assert second.load(state) is not None
    fields = {}
    second.save(writer)
    writer.flush(1)
    newest = {record.key: record.value or b"" for record in log.records(GATEWAY_STATE)}
    assert read_left_out([((key or b"").decode(), value) for key, value in newest.items()]) == [], (
        "it left nothing out yet"
    )


def _left_out(log: MemoryLog) -> list[bytes | None]:
    return [record.value for record in log.records(GATEWAY_STATE) if (record.key or b"").endswith(b"/left_out")]


@pytest.mark.parametrize("room", [0, 1, 2], ids=["nothing fits", "the numbers fit", "the names fit as well"])
def test_what_did_not_fit_into_the_queue_is_written_next(room: int) -> None:
    log, tracker = MemoryLog(capacity=3), SequenceTracker()
    own = GatewayState("gw-1", "a@b:1", tracker, left_out=lambda: {"route": {"conn": 1}}, clock=lambda: 100.0)
    own.filters = ("a/#",)
    own.follow(OutcomeRecord(1, "gw-1", 1, 1, 1, [], 1, [("d", 7, 50)]))
    writer = log.writer()
    for _ in range(3 - room):
        writer.produce("other", b"", b"x", lambda _error: None)
    own.save(writer)
    writer.flush(1)
    own.save(writer)
    writer.flush(1)
    state = _state(log)
    assert [row["field"] for row in read_left_out(state)] == ["conn"]
    again = GatewayState("gw-1", "a@b:1", SequenceTracker())
    again.load(state)
    assert again.filters == ("a/#",)


def test_a_new_process_takes_back_what_the_one_before_told() -> None:
    log, fields = MemoryLog(), {"route": {"conn": 3}}

    def run(fields: dict[str, dict[str, int]], at_ms: int) -> list[dict[str, Any]]:
        own = GatewayState("gw-1", "a@b:1", SequenceTracker(), left_out=lambda: fields, wall_ms=lambda: at_ms)
        own.load(_state(log))
        writer = log.writer()
        own.save(writer, stopped=True)
        writer.flush(1)
        return read_left_out(_state(log))

    assert [row["field"] for row in run(fields, 1000)] == ["conn"]
    assert run({}, 2000) == [], "its mapping was corrected"
    assert run({}, 3000) == []
    assert len(_left_out(log)) == 2, "nothing left out is told once"


def _state(log: MemoryLog) -> list[tuple[str, bytes]]:
    newest = {(record.key or b"").decode(): record.value or b"" for record in log.records(GATEWAY_STATE)}
    return list(newest.items())


def test_names_of_any_characters_fit_into_a_record() -> None:
    routes = {400 * "\x01" + str(route): {300 * "\x02" + str(n): 1 for n in range(99)} for route in range(20)}
    assert len(encode_left_out(routes, 0)) <= 200_100


def test_the_record_is_bounded_and_keeps_the_most_frequent_names() -> None:
    routes = {f"route {number}": {f"{'x' * 400}{n}": n + 1 for n in range(500)} for number in range(50)}
    value = encode_left_out(routes, 0)
    assert len(value) < 300_000
    assert json.loads(value)["more"] is True
    assert next(iter(json.loads(value)["routes"]["route 0"].values())) == 500
    assert (
        read_left_out([("tidegate/gw/left_out", b"{"), ("homie/x/left_out", value), ("tidegate/gw/held", value)]) == []
    )


def test_route_ls_lists_what_was_dropped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    value = encode_left_out({"[[routes]] number 1 (site/#)": {"temp": 7}}, 0)

    def read_state(*_args: Any, **_more: Any) -> list[tuple[str, bytes]]:
        return [("tidegate/gw-1/left_out", value)]

    monkeypatch.setattr("ingest.gateway_state.read_state", read_state)
    assert run(["route", "ls", "--dropped"]) == 0
    assert "7  temp  [[routes]] number 1 (site/#)  gw-1" in capsys.readouterr().out
    assert run(["route", "ls", "--dropped", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0].keys() == {"gateway", "route", "field", "count", "since_ms", "next"}
