"""The audit's arithmetic on a small world, whole and then broken in each way that it must notice."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from deploy.balance import MINUTE_US, Books, Figures
from ingest.contract.dead_letter import DeadLetterRecord, encode_dead_letter
from ingest.contract.outcome import Count, OutcomeRecord, encode_outcome
from ingest.contract.reading import Reading, ReadingRecord, encode_record
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.log import LogRecord

START_US = 1_700_000_040_000_000
assert START_US % MINUTE_US == 0
EPOCH = 1_700_000_000_000
Row = dict[str, Any]

_ORIGIN = [
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("gateway_epoch", pa.int64()),
    ("message_number", pa.int64()),
    ("received_at", pa.timestamp("us", "UTC")),
    ("date", pa.date32()),
    ("device", pa.string()),
]
_READINGS = pa.schema([*_ORIGIN, ("metric", pa.string()), ("index", pa.int32()), ("message_id", pa.string())])
_DEAD_LETTERS = pa.schema([*_ORIGIN, ("source_topic", pa.string()), ("stage", pa.string())])


class World:
    """What the gateway, Kafka and Spark would have left behind, as plain lists to be broken by a test."""

    def __init__(self) -> None:
        self.number = 0
        self.epoch = EPOCH
        self.gateway = "gw-1"
        self.records: list[LogRecord] = []
        self.letters: list[LogRecord] = []
        self.outcomes: list[LogRecord] = []
        self.rows: list[Row] = []
        self.letter_rows: list[Row] = []

    def store(self, device: str, message_id: str | None = None, *, metrics: int = 1, land: bool = True) -> int:
        """A message with `metrics` readings, in Kafka and (`land`) in the table; returns its number."""
        self.number += 1
        received_us = START_US + self.number * 1000
        readings = [Reading(metric=f"m{i}", value=float(i)) for i in range(metrics)]
        name = (self.gateway, self.epoch, self.number, received_us, f"t/{device}", device)
        record = ReadingRecord(1, *name, readings, message_id=message_id)
        self.records.append(LogRecord(0, len(self.records), 0, device.encode(), encode_record(record)))
        if land:
            self.rows += [
                self._origin(len(self.records) - 1, device)
                | {"metric": reading.metric, "index": 0, "message_id": message_id}
                for reading in readings
            ]
        return self.number

    def store_batch(self, device: str, items: list[tuple[str | None, bool]]) -> None:
        """A message whose items carry identities of their own: (identity, is its row in the table); one metric."""
        self.number += 1
        readings = [
            Reading(metric="m0", value=1.0, message_id=name, index=i * (not name)) for i, (name, _) in enumerate(items)
        ]
        at = START_US + self.number * 1000
        record = ReadingRecord(1, self.gateway, self.epoch, self.number, at, "t", device, readings)
        self.records.append(LogRecord(0, len(self.records), 0, device.encode(), encode_record(record)))
        self.rows += [
            self._origin(len(self.records) - 1, device)
            | {"metric": "m0", "index": reading.index, "message_id": reading.message_id}
            for reading, (_, land) in zip(readings, items, strict=True)
            if land
        ]

    def store_devices(self, devices: dict[str, bool], message_id: str | None = None) -> None:
        """One message with a reading of each of these devices, a record each: (device, is its row in the table)."""
        for device, land in devices.items():
            self.store(device, message_id, land=land)
            self.number -= 1
        self.number += 1

    def refuse(self, device: str | None, *, partial: bool = False, land: bool = True) -> None:
        """A dead letter: of the whole next message, or (`partial`) of a part of the last one."""
        self.number += not partial
        received_us = START_US + self.number * 1000
        name = (self.gateway, self.epoch, self.number, received_us, "t")
        letter = DeadLetterRecord(1, *name, Reason.BAD_JSON, "", 0, partial=partial, device=device)
        self.letters.append(LogRecord(0, len(self.letters), 0, b"k", encode_dead_letter(letter)))
        if land:
            self.letter_rows.append(
                self._origin(len(self.letters) - 1, device) | {"source_topic": DEAD_LETTERS, "stage": "gateway"}
            )

    def count(self, *, accepted: int = 0, dead: int = 0, ignored: int = 0, minute: int = START_US // MINUTE_US) -> None:
        """The gateway's outcome for everything up to the last number (ignored messages take numbers of their own)."""
        self.number += ignored
        count = Count(
            minute,
            accepted + dead + ignored,
            "d",
            accepted,
            dead_lettered={"bad_json": dead} if dead else {},
            ignored={"no_value": ignored} if ignored else {},
        )
        outcome = OutcomeRecord(1, self.gateway, self.epoch, 1, self.number, [count])
        self.outcomes.append(LogRecord(0, len(self.outcomes), 0, b"k", encode_outcome(outcome)))

    def balance(self, cutoff_us: int = START_US) -> Figures:
        landed = {READINGS: {0: len(self.records)}, DEAD_LETTERS: {0: len(self.letters)}}
        with Books(cutoff_us) as books:
            books.load_tables(
                pa.Table.from_pylist(self.rows, _READINGS), pa.Table.from_pylist(self.letter_rows, _DEAD_LETTERS)
            )
            books.add_outcomes(self.outcomes)
            for start in range(0, len(self.records), 2):
                books.add_readings(self.records[start : start + 2])
            books.add_dead_letters(self.letters)
            return books.balance(landed)

    def _origin(self, offset: int, device: str | None) -> Row:
        at = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(milliseconds=self.number)
        return {
            "partition": 0, "offset": offset, "gateway_epoch": self.epoch, "message_number": self.number,
            "received_at": at, "date": at.date(), "device": device,
        }  # fmt: skip


