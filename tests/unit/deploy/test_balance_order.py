"""The audit's arithmetic: order within a device, over gateways and their connections."""

from tests.support.balance import EPOCH, World, assert_faults


def test_swapped_records_of_one_device_are_a_violation(world: World) -> None:
    first, second = world.records[0], world.records[1]
    world.records[0], world.records[1] = first._replace(value=second.value), second._replace(value=first.value)
    figures = world.balance()
    assert figures.order_violations == 1
    assert figures.examples["order_violations"][0]["device"] == "a"


def test_records_of_different_devices_may_interleave(world: World) -> None:
    world.store("b")
    world.store("a", "bs:1:3")
    assert_faults(world.balance())


def test_two_gateways_number_their_messages_apart(world: World) -> None:
    world.gateway, world.epoch, world.number, world.counted = "gw-2", EPOCH - 5, 0, 0
    world.store("a", "bs:1:3")
    world.count(accepted=["a"])
    assert_faults(world.balance())


def test_a_later_epoch_may_repeat_lower_numbers(world: World) -> None:
    world.epoch += 1
    world.number = 0
    world.store("a", "bs:2:1")
    assert_faults(world.balance())


def test_a_clock_set_back_between_two_processes_is_no_violation(world: World) -> None:
    world.epoch -= 3_600_000
    world.number = 0
    world.store("a", "bs:2:1")
    world.store("a", "bs:2:2")
    assert_faults(world.balance())


def test_an_epoch_that_comes_back_is_a_violation(world: World) -> None:
    epoch = world.epoch
    for world.epoch in (epoch + 1, epoch):
        world.store("a", f"bs:2:{world.epoch}")
    figures = world.balance()
    assert_faults(figures, order=1)
    [example] = figures.examples["order_violations"]
    assert (example["epoch"], example["epoch_before"]) == (epoch, epoch + 1)


def test_a_number_that_comes_again_within_its_epoch_is_a_violation(world: World) -> None:
    world.number = 0
    world.store("a", "bs:1:9", land=False)
    assert world.balance().order_violations == 1
