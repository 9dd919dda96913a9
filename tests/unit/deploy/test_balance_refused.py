"""The audit's arithmetic: what Spark refused after the gateway had accepted it."""

import pytest

from ingest.contract.topics import DEAD_LETTERS, READINGS
from tests.support.balance import EPOCH, World, assert_faults


@pytest.mark.parametrize("topic", [READINGS, DEAD_LETTERS])
def test_what_spark_refuses_is_dead_lettered(world: World, topic: str) -> None:
    if topic == READINGS:
        world.store("a", "bs:1:3", land=False)
        origin = world.origin(len(world.records) - 1, "a")
    else:
        world.refuse("a", land=False)
        origin = world.origin(len(world.letters) - 1, "a")
    unread = {"gateway_epoch": None, "message_number": None}
    world.letter_rows.append(origin | unread | {"source_topic": topic, "stage": "stream"})
    figures = world.balance()
    assert_faults(figures)
    assert figures.dead_lettered == 2


@pytest.mark.parametrize(
    ("named", "land", "stored", "partial", "dead", "unaccounted"),
    [
        # All that the copy says is refused: it is a dead letter, no duplicate.
        (["bs:1:9", "bs:1:9"], [False, False], 4, 1, 2, 0),
        # One of its readings is new and stored: stored, in part.
        (["bs:1:9", "bs:1:10"], [False, True], 5, 2, 1, 0),
        # One of them is neither here nor elsewhere: the dead letter of the other excuses no loss.
        (["bs:1:9", "bs:1:10"], [False, False], 4, 1, 1, 1),
    ],
)
def test_a_copy_with_other_content_is_dead_lettered_and_what_is_new_in_it_stored(
    world: World, named: list[str], land: list[bool], stored: int, partial: int, dead: int, unaccounted: int
) -> None:
    world.store_batch("a", [("bs:1:9", True)])
    world.store_batch("a", list(zip(named, land, strict=True)))
    world.letter_rows.append(world.origin(len(world.records) - 1, "a") | {"source_topic": READINGS, "stage": "stream"})
    figures = world.balance()
    assert_faults(figures, unaccounted=unaccounted)
    assert (figures.received, figures.stored, figures.partial) == (8, stored, partial)
    assert (figures.dead_lettered, figures.duplicate) == (dead, 0)


def test_a_refused_copy_of_a_former_topic_excuses_no_loss(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    origin = world.origin(len(world.records) - 1, "a") | {"gateway_epoch": EPOCH - 5}
    world.letter_rows.append(origin | {"source_topic": READINGS, "stage": "stream"})
    assert_faults(world.balance(), unaccounted=1)


def test_what_spark_refuses_in_one_topic_excuses_no_loss_in_another(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    world.letter_rows.append(world.origin(3, "a") | {"source_topic": DEAD_LETTERS, "stage": "stream"})
    assert_faults(world.balance(), unaccounted=1)