@pytest.fixture
def world() -> Iterator[World]:
    """Six messages: three stored (one of them in part), one refused, two ignored; all counted, landed and whole."""
    world = World()
    world.store("a", "bs:1:1", metrics=3)
    world.store("a", "bs:1:2")
    world.store("b")
    world.refuse("b", partial=True)
    world.refuse(None)
    world.count(accepted=3, dead=1, ignored=2)
    yield world


def assert_faults(figures: Figures, *, unaccounted: int = 0, duplicate_rows: int = 0, order: int = 0) -> None:
    found = (figures.unaccounted, figures.duplicate_rows, figures.order_violations)
    assert found == (unaccounted, duplicate_rows, order), figures


def test_a_whole_world_balances(world: World) -> None:
    figures = world.balance()
    assert_faults(figures)
    assert (figures.received, figures.stored, figures.partial, figures.dead_lettered) == (6, 3, 1, 1)
    assert (figures.ignored, figures.duplicate, figures.pending, figures.foreign) == (2, 0, 0, 0)
    assert figures.examples == {}


def test_an_empty_world_balances() -> None:
    assert World().balance() == Figures()


def test_a_lost_message_is_named(world: World) -> None:
    world.rows = [row for row in world.rows if row["offset"] != 1]
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.received == 6
    assert figures.stored == 2
    (example,) = figures.examples["unaccounted"]
    assert example["number"] == 2
    assert example["device"] == "a"
    assert example["origin"] == "telemetry.readings[0]@1"
    assert not example["pending"]
    assert not figures.only_counts_differ


def test_one_lost_reading_of_a_stored_message_is_unaccounted(world: World) -> None:
    world.rows.pop(1)
    assert_faults(world.balance(), unaccounted=1)


def test_a_lost_reading_without_identity_is_unaccounted(world: World) -> None:
    world.store("b", None, metrics=2)
    world.rows.pop()
    assert_faults(world.balance(), unaccounted=1)


@pytest.mark.parametrize("partial", [True, False])
def test_a_dead_letter_in_kafka_but_not_in_the_table_is_unaccounted(world: World, partial: bool) -> None:
    world.letter_rows.pop(0 if partial else 1)
    assert_faults(world.balance(), unaccounted=1)


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
    world.store("c", "bs:7:1")
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


@pytest.mark.parametrize("lost", [False, True])
def test_a_message_of_two_devices_counts_once_and_not_at_all_where_one_is_lost(world: World, lost: bool) -> None:
    world.store_devices({"a": True, "b": not lost})
    world.count(accepted=1)
    figures = world.balance()
    assert_faults(figures, unaccounted=lost)
    assert (figures.received, figures.stored, figures.partial) == (7, 4 - lost, 1)


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_message_of_two_devices_of_which_one_was_refused_is_stored_in_part(world: World, by_spark: bool) -> None:
    world.store_devices({"a": True, "b": False} if by_spark else {"a": True})
    if by_spark:
        unread = {"gateway_epoch": None, "message_number": None}
        origin = world._origin(len(world.records) - 1, "b") | unread
        world.letter_rows.append(origin | {"source_topic": READINGS, "stage": "stream"})
    else:
        world.refuse("b", partial=True)
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
    world.gateway, world.epoch, world.number = "gw-2", EPOCH - 5, 0
    world.store("a", "bs:1:3")
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
    world.count(accepted=1)
    figures = world.balance()
    assert_faults(figures, unaccounted=1)
    assert figures.only_counts_differ
    assert figures.examples["count_differs"] == [{"messages": 1, "what": "counted by the gateway, but in no topic"}]


