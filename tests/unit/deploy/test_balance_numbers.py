"""The audit's arithmetic: numbers of messages that are missing or double among the outcomes, and records that none counts."""

import pytest

from deploy.balance import MINUTE_US, MessageBalance
from deploy.counted_messages import CountedMessages, NumberRun
from ingest.contract.outcome import Count, OutcomeRecord
from ingest.contract.topics import DEAD_LETTERS, READINGS
from tests.support.balance import EPOCH, START_US, World, assert_faults

MINUTE = START_US // MINUTE_US


def outcome(first: int, upto: int, *, began: int | None = 1, received: int | None = None) -> OutcomeRecord:
    count = upto - first + 1 if received is None else received
    return OutcomeRecord(1, "gw-1", EPOCH, first, upto, [Count(MINUTE, count, "a", count)], began)


def test_messages_between_two_outcomes_that_left_nothing_are_a_hole(world: World) -> None:
    world.number += 10
    world.counted += 10
    world.store("a", "bs:1:3")
    world.count(accepted=["a"])
    figures = world.balance()
    assert_faults(figures, unaccounted=10)
    assert figures.received == 17
    [hole] = figures.examples["hole"]
    assert (hole["gateway"], hole["epoch"], hole["from"], hole["to"]) == ("gw-1", EPOCH, 7, 16)


def test_a_skipped_outcome_is_a_hole_though_its_messages_are_stored(world: World) -> None:
    world.store("a", "bs:1:3")
    world.counted += 1
    world.store("a", "bs:1:4")
    world.count(accepted=["a"])
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert (figures.examples["hole"][0]["from"], figures.received, figures.stored) == (7, 8, 4)


def test_the_first_outcome_of_a_connection_is_missed_too(world: World) -> None:
    world.connect()
    world.number = world.counted = 3
    world.store("a", "bs:1:3")
    world.count(accepted=["a"])
    assert_faults(world.balance(), unaccounted=3)


def test_an_outcome_that_came_twice_is_counted_once_and_named(world: World) -> None:
    world.outcomes += world.outcomes
    figures = world.balance()
    assert_faults(figures, unaccounted=6)
    assert (figures.examples["overlap"][0]["from"], figures.examples["overlap"][0]["to"]) == (1, 6)


def test_a_loss_in_one_connection_does_not_cancel_a_surplus_in_another(world: World) -> None:
    world.number += 1  # counted, and in no topic
    world.count(accepted=["a"])
    world.connect()
    world.store("a", "bs:2:1")
    world.store("a", "bs:2:2")
    world.number -= 1
    world.count(accepted=["a"])  # one of the two
    world.number += 1
    world.outcome(OutcomeRecord(1, "gw-1", world.epoch, 2, 2, [Count(MINUTE, 0, "a")], 1))
    assert_faults(world.balance(), unaccounted=2)


def test_counts_that_are_swapped_between_devices_differ(world: World) -> None:
    for device in ("a", "a", "b"):
        world.store(device)
    world.count(accepted=["a", "b", "b"])
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert "counted differently" in figures.examples["count_differs"][0]["what"]


def test_counts_that_are_swapped_between_minutes_differ(world: World) -> None:
    world.store("a")
    world.count(accepted=["a"], minute=MINUTE + 1)
    assert world.balance().unaccounted > 0


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_outcomes_of_several_partitions_come_in_any_order(order: tuple[int, ...]) -> None:
    all_of_them = [outcome(1, 4), outcome(5, 5), outcome(6, 20), outcome(25, 30)]
    counted = CountedMessages(START_US, from_the_start=True)
    assert all(counted.add(all_of_them[place], 0) for place in order)
    assert list(counted.holes()) == [NumberRun("gw-1", EPOCH, 21, 24)]
    assert sorted(counted.runs()) == [NumberRun("gw-1", EPOCH, 1, 20), NumberRun("gw-1", EPOCH, 25, 30)]
    assert counted.overlaps == 0
    assert not counted.add(outcome(3, 18), 0)
    assert counted.overlaps == 16


def test_a_hole_before_the_window_is_not_of_it() -> None:
    counted = CountedMessages(START_US + MINUTE_US, from_the_start=True)
    for each in (outcome(1, 4), outcome(8, 9)):
        counted.add(each, 0)
    assert list(counted.holes()) == []


