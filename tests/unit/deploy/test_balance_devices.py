"""The audit's arithmetic: one message of several devices."""

import pytest

from ingest.contract.topics import READINGS
from tests.support.balance import World, assert_faults


@pytest.mark.parametrize("lost", [False, True])
def test_a_message_of_two_devices_counts_once_and_not_at_all_where_one_is_lost(world: World, lost: bool) -> None:
    world.store_devices({"a": True, "b": not lost})
    world.count(accepted=["a"])
    figures = world.balance()
    assert_faults(figures, unaccounted=lost)
    assert (figures.received, figures.stored, figures.partial) == (7, 4 - lost, 1)


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_message_of_two_devices_of_which_one_was_refused_is_stored_in_part(world: World, by_spark: bool) -> None:
    world.store_devices({"a": True, "b": False} if by_spark else {"a": True})
    if by_spark:
        unread = {"gateway_epoch": None, "message_number": None}
        origin = world.origin(len(world.records) - 1, "b") | unread
        world.letter_rows.append(origin | {"source_topic": READINGS, "stage": "stream"})
    else:
        world.refuse("b", partial=True, topic="t/gateway")
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.partial, figures.dead_lettered) == (7, 4, 2, 1)


@pytest.mark.parametrize(("new", "stored", "duplicate"), [(False, 4, 1), (True, 5, 0)])
def test_a_message_of_two_devices_that_came_again_is_a_duplicate_unless_one_is_new(
    world: World, new: bool, stored: int, duplicate: int
) -> None:
    world.store_devices({"a": True} if new else {"a": True, "b": True}, "fm:1")
    world.store_devices({"a": False, "b": new}, "fm:1")
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.duplicate) == (8, stored, duplicate)
