"""The audit of a gateway whose standby took over while records of the old process were still under way."""

import pytest

from tests.support.balance import World


def take_over(world: World, late: str, *, known: bool) -> None:
    """The old process had stored messages of `known` devices; a copy of `late`'s message comes after the standby's."""
    if known:
        world.store(late, "1")
        world.count(accepted=[late])
    before = world.epoch, world.number
    world.connect()
    world.store(late, "2")
    world.count(accepted=[late])
    (world.epoch, world.number), world.at_ms = before, world.at_ms + 1000
    world.store(late, "2", land=False)


@pytest.mark.parametrize("known", [True, False])
def test_a_late_copy_is_a_duplicate_and_shows_where_the_old_epoch_comes_back(known: bool) -> None:
    world = World()
    world.store("other", "1")
    world.count(accepted=["other"])
    take_over(world, "d", known=known)
    found = world.balance()
    assert (found.unaccounted, found.duplicate_rows) == (0, 0), found.examples
    assert found.duplicate == 1
    assert found.received == found.stored + found.duplicate
    assert found.order_violations == (1 if known else 0)


def test_a_late_record_that_is_no_copy_is_unaccounted() -> None:
    """The standby did not get that message: the broker had lost it, or the record is not the gateway's."""
    world = World()
    world.store("d", "1")
    world.count(accepted=["d"])
    before = world.epoch, world.number
    world.connect()
    world.store("d", "3")
    world.count(accepted=["d"])
    (world.epoch, world.number), world.at_ms = before, world.at_ms + 1000
    world.store("d", "2")
    found = world.balance()
    assert (found.unaccounted, found.order_violations) == (1, 1)