def test_what_came_before_the_first_outcome_read_is_no_hole_where_the_connection_is_older() -> None:
    counted = CountedMessages(START_US)
    counted.add(outcome(8, 9), 0)
    assert list(counted.holes()) == []


def test_an_outcome_whose_counts_are_not_about_its_numbers_is_short() -> None:
    counted = CountedMessages(START_US)
    counted.add(outcome(1, 4, received=3), 0)
    assert counted.short() == {("gw-1", EPOCH): 1}


def test_last_words_of_a_killed_gateway_stay_after_it_came_back(world: World) -> None:
    world.store("a", "bs:1:3")
    world.store("b")
    world.connect()
    world.store("a", "bs:1:3", land=False)
    world.store("b")
    world.count(accepted=["a", "b"])
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.duplicate) == (10, 6, 1)


def test_a_record_of_a_gateway_that_never_counted_is_somebody_elses(world: World) -> None:
    world.gateway, world.epoch, world.number = "somebody", 5, 0
    world.store("a", "bs:9:9")
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.examples["uncounted"][0]["gateway"] == "somebody"


def test_a_record_farther_than_a_window_behind_what_is_counted_is_somebody_elses(world: World) -> None:
    world.number += 7
    world.store("a", "bs:1:3")
    assert_faults(world.balance(window_messages=8))
    assert_faults(world.balance(window_messages=7), unaccounted=1)


@pytest.mark.parametrize("is_redelivered", [False, True])
def test_a_record_that_comes_after_the_next_connection_has_counted_is_somebody_elses_unless_it_comes_again(
    world: World, is_redelivered: bool
) -> None:
    old = (world.epoch, world.number)
    world.connect()
    for number in range(2):
        world.store("c", f"bs:3:{number}", land=not (is_redelivered and number == 1), value=5.0 * number)
    world.count(accepted=["c", "c"])
    world.at_ms += 100
    world.epoch, world.number = old
    world.store("c", "bs:3:1" if is_redelivered else "bs:9:9", value=5.0)
    assert_faults(world.balance(), unaccounted=not is_redelivered)


def test_a_second_record_under_the_name_of_a_counted_message_is_somebody_elses(world: World) -> None:
    world.number = 2
    world.store("c", "bs:9:9")
    assert world.balance().unaccounted > 0


def test_what_is_counted_while_the_records_are_read_is_no_tail(world: World) -> None:
    first = world.number + 1
    for number in range(4):
        world.store("a", f"bs:4:{number}")
    world.count(accepted=["a"] * 4)
    *early, late = world.outcomes
    with MessageBalance(START_US, window_messages=2, from_the_start=True) as books:
        world.load_tables(books)
        books.add_outcomes(early)
        books.add_readings(world.records)
        books.add_dead_letters(world.letters)
        landed = {READINGS: {0: len(world.records)}, DEAD_LETTERS: {0: len(world.letters)}}
        assert_faults(books.balance(landed), unaccounted=2)
        books.add_late_outcomes([late])
        assert_faults(books.balance(landed))
    assert first == 7


def test_a_new_gateway_is_a_stranger_until_its_first_outcome_comes(world: World) -> None:
    world.gateway, world.epoch, world.number, world.counted = "gw-2", EPOCH, 0, 0
    world.store("c", "bs:9:9")
    world.count(accepted=["c"])
    with MessageBalance(START_US, gateways=["gw-3"]) as books:
        world.load_tables(books)
        books.add_outcomes(world.outcomes[:-1])
        books.add_readings(world.records)
        assert books.unknown_gateways == {"gw-2"}
        books.add_late_outcomes(world.outcomes)
        assert books.unknown_gateways == set()


@pytest.mark.parametrize(("last_ms", "expected"), [(START_US // 1000 - 1, 1), (START_US // 1000, 0)])
def test_first_messages_are_looked_up_after_a_silence(last_ms: int, expected: int) -> None:
    counted = CountedMessages(START_US - MINUTE_US)
    counted.add(outcome(1, 4), last_ms)
    later = OutcomeRecord(1, "gw-1", START_US // 1000 + 5, 1, 2, [Count(MINUTE, 2, "a", 2)], 1)
    counted.add(later, START_US // 1000 + 9)
    found = [run for run in counted.openings(8, START_US) if run.epoch == later.epoch]
    assert found == [NumberRun("gw-1", later.epoch, 1, 8)] * expected
