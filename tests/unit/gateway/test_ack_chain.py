"""The chain under every interleaving of receipts, reports, reconnects and outcomes."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.delivery.ack_chain import MAX_BATCH, AckChain, Batch
from gateway.delivery.block import Block
from gateway.message_processor import Outcome, Record
from gateway.mqtt.session_events import Received
from ingest.contract.outcome import encode_outcome
from ingest.contract.reasons import IgnoredReason, Reason

pytestmark = pytest.mark.promise("P2")

MINUTE_US = 60_000_000
LIMIT_BYTES = 1024 * 1024


def block(first: int, epoch: int, outcomes: list[Outcome], *, qos: int = 1, minute: int = 0) -> Block:
    """Messages with outcomes of their own; as in the pump, each topic's records are one thing to wait for."""
    made = Block(epoch, first, minute * MINUTE_US, 0.0)
    for number, outcome in enumerate(outcomes, start=first):
        made.add(Received(b"t", b"p", number % 50 + 1, qos), outcome)
    made.waiting = len({record.topic for outcome in outcomes for record in outcome.records})
    return made


def accepted(device: str, records: int = 1, sequence: list[tuple[int, int]] | None = None) -> Outcome:
    return Outcome([Record("t", b"k", b"v")] * records, device, True, readings=1, sequence=sequence or [])


def ignored() -> Outcome:
    return Outcome([], ignored=IgnoredReason.NO_VALUE)


def dead() -> Outcome:
    return Outcome([Record("dead", b"k", b"v")], None, rejected=Reason.NO_ROUTE)


KINDS = {"one": accepted("d1"), "three": accepted("d2", 3), "ignored": ignored(), "dead": dead()}


