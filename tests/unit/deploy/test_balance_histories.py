"""The audit's arithmetic as a property: every history of a sound pipeline balances, and every fault in one is found."""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.balance import MINUTE_US
from ingest.contract.reading import Reading, ReadingRecord
from tests.support.audit_history import DEVICES, WINDOW, History, Kept
from tests.support.balance import START_US, assert_faults

SEEDS = st.integers(0, 2**32 - 1)
Mutation = Callable[[History], bool]
"""Breaks a history in one place; False where it has no place for this fault."""


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_a_sound_history_balances(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    for device in random.sample(DEVICES, random.randint(0, 1)):
        history.erase(device)
    for device in random.sample(DEVICES, random.randint(0, 2)):
        history.correct(device, random.choice(("m0", "m1")), delete=random.random() < 0.5)
    figures = history.balance()
    assert_faults(figures)
    ends = figures.stored + figures.dead_lettered + figures.ignored + figures.duplicate
    assert figures.received == ends
    for cutoff_us in (START_US + MINUTE_US, START_US + 2 * MINUTE_US):
        assert_faults(history.balance(cutoff_us))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_what_has_not_landed_is_pending_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    history = History(random)
    figures = history.balance(pending=random.randint(0, min(5, len(history.records))))
    assert_faults(figures, unaccounted=figures.pending)


def lose_a_row(history: History) -> bool:
    return remove_one(history, history.rows)


def lose_a_dead_letter(history: History) -> bool:
    return remove_one(history, history.letter_rows)


def double_a_row(history: History) -> bool:
    if history.rows:
        history.rows.append(dict(history.random.choice(history.rows)))
    return bool(history.rows)


def alter_a_row(history: History) -> bool:
    if not history.rows:
        return False
    row = history.random.choice(history.rows)
    name = history.random.choice(("value", "text", "unit", "event_time"))
    changed = {"value": -1.5, "text": "another", "unit": None, "event_time": row["event_time"] + timedelta(seconds=1)}
    row[name] = changed[name]
    return True


def invent_a_row(history: History) -> bool:
    """A row under the name of a message that has no such reading."""
    if not history.rows:
        return False
    row = dict(history.random.choice(history.rows))
    name = history.random.choice(("metric", "index", "device"))
    row |= {name: {"metric": "invented", "index": 9, "device": "z"}[name], "message_id": None}
    history.rows.append(row)
    return True


def move_a_row_in_time(history: History) -> bool:
    """When it was received: out of the window, within it, or into the partition of another day."""
    if not history.rows:
        return False
    row = history.random.choice(history.rows)
    kind = history.random.choice(("before", "within", "day"))
    if kind == "day":
        row["date"] += timedelta(days=1)
    else:
        row["received_at"] += timedelta(days=-2) if kind == "before" else timedelta(seconds=1)
        row["date"] = row["received_at"].date()
    return True


def change_all_rows_of_a_message_alike(history: History) -> bool:
    messages: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in history.rows:
        messages.setdefault((row["partition"], row["offset"]), []).append(row)
    several = [rows for rows in messages.values() if len(rows) == 2]  # in pairs changes may cancel out
    if not several:
        return False
    name = history.random.choice(("received_at", "event_time", "device_time"))
    for row in history.random.choice(several):
        row[name] = (row[name] or row["received_at"]) + timedelta(milliseconds=1)
    return True


def acknowledge_without_producing(history: History) -> bool:
    """A counted message of which no record and no row is left."""
    named = [kept for kept in history.records if is_counted(history, kept)]
    if not named:
        return False
    name = name_of(history.random.choice(named))
    gone = {(k.partition, place) for place, k in history.placed(history.records) if name_of(k) == name}
    history.rows = [row for row in history.rows if (row["partition"], row["offset"]) not in gone]
    for kept in history.records:
        if name_of(kept) == name:  # keeps its offset, as a record that nobody reads
            kept.value = deepcopy(kept.value)
            kept.value.received_us = START_US - 1
    return True


def skip_an_outcome(history: History) -> bool:
    """Not the last of a connection: after that one a gateway may have died."""
    epochs = [epoch for epoch in history.epochs if len(epoch.outcomes) > 1]
    if not epochs:
        return False
    outcomes = history.random.choice(epochs).outcomes
    del outcomes[history.random.randrange(len(outcomes) - 1)]
    return True


def count_an_outcome_twice(history: History) -> bool:
    epochs = [epoch for epoch in history.epochs if epoch.outcomes]
    if epochs:
        outcomes = history.random.choice(epochs).outcomes
        outcomes.append(history.random.choice(outcomes))
    return bool(epochs)


def lose_a_run_with_its_outcome(history: History) -> bool:
    """Acknowledged, and nothing of it is left anywhere: only the numbers tell."""
    epochs = [epoch for epoch in history.epochs if len(epoch.outcomes) > 1]
    if not epochs:
        return False
    epoch = history.random.choice(epochs)
    _, gone = epoch.outcomes.pop(history.random.randrange(len(epoch.outcomes) - 1))
    for kept in [*history.records, *history.letters]:
        message = kept.value
        if (message.gateway, message.epoch) == (gone.gateway, gone.epoch) and gone.first <= message.number <= gone.upto:
            kept.value = deepcopy(message)
            kept.value.received_us = START_US - 1
    return True


def name_no_messages(history: History) -> bool:
    """An outcome that counts messages and has no number for them; not the last, as above."""
    outcomes = [o for epoch in history.epochs for _, o in epoch.outcomes[:-1]]
    if not outcomes:
        return False
    outcome = history.random.choice(outcomes)
    outcome.upto = outcome.first - 1
    return True


def count_one_too_many_here_and_one_too_few_there(history: History) -> bool:
    counts = [(e, c) for e in history.epochs for _, o in e.outcomes for c in o.counts if c.accepted]
    others = [(e, c) for e, c in counts if counts and e is not counts[0][0]]
    if not others:
        return False
    for (_, count), more in ((counts[0], 1), (others[0], -1)):
        count.received += more
        count.accepted += more
    return True


def count_for_another_device(history: History) -> bool:
    multis = {device for e in history.records for device in [e.value.device] if e.value.topic in shared_topics(history)}
    counts = [
        c for e in history.epochs for _, o in e.outcomes for c in o.counts if c.accepted and c.device not in multis
    ]
    if not counts or len(multis) > 2:
        return False
    history.random.choice(counts).device = "z"
    return True


def swap_two_records_of_a_device(history: History) -> bool:
    device = history.random.choice(DEVICES)
    mine = [kept for kept in history.records if kept.value.device == device]
    for one, other in pairwise(mine):
        if one.value.epoch == other.value.epoch:
            one.value, other.value = other.value, one.value
            return True
    return False


def drop_a_copy_with_other_content(history: History) -> bool:
    stored = {(row["partition"], row["offset"]) for row in history.rows}
    copies = [kept for place, kept in history.placed(history.records) if (kept.partition, place) not in stored]
    if not copies:
        return False
    kept = history.random.choice(copies)
    kept.value = deepcopy(kept.value)
    kept.value.readings[0].value += 0.5
    return True


def write_as_a_stranger(history: History) -> bool:
    return write(history, "somebody", 1, 1)


def write_as_a_connection_that_is_over(history: History) -> bool:
    for earlier in history.epochs:
        if any(
            later.gateway == earlier.gateway and later.outcomes
            for later in history.epochs[history.epochs.index(earlier) + 1 :]
        ):
            number = max([0, *(o.upto for _, o in earlier.outcomes)])
            return write(history, earlier.gateway, earlier.epoch, max(number + 1, earlier.first + WINDOW))
    return False


def write_far_behind_what_is_counted(history: History) -> bool:
    newest = history.epochs[-1]
    if not newest.outcomes:
        return False
    return write(history, newest.gateway, newest.epoch, newest.outcomes[-1][1].upto + WINDOW + 1)


def write_among_what_is_counted(history: History) -> bool:
    epochs = [epoch for epoch in history.epochs if epoch.outcomes]
    if not epochs:
        return False
    outcome = history.random.choice(history.random.choice(epochs).outcomes)[1]
    return write(history, outcome.gateway, outcome.epoch, history.random.randint(outcome.first, outcome.upto))


MUTATIONS: tuple[Mutation, ...] = (
    lose_a_row, lose_a_dead_letter, double_a_row, alter_a_row, invent_a_row, move_a_row_in_time,
    change_all_rows_of_a_message_alike,
    acknowledge_without_producing, skip_an_outcome, count_an_outcome_twice, lose_a_run_with_its_outcome, name_no_messages,
    count_one_too_many_here_and_one_too_few_there, count_for_another_device, swap_two_records_of_a_device,
    drop_a_copy_with_other_content, write_as_a_stranger, write_as_a_connection_that_is_over, write_far_behind_what_is_counted,
    write_among_what_is_counted,
)  # fmt: skip


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(seed=SEEDS)
def test_a_history_with_one_fault_does_not_balance(mutate: Mutation, seed: int) -> None:
    history = History(Random(seed), connections=5)
    if not mutate(history):
        return
    figures = history.balance()
    assert figures.unaccounted or figures.duplicate_rows or figures.order_violations
    assert figures.examples


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_most_histories_have_a_place_for_each_fault(mutate: Mutation) -> None:
    assert sum(mutate(History(Random(seed), connections=5)) for seed in range(40)) > 20


def remove_one(history: History, rows: list[dict[str, object]]) -> bool:
    if not rows:
        return False
    rows.pop(history.random.randrange(len(rows)))
    return True


def write(history: History, gateway: str, epoch: int, number: int) -> bool:
    """A reading that no gateway received, in the topic and in the table."""
    history.at_us += 10_000
    record = ReadingRecord(1, gateway, epoch, number, history.at_us, "t/foreign", "a", [Reading("m0", 1.0)])
    history.records.append(Kept(0, history.at_us // 1000, record))
    history.rows.append(last_row(history))
    return True


def last_row(history: History) -> dict[str, object]:
    from tests.support.audit_history import reading_row

    place, kept = list(history.placed(history.records))[-1]
    return reading_row(kept.partition, place, kept.value, kept.value.readings[0])


def name_of(kept: Kept) -> tuple[str, int, int]:
    return kept.value.gateway, kept.value.epoch, kept.value.number


def is_counted(history: History, kept: Kept) -> bool:
    gateway, epoch, number = name_of(kept)
    return any(
        (o.gateway, o.epoch) == (gateway, epoch) and o.first <= number <= o.upto
        for e in history.epochs for _, o in e.outcomes
    )  # fmt: skip


def shared_topics(history: History) -> set[str]:
    """Topics of messages of several devices."""
    devices: dict[tuple[str, int, int], set[str]] = {}
    for kept in history.records:
        devices.setdefault(name_of(kept), set()).add(kept.value.device)
    return {kept.value.topic for kept in history.records if len(devices[name_of(kept)]) > 1}