def test_a_message_that_the_gateway_forgot_to_count_is_unaccounted(world: World) -> None:
    world.store("a", "bs:1:3")
    world.count(accepted=0)
    assert_faults(world.balance(), unaccounted=1)


@pytest.mark.parametrize("topic", [READINGS, DEAD_LETTERS])
def test_what_spark_refuses_is_dead_lettered(world: World, topic: str) -> None:
    if topic == READINGS:
        world.store("a", "bs:1:3", land=False)
        origin = world._origin(len(world.records) - 1, "a")
    else:
        world.refuse("a", land=False)
        origin = world._origin(len(world.letters) - 1, "a")
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
    world.letter_rows.append(world._origin(len(world.records) - 1, "a") | {"source_topic": READINGS, "stage": "stream"})
    figures = world.balance()
    assert_faults(figures, unaccounted=unaccounted)
    assert (figures.received, figures.stored, figures.partial) == (8, stored, partial)
    assert (figures.dead_lettered, figures.duplicate) == (dead, 0)


def test_a_refused_copy_of_a_former_topic_excuses_no_loss(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    origin = world._origin(len(world.records) - 1, "a") | {"gateway_epoch": EPOCH - 5}
    world.letter_rows.append(origin | {"source_topic": READINGS, "stage": "stream"})
    assert_faults(world.balance(), unaccounted=1)


def test_what_spark_refuses_in_one_topic_excuses_no_loss_in_another(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    world.letter_rows.append(world._origin(3, "a") | {"source_topic": DEAD_LETTERS, "stage": "stream"})
    assert_faults(world.balance(), unaccounted=1)


def test_a_row_of_a_former_topic_with_the_same_offset_proves_nothing(world: World) -> None:
    for row in world.rows:
        row["gateway_epoch"] -= 1_000_000
        row["message_id"] = None
    assert_faults(world.balance(), unaccounted=3)


def test_a_record_that_cannot_be_read_is_foreign(world: World) -> None:
    world.records.append(LogRecord(0, len(world.records), 0, b"k", b"not ours"))
    world.letters.append(LogRecord(0, len(world.letters), 0, b"k", None))
    figures = world.balance()
    assert_faults(figures)
    assert figures.foreign == 2


def test_what_lies_before_the_cutoff_does_not_count(world: World) -> None:
    assert world.balance(START_US + MINUTE_US) == Figures()


def test_a_message_past_the_landed_offset_is_pending(world: World) -> None:
    world.store("a", "bs:1:3", land=False)
    world.count(accepted=1)
    with Books(START_US) as books:
        books.load_tables(
            pa.Table.from_pylist(world.rows, _READINGS), pa.Table.from_pylist(world.letter_rows, _DEAD_LETTERS)
        )
        books.add_outcomes(world.outcomes)
        books.add_readings(world.records)
        books.add_dead_letters(world.letters)
        late = books.balance({READINGS: {0: 3}, DEAD_LETTERS: {0: 2}})
        assert_faults(late, unaccounted=1)
        assert late.pending == 1
        world.rows.append(world._origin(3, "a") | {"metric": "m0", "index": 0, "message_id": "bs:1:3"})
        books.load_tables(
            pa.Table.from_pylist(world.rows, _READINGS), pa.Table.from_pylist(world.letter_rows, _DEAD_LETTERS)
        )
        assert_faults(books.balance({READINGS: {0: 4}, DEAD_LETTERS: {0: 2}}))


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (lambda world: world.rows.clear(), "rows"),
        (lambda world: world.letter_rows.clear(), "dead letters"),
        (lambda world: world.outcomes.clear(), "outcomes"),
    ],
)
def test_losing_a_whole_source_never_balances_by_chance(world: World, lose: Callable[[World], None], what: str) -> None:
    lose(world)
    figures = world.balance()
    if what == "outcomes":
        # Nothing says that these were counted, so the records speak for themselves; only the ignored ones are unseen.
        assert (figures.received, figures.ignored) == (4, 0)
        assert_faults(figures)
    else:
        assert figures.unaccounted > 0
