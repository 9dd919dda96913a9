"""Which message a refused record belongs to, and what the block counts afterwards."""

import msgspec

from gateway.delivery.ack_chain import AckChain
from gateway.delivery.block import Block
from gateway.fast_path.encoder import FastPathEncoder
from gateway.gateway_settings import GatewaySettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.mqtt.session_events import Incoming, Received
from gateway.policy import ReadingPolicy
from gateway.routes import compile_routes
from ingest.contract.dead_letter import Reject, decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.reasons import Reason

NOW_US = 1_764_331_200_000_000
LIMITS = GatewaySettings()
ROUTES = compile_routes(())


def usual(device: str, seq: int) -> Incoming:
    document = {"ts": NOW_US // 1000, "boot": 1, "seq": seq, "values": {"a": 1.5, "b": 2.5}}
    return f"tidegate/v1/{device}/readings".encode(), msgspec.json.encode(document), seq.to_bytes(2, "big")


def mixed_block() -> tuple[Block, MessageProcessor]:
    """usual, dead letter, batch of the long way, usual."""
    gate, express = MessageProcessor(ROUTES, LIMITS), FastPathEncoder(ROUTES, LIMITS, ReadingPolicy())
    block = Block(9, 100, NOW_US, 0.0)
    batch = Received(*usual("d1", 2)[:1], b"[" + usual("d1", 2)[1] + b"]", 2, 1)
    for message in (usual("d0", 0), Received(b"nowhere", b"x", 1, 1), batch, usual("d3", 3)):
        if not express.encode_into(block, [message], 0, 100_000):
            number = block.first + len(block)
            full = Message(number, 9, NOW_US, message[0], message[1])
            block.add(message, gate.decide(full))
    return block, gate


def refuse(block: Block, gate: MessageProcessor, position: int) -> Outcome:
    def decide(message: Message, device: str, sequence: list[tuple[int, int]]) -> Outcome:
        return gate.reject(message, Reject(Reason.KAFKA_TOO_LARGE), device, sequence=sequence)

    return block.refuse(position, decide)


def test_records_stand_in_receive_order() -> None:
    block, _ = mixed_block()
    assert [decode_record(value).number for value in block.values] == [100, 102, 103]
    assert [block.owner(position) for position in range(3)] == [0, 2, 3]
    assert (block.accepted, block.readings) == ({"d0": 1, "d3": 1}, 4)


def test_a_refused_record_costs_its_message_and_no_other() -> None:
    block, gate = mixed_block()
    last, batch = refuse(block, gate, 2), refuse(block, gate, 1)
    assert [outcome.rejected for outcome in (last, batch)] == [Reason.KAFKA_TOO_LARGE] * 2
    assert (block.accepted, block.readings) == ({"d0": 1, "d3": 0}, 2)
    assert block.odd[3] is last
    assert block.odd[2] is batch
    assert batch.sequence == [(1, 2)], "its number is no gap"
    assert [refusal.device for refusal in block.refusals()][1:] == ["d1", "d3"]
    assert block.mids == [seq.to_bytes(2, "big") for seq in range(4)]


def test_the_other_devices_of_a_message_are_counted_as_shared_even_where_one_record_is_refused() -> None:
    gate, block = MessageProcessor(compile_routes((), LIMITS), LIMITS), Block(9, 1, NOW_US, 0.0)
    topic = b"v1/gateway/telemetry"
    for devices in ("ab", "abc", "abc", "a"):
        payload = msgspec.json.encode({device: [{"t": 1}] for device in devices})
        before = block.outcome_bytes
        block.add(Received(topic, payload, 1, 1), gate.decide(Message(1 + len(block), 9, NOW_US, topic, payload)))
        assert block.outcome_bytes - before > len(devices) * 200
    refuse(block, gate, 2)  # a's record of the second message
    refuse(block, gate, 6)  # b's of the third
    chain = AckChain("g")
    chain.begin(9)
    chain.receive(block)
    batch = chain.next_batch(1_000_000)
    assert batch is not None
    found = {count.device: (count.received, count.accepted, count.shared) for count in batch.record.counts}
    assert found == {"a": (3, 2, 1), "b": (1, 0, 2), "c": (0, 0, 2)}


def test_a_message_with_several_refused_records_has_one_whole_dead_letter_which_is_counted() -> None:
    gate, block = MessageProcessor(compile_routes((), LIMITS), LIMITS), Block(9, 1, NOW_US, 0.0)
    topic, payload = b"v1/gateway/telemetry", msgspec.json.encode({device: [{"t": 1}] for device in "abc"})
    block.add(Received(topic, payload, 1, 1), gate.decide(Message(1, 9, NOW_US, topic, payload)))
    letters = [decode_dead_letter(refuse(block, gate, position).records[0].value) for position in (1, 0)]
    assert [(letter.device, letter.partial) for letter in letters] == [("b", False), ("a", True)]
    assert [(refusal.device, refusal.partial) for refusal in block.refusals()] == [("b", False), ("a", True)]
    chain = AckChain("g")
    chain.begin(9)
    chain.receive(block)
    batch = chain.next_batch(1_000_000)
    assert batch is not None
    found = {count.device: (sum(count.dead_lettered.values()), count.shared) for count in batch.record.counts}
    assert found == {"b": (1, 0), "c": (0, 1)}


def test_a_payload_is_held_only_while_it_may_still_become_a_dead_letter() -> None:
    block, _ = mixed_block()
    assert [len(message[1]) > 0 for message in block.messages] == [True, False, True, True]
    held = sum(len(message[1]) for message in block.messages) + sum(map(len, block.values))
    assert block.size_bytes == held + sum(len(record.value) for record in block.others)
