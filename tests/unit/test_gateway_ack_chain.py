"""The chain under every interleaving of receipts, reports, reconnects and outcomes."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.ack_chain import MAX_BATCH, AckChain, Batch, Entry
from gateway.outcome import Message, Outcome, Record
from ingest.contract.outcome import encode_outcome
from ingest.contract.reasons import IgnoredReason, Reason

MINUTE_US = 60_000_000
LIMIT_BYTES = 1024 * 1024


def entry(number: int, epoch: int, outcome: Outcome, *, qos: int = 1, minute: int = 0) -> Entry:
    return Entry(Message(number, epoch, minute * MINUTE_US, b"t", b"p", qos), number % 50 + 1, outcome, 0.0)


def accepted(device: str, records: int = 1, sequence: list[tuple[int, int]] | None = None) -> Outcome:
    return Outcome([Record("t", b"k", b"v")] * records, device, True, readings=1, sequence=sequence or [])


def ignored() -> Outcome:
    return Outcome([], ignored=IgnoredReason.NO_VALUE)


class ChainMachine(RuleBasedStateMachine):
    """Drives a chain beside a plain model of what a broker would see."""

    entries = Bundle("entries")

    @initialize()
    def start(self) -> None:
        self.chain = AckChain("gw")
        self.epoch = 0
        self.number = 0
        self.current: list[Entry] = []
        self.reported: Counter[int] = Counter()
        self.acknowledged: list[Entry] = []
        self.counted: Counter[str] = Counter()
        self.flying: list[Batch] = []
        self.reconnect(1)

    @rule(step=st.integers(1, 5))
    def reconnect(self, step: int) -> None:
        self.epoch += step
        dropped = self.chain.begin(self.epoch)
        assert dropped == len([one for one in self.current if one not in self.acknowledged])
        self.current = []

    @rule(target=entries, kind=st.sampled_from(["one", "three", "ignored", "dead"]), qos=st.sampled_from([0, 1, 1]))
    def receive(self, kind: str, qos: int) -> Entry:
        self.number += 1
        outcome = {
            "one": accepted("d1"),
            "three": accepted("d2", 3),
            "ignored": ignored(),
            "dead": Outcome([Record("t", b"k", b"v")], None, rejected=Reason.NO_ROUTE),
        }[kind]
        new = entry(self.number, self.epoch, outcome, qos=qos, minute=self.number // 3)
        self.chain.receive(new)
        self.current.append(new)
        return new

    @rule(one=entries)
    def report(self, one: Entry) -> None:
        if self.reported[one.message.number] >= len(one.outcome.records):
            return
        self.reported[one.message.number] += 1
        before = self.chain.stale_reports
        self.chain.delivered(one)
        assert self.chain.stale_reports - before == (one.epoch != self.epoch)

    @rule()
    def send_outcome(self) -> None:
        batch = self.chain.next_batch(LIMIT_BYTES)
        if batch is None:
            return
        assert not any(other.epoch == self.epoch for other in self.flying), "one outcome in flight"
        assert batch.record.epoch == batch.epoch == self.epoch
        assert batch.record.upto - batch.record.first + 1 == len(batch.entries)
        self.flying.append(batch)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def outcome_report(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.flying))
        self.flying.remove(batch)
        may_acknowledge = self.chain.outcome_delivered(batch)
        assert may_acknowledge == (batch.epoch == self.epoch), "nothing of an old epoch is acknowledged"
        if not may_acknowledge:
            return
        for one in batch.entries:
            assert self.reported[one.message.number] == len(one.outcome.records), "nothing before Kafka has all of it"
        assert batch.mids == [one.mid for one in batch.entries if one.message.qos > 0]
        self.acknowledged += batch.entries
        self.counted["received"] += sum(count.received for count in batch.record.counts)
        self.counted["accepted"] += sum(count.accepted for count in batch.record.counts)

    @invariant()
    def in_receive_order_and_contiguous(self) -> None:
        now = [one for one in self.acknowledged if one.epoch == self.epoch]
        assert now == self.current[: len(now)]

    @invariant()
    def counts_are_those_of_the_acknowledged(self) -> None:
        assert self.counted["received"] == len(self.acknowledged)
        assert self.counted["accepted"] == sum(1 for one in self.acknowledged if one.outcome.accepted)

    @invariant()
    def bytes_in_flight_are_those_of_what_is_in_flight(self) -> None:
        left = [one for one in self.current if one not in self.acknowledged]
        assert self.chain.in_flight_bytes == sum(one.size_bytes for one in left)

    @invariant()
    def in_flight_is_what_is_not_acknowledged(self) -> None:
        assert self.chain.in_flight == len(self.current) - sum(
            1 for one in self.acknowledged if one.epoch == self.epoch
        )

    def teardown(self) -> None:
        """Every message of the last connection ends in an acknowledgement once Kafka has reported all."""
        if not hasattr(self, "chain"):
            return
        for one in self.current:
            while self.reported[one.message.number] < len(one.outcome.records):
                self.report(one)
        for batch in [flying for flying in self.flying if flying.epoch == self.epoch]:
            if self.chain.outcome_delivered(batch):
                self.acknowledged += batch.entries
        while (batch := self.chain.next_batch(LIMIT_BYTES)) is not None:
            assert self.chain.outcome_delivered(batch)
            self.acknowledged += batch.entries
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
    outcomes = [
        (accepted("a"), 5),
        (Outcome([], "a", True, parts=[Reason.WRONG_TYPE]), 5),
        (accepted("a"), 6),
        (Outcome([], "a", rejected=Reason.BAD_JSON), 6),
        (Outcome([], None, rejected=Reason.NO_ROUTE), 6),
        (ignored(), 6),
    ]
    for number, (outcome, minute) in enumerate(outcomes, start=1):
        one = entry(number, 1, outcome, minute=minute)
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
    for number, seq in enumerate((1, 5), start=1):
        one = entry(number, 1, accepted("d", 0, [(7, seq)]))
        chain.receive(one)
    batch = chain.next_batch(LIMIT_BYTES)
    assert batch is not None
    assert batch.record.counts[0].gap == 3
    chain.begin(2)
    assert not chain.outcome_delivered(batch)
    chain.receive(entry(3, 2, accepted("d", 0, [(7, 5)])))
    [count] = finish(chain).record.counts
    assert (count.received, count.gap, count.reordered) == (1, 3, 0)


def test_a_batch_is_bounded() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    for number in range(MAX_BATCH + 5):
        chain.receive(entry(number, 1, ignored()))
    assert len(finish(chain).entries) == MAX_BATCH
    assert len(finish(chain).entries) == 5


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
        chain.receive(entry(number, 1, outcome))
    seen, gaps, epoch = 0, 0, 1
    while (batch := chain.next_batch(limit_bytes)) is not None:
        assert len(encode_outcome(batch.record)) < limit_bytes
        if epoch < 6:
            # The gaps of an outcome that was lost come on top of those of the next.
            epoch += 1
            chain.begin(epoch)
            for number in range(len(batch.entries), len(outcomes)):
                outcomes[number].sequence = [(epoch, 1), (epoch, 9)]
            for number, outcome in enumerate(outcomes):
                chain.receive(entry(number, epoch, outcome))
            continue
        assert chain.outcome_delivered(batch)
        seen += len(batch.entries)
        gaps += sum(count.gap for count in batch.record.counts)
    assert seen == len(outcomes)
    assert gaps > 60 * 7, "the gaps of the lost outcomes are told"


def test_one_message_always_fits() -> None:
    chain = AckChain("gw")
    chain.begin(1)
    for number in range(3):
        chain.receive(entry(number, 1, accepted("d" * 4096 + str(number), 0)))
    assert [len(finish(chain, 1).entries) for _ in range(3)] == [1, 1, 1]


def test_a_payload_is_held_only_while_it_may_still_become_a_dead_letter() -> None:
    message = Message(1, 1, 0, b"t", b"p" * 1000)
    letter = Outcome([Record("t", b"k", b"v" * 10)], "d", rejected=Reason.TOO_LARGE)
    refused = Entry(message, 1, letter, 0.0)
    assert (refused.message.payload, refused.size_bytes) == (b"", 10)
    kept = Entry(message, 1, accepted("d"), 0.0)
    assert (kept.message.payload, kept.size_bytes) == (b"p" * 1000, 1001)


def test_epochs_only_ascend() -> None:
    chain = AckChain("gw")
    chain.begin(5)
    with pytest.raises(ValueError, match="after 5"):
        chain.begin(5)