class ChainMachine(RuleBasedStateMachine):
    """Drives a chain beside a plain model of what a broker would see."""

    blocks = Bundle("blocks")

    @initialize()
    def start(self) -> None:
        self.chain = AckChain("gw")
        self.epoch = 0
        self.number = 0
        self.current: list[Block] = []
        self.expected: dict[int, int] = {}
        self.acknowledged: list[Block] = []
        self.counted: Counter[str] = Counter()
        self.flying: list[Batch] = []
        self.halted = False
        self.reconnect(1)

    @rule(step=st.integers(1, 5))
    def reconnect(self, step: int) -> None:
        self.epoch += step
        dropped = self.chain.begin(self.epoch)
        assert dropped == sum(len(one) for one in self.current if one not in self.acknowledged)
        self.current, self.halted = [], False

    @rule()
    def lose(self) -> None:
        self.chain.halt()
        self.halted = True

    @precondition(lambda self: not self.halted)
    @rule(
        target=blocks,
        kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4),
        usual=st.integers(0, 3),
        qos=st.sampled_from([0, 1, 1]),
    )
    def receive(self, kinds: list[str], usual: int, qos: int) -> Block:
        new = block(self.number + 1, self.epoch, [KINDS[kind] for kind in kinds], qos=qos, minute=self.number // 3)
        for _ in range(usual):
            number = new.first + len(new)
            new.messages.append((b"t", b"p", number.to_bytes(2, "big")))
            new.mids.append(number.to_bytes(2, "big"))
            new.accepted["usual"] = new.accepted.get("usual", 0) + 1
        self.number += len(new)
        self.expected[new.first] = new.waiting
        self.chain.receive(new)
        self.current.append(new)
        return new

    @rule(one=blocks)
    def report(self, one: Block) -> None:
        if not self.expected[one.first]:
            return
        self.expected[one.first] -= 1
        before = self.chain.stale_reports
        self.chain.delivered(one)
        assert self.chain.stale_reports - before == (self.halted or one.epoch != self.epoch)

    @rule()
    def send_outcome(self) -> None:
        batch = self.chain.next_batch(LIMIT_BYTES)
        if batch is None:
            return
        assert not self.halted, "nothing more of a connection that is gone"
        assert not any(other.epoch == self.epoch for other in self.flying), "one outcome in flight"
        assert batch.record.epoch == batch.epoch == self.epoch
        assert batch.record.upto - batch.record.first + 1 == len(batch)
        self.flying.append(batch)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def outcome_report(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.flying))
        self.flying.remove(batch)
        may_acknowledge = self.chain.outcome_delivered(batch)
        is_current = batch.epoch == self.epoch and not self.halted
        assert may_acknowledge == is_current, "nothing of a connection that is gone is acknowledged"
        if not may_acknowledge:
            return
        for one in batch.blocks:
            assert not self.expected[one.first], "nothing before Kafka has all of it"
        assert batch.mids == [mid for one in batch.blocks for mid in one.mids]
        self.acknowledged += batch.blocks
        self.counted["received"] += sum(count.received for count in batch.record.counts)
        self.counted["accepted"] += sum(count.accepted for count in batch.record.counts)

    @invariant()
    def in_receive_order_and_contiguous(self) -> None:
        now = [one for one in self.acknowledged if one.epoch == self.epoch]
        assert now == self.current[: len(now)]

    @invariant()
    def counts_are_those_of_the_acknowledged(self) -> None:
        assert self.counted["received"] == sum(map(len, self.acknowledged))
        outcomes = [outcome for one in self.acknowledged for outcome in one.odd.values()]
        usual = sum(len(one) - len(one.odd) for one in self.acknowledged)
        assert self.counted["accepted"] == usual + sum(outcome.accepted for outcome in outcomes)

    @invariant()
    def what_is_in_flight_is_what_is_not_acknowledged(self) -> None:
        left = [] if self.halted else [one for one in self.current if one not in self.acknowledged]
        assert self.chain.in_flight == sum(map(len, left))
        assert self.chain.in_flight_bytes == sum(one.size_bytes for one in left)

    def teardown(self) -> None:
        """Every message of the last connection ends in an acknowledgement once Kafka has reported all."""
        if not hasattr(self, "chain") or self.halted:
            return
        for one in self.current:
            while self.expected[one.first]:
                self.report(one)
        for batch in [flying for flying in self.flying if flying.epoch == self.epoch]:
            if self.chain.outcome_delivered(batch):
                self.acknowledged += batch.blocks
        while (batch := self.chain.next_batch(LIMIT_BYTES)) is not None:
            assert self.chain.outcome_delivered(batch)
            self.acknowledged += batch.blocks
        assert self.chain.in_flight == 0
        assert [one for one in self.acknowledged if one.epoch == self.epoch] == self.current


TestChain = ChainMachine.TestCase
TestChain.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def finish(chain: AckChain, limit_bytes: int = LIMIT_BYTES) -> Batch:
    batch = chain.next_batch(limit_bytes)
    assert batch is not None
    assert chain.outcome_delivered(batch)
    return batch


def test_counts_per_device_and_minute() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    early = [accepted("a"), Outcome([], "a", True, parts=[Reason.WRONG_TYPE])]
    late = [accepted("a"), Outcome([], "a", rejected=Reason.BAD_JSON), dead(), ignored()]
    for one in (block(1, 1, early, minute=5), block(3, 1, late, minute=6)):
        one.waiting = 0
        chain.receive(one)
    record = finish(chain).record
    assert (record.first, record.upto, record.epoch, record.gateway) == (1, 6, 1, "gw")
    first, second, nobody = record.counts
    assert (first.device, first.minute, first.received, first.accepted, first.partial) == ("a", 5, 2, 2, 1)
    assert (second.minute, second.received, second.accepted, second.dead_lettered) == (6, 2, 1, {"bad_json": 1})
    assert (nobody.device, nobody.received, nobody.dead_lettered, nobody.ignored) == (
        None,
        2,
        {"no_route": 1},
        {"no_value": 1},
    )


def test_gaps_of_an_outcome_that_its_epoch_took_along_are_told_by_the_next() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    chain.receive(block(1, 1, [accepted("d", 0, [(7, 1)]), accepted("d", 0, [(7, 5)])]))
    batch = chain.next_batch(LIMIT_BYTES)
    assert batch is not None
    assert batch.record.counts[0].gap == 3
    chain.begin(2)
    assert not chain.outcome_delivered(batch)
    chain.receive(block(3, 2, [accepted("d", 0, [(7, 5)])]))
    [count] = finish(chain).record.counts
    assert (count.received, count.gap, count.reordered) == (1, 3, 0)


