"""The delivery under every interleaving of reports, failures and ends of connections; deliberate faults of it are found."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from gateway.delivery.ack_chain import AckChain, Batch
from gateway.delivery.deliverer import Deliverer
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from tests.support.delivery import DeliveryMachine, KilledMachine

pytestmark = pytest.mark.promise("P2")

USUAL = settings(max_examples=150, stateful_step_count=50, deadline=None)
SEARCH = settings(USUAL, max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False)

TestDelivery = DeliveryMachine.TestCase
TestDelivery.settings = USUAL
TestKilledDelivery = KilledMachine.TestCase
TestKilledDelivery.settings = USUAL

Change = Callable[[Any], Any]
"""The original function -> what replaces it."""


def counts_records_on_their_way(next_batch: Any) -> Any:
    def changed(self: AckChain, limit: int) -> Batch | None:
        for block in self._blocks:
            block.waiting = 0
        return next_batch(self, limit)  # type: ignore[no-any-return]

    return changed


def acknowledges_when_the_outcome_is_sent(advance: Any) -> Any:
    def changed(self: Deliverer, log: Any) -> None:
        before = self._chain._in_flight
        advance(self, log)
        batch = self._chain._in_flight
        if batch is not None and batch is not before:
            self._acknowledge(batch.epoch, batch.mids)

    return changed


def takes_a_failed_record_as_stored(settle: Any) -> Any:
    return lambda self, job, given, failures: settle(self, job, given, [])


def takes_a_failed_outcome_as_stored(reported: Any) -> Any:
    return lambda self, batch, error: reported(self, batch, None)


def acknowledges_for_a_lost_connection(delivered: Any) -> Any:
    def changed(self: AckChain, batch: Batch) -> bool:
        delivered(self, batch)
        return True

    return changed


def forgets_the_gaps_of_a_lost_outcome(_carry: Any) -> Any:
    return lambda self, record: None


def counts_the_gaps_of_a_late_outcome_again(delivered: Any) -> Any:
    def changed(self: AckChain, batch: Batch) -> bool:
        if self._halted:
            return False
        return delivered(self, batch)  # type: ignore[no-any-return]

    return changed


def skips_what_is_not_finished(next_batch: Any) -> Any:
    def changed(self: AckChain, limit: int) -> Batch | None:
        self._blocks.rotate(-next((at for at, block in enumerate(self._blocks) if not block.waiting), 0))
        return next_batch(self, limit)  # type: ignore[no-any-return]

    return changed


def leaves_a_message_out(count: Any) -> Any:
    def changed(self: AckChain, blocks: Any, counts: Any) -> Any:
        record = count(self, blocks, counts)
        record.upto -= len(blocks) > 1
        return record

    return changed


def sends_an_outcome_behind_one_without_a_report(next_batch: Any) -> Any:
    def changed(self: AckChain, limit: int) -> Batch | None:
        if self._blocks and not self._blocks[0].waiting:
            self._in_flight = None
        return next_batch(self, limit)  # type: ignore[no-any-return]

    return changed


MUTANTS: list[tuple[type, str, Change]] = [
    (AckChain, "next_batch", counts_records_on_their_way),
    (AckChain, "next_batch", skips_what_is_not_finished),
    (AckChain, "next_batch", sends_an_outcome_behind_one_without_a_report),
    (AckChain, "_count", leaves_a_message_out),
    (AckChain, "_carry", forgets_the_gaps_of_a_lost_outcome),
    (AckChain, "outcome_delivered", acknowledges_for_a_lost_connection),
    (AckChain, "outcome_delivered", counts_the_gaps_of_a_late_outcome_again),
    (Deliverer, "_advance", acknowledges_when_the_outcome_is_sent),
    (Deliverer, "_settle", takes_a_failed_record_as_stored),
    (Deliverer, "_outcome_reported", takes_a_failed_outcome_as_stored),
]


STEPS: list[Callable[[DeliveryMachine], object]] = [
    lambda machine: machine.publish_all(["good", "dead"], 0, 1),
    lambda machine: machine.run(2),
    lambda machine: machine.log.hold(),
    lambda machine: machine.publish_all(["gap", "ignored", "good"], 0, 1),
    lambda machine: machine.release(READINGS, 1),
    lambda machine: machine.publish_all(["gap", "good"], 1, 1),
    lambda machine: machine.release(READINGS, 1),
    lambda machine: machine.release(OUTCOMES, 1),
    lambda machine: machine.release(DEAD_LETTERS, 1),
    lambda machine: machine.release(None, 2),
]
"""Records and outcomes are on their way at once, and Kafka reports those of one topic before those of the other."""


def fail_a_record(machine: DeliveryMachine) -> None:
    machine.log.fail_next("retriable")
    machine.publish_all(["good"], 2, 2)


ENDS: dict[str, Callable[[DeliveryMachine], object]] = {
    "connection": lambda machine: machine.lose(),
    "writer": fail_a_record,
    "process": lambda machine: machine.end_process(),
}


def walk(end: Callable[[DeliveryMachine], object]) -> None:
    """All steps, with an end before each of them in turn."""
    for at in range(1, len(STEPS)):
        machine = DeliveryMachine()
        for number, step in enumerate(STEPS):
            if number == at:
                end(machine)
            step(machine)
            machine.no_fault()
            machine.what_is_held_is_what_has_no_puback()
            if not machine.live and not machine.writer.in_flight:
                machine.connect(1)
                machine.deliver(2, 1)
        machine.teardown()


@pytest.mark.parametrize("end", ENDS)
def test_an_end_between_any_two_steps_of(end: str) -> None:
    walk(ENDS[end])


@pytest.mark.parametrize(("owner", "name", "change"), MUTANTS, ids=[change.__name__ for *_, change in MUTANTS])
def test_a_delivery_that(owner: type, name: str, change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    with pytest.raises(AssertionError):
        for end in ENDS.values():
            walk(end)
        run_state_machine_as_test(DeliveryMachine, settings=SEARCH)
