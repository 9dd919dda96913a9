"""The audit's arithmetic: rows that are stored twice, and messages that came twice."""

from datetime import timedelta

from ingest.contract.topics import READINGS
from tests.support.balance import World, assert_faults


def test_a_doubled_row_is_counted(world: World) -> None:
    world.rows.append(dict(world.rows[0]))
    figures = world.balance()
    assert_faults(figures, duplicate_rows=1)
    assert figures.examples["duplicate_rows"][0]["message_id"] == "bs:1:1"


def test_a_row_of_the_same_identity_from_another_record_is_counted(world: World) -> None:
    world.store("a", "bs:1:2")
    assert_faults(world.balance(), duplicate_rows=1)


def test_a_row_doubled_from_before_the_window_is_counted(world: World) -> None:
    day = timedelta(days=2)
    early = world.rows[3]
    world.rows.append(early | {"received_at": early["received_at"] - day, "date": early["date"] - day, "offset": -5})
    assert_faults(world.balance(), duplicate_rows=1)


def test_a_doubled_row_without_identity_is_counted(world: World) -> None:
    world.rows.append(dict(world.rows[-1]))
    assert_faults(world.balance(), duplicate_rows=1)


def test_equal_readings_without_identity_from_two_messages_are_no_duplicate(world: World) -> None:
    world.store("b")
    assert_faults(world.balance())


def test_a_redelivered_message_is_a_duplicate_and_balances(world: World) -> None:
    world.store("a", "bs:1:1", metrics=3, land=False)
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.duplicate) == (7, 3, 1)


def test_a_half_new_redelivery_is_no_duplicate(world: World) -> None:
    world.store("a", "bs:1:2", metrics=2, land=False)
    assert_faults(world.balance(), unaccounted=1)


def test_a_batch_of_which_a_part_was_stored_before_is_stored(world: World) -> None:
    world.store("c", "bs:7:1", value=1.0)
    world.store_batch("c", [("bs:7:1", False), ("bs:7:2", True), (None, True)])
    figures = world.balance()
    assert_faults(figures)
    assert figures.stored == 5


def test_a_batch_that_lost_an_item_with_the_metric_of_another_is_unaccounted(world: World) -> None:
    world.store_batch("c", [("bs:7:1", True), ("bs:7:2", False)])
    assert_faults(world.balance(), unaccounted=1)


def test_the_same_identity_of_another_device_is_no_duplicate(world: World) -> None:
    world.store("b", "bs:1:2", land=False)
    assert_faults(world.balance(), unaccounted=1)


def test_a_repetition_without_identity_is_never_taken_for_a_duplicate(world: World) -> None:
    world.store("b", None, land=False)
    assert_faults(world.balance(), unaccounted=1)


def test_a_copy_that_was_not_compared_is_dead_lettered_though_its_row_is_gone(world: World) -> None:
    before = world.balance().dead_lettered
    world.store("d", "mp:gone", land=False)
    world.letter_rows.append(
        world.origin(len(world.records) - 1, "d")
        | {"source_topic": READINGS, "stage": "stream", "reason": "unchecked_duplicate"}
    )
    figures = world.balance()
    assert_faults(figures)
    assert figures.dead_lettered == before + 1