def test_gaps_of_an_outcome_that_arrives_after_its_connection_are_told_once() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    chain.receive(block(1, 1, [accepted("d", 0, [(7, 1)]), accepted("d", 0, [(7, 5)])]))
    batch = chain.next_batch(LIMIT_BYTES)
    assert batch is not None
    chain.halt()
    assert not chain.outcome_delivered(batch), "the broker sends it again"
    assert chain.begin(2) == 2
    chain.receive(block(3, 2, [accepted("d", 0, [(7, 5)])]))
    [count] = finish(chain).record.counts
    assert (count.received, count.gap, count.reordered) == (1, 0, 0)


@pytest.mark.parametrize("is_late", [False, True], ids=["its outcome is lost", "its outcome arrives late"])
def test_a_restart_in_an_outcome_of_a_gone_connection_is_counted_once_and_told(is_late: bool) -> None:
    chain = AckChain("gw")
    chain.begin(1)
    numbers = [*range(8), 0, 1, 2]
    chain.receive(block(1, 1, [accepted("d", 0, [(7, seq)]) for seq in numbers]))
    batch = chain.next_batch(LIMIT_BYTES)
    assert batch is not None
    assert [(count.device, count.restarts) for count in batch.record.counts] == [("d", 1)]
    chain.halt()
    if is_late:
        assert not chain.outcome_delivered(batch)
    chain.begin(2)
    chain.receive(block(12, 2, [accepted("d", 0, [(7, 3)])]))
    following = finish(chain)
    assert [count.restarts for count in following.record.counts] == [0 if is_late else 1]
    assert [restart.device for restart in following.restarts] == ["d"]
    chain.receive(block(13, 2, [accepted("d", 0, [(7, 4)])]))
    assert not finish(chain).restarts


def test_a_batch_is_bounded() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    for number in range(0, MAX_BATCH + 10, 10):
        chain.receive(block(number, 1, [ignored()] * 10))
    assert len(finish(chain)) == MAX_BATCH
    assert len(finish(chain)) == 10


def test_an_outcome_never_passes_what_its_topic_takes() -> None:
    limit_bytes = 64 * 1024
    chain = AckChain("gw")
    chain.begin(1)
    reasons = list(Reason)
    outcomes = [
        Outcome([], '"' * 2000 + str(n), rejected=reasons[n % len(reasons)], sequence=[(1, 1), (1, 9)])
        for n in range(60)
    ] + [Outcome([], "one device", rejected=reason) for reason in reasons]
    for number, outcome in enumerate(outcomes):
        chain.receive(block(number, 1, [outcome]))
    seen, gaps, epoch = 0, 0, 1
    while (batch := chain.next_batch(limit_bytes)) is not None:
        assert len(encode_outcome(batch.record)) < limit_bytes
        if epoch < 6:
            # The gaps of an outcome that was lost come on top of those of the next.
            epoch += 1
            chain.begin(epoch)
            for number in range(len(batch), len(outcomes)):
                outcomes[number].sequence = [(epoch, 1), (epoch, 9)]
            for number, outcome in enumerate(outcomes):
                chain.receive(block(number, epoch, [outcome]))
            continue
        assert chain.outcome_delivered(batch)
        seen += len(batch)
        gaps += sum(count.gap for count in batch.record.counts)
    assert seen == len(outcomes)
    assert gaps > 60 * 7, "the gaps of the lost outcomes are told"


def test_one_block_always_fits() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    for number in range(3):
        chain.receive(block(number, 1, [accepted("d" * 4096 + str(number), 0)]))
    assert [len(finish(chain, 1)) for _ in range(3)] == [1, 1, 1]


def test_epochs_only_ascend() -> None:
    chain = AckChain("gw")
    chain.begin(5)
    with pytest.raises(ValueError, match="after 5"):
        chain.begin(5)
