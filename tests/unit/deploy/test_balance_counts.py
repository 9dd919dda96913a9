"""The audit's arithmetic: what the gateway counted against what the topics hold."""

from tests.support.balance import EPOCH, World, assert_faults


def test_messages_not_counted_before_a_crash_are_counted_from_their_records(world: World) -> None:
    world.store("a", "bs:1:3")
    world.refuse("a")
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.dead_lettered) == (8, 4, 2)


def test_a_lost_message_of_the_uncounted_tail_is_unaccounted(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.received == 7


def test_a_part_whose_message_never_came_was_not_acknowledged(world: World) -> None:
    world.number += 1
    world.refuse("a", partial=True)
    figures = world.balance()
    assert_faults(figures)
    assert figures.received == 6


def test_a_counted_message_that_no_topic_holds_is_unaccounted(world: World) -> None:
    world.number += 1
    world.count(accepted=["a"])
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.only_counts_differ
    what = "counted by the gateway, but in no topic"
    named = {"gateway": "gw-1", "epoch": EPOCH, "messages": 1, "what": what}
    assert figures.examples["count_differs"] == [named]


def test_a_message_that_the_gateway_forgot_to_count_is_unaccounted(world: World) -> None:
    world.store("a", "bs:1:3")
    world.count()
    assert_faults(world.balance(), unaccounted=1)
