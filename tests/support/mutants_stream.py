"""Deliberate faults of the stream: of the landing, of what is derived, and of SQL streams. Each row is a `Mutant`.

`from tests.support.mutants_stream import WRITES`; a row's patch lasts as long as its test.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from lakehouse.maintenance import _older
from tests.support.mutants_gateway import Mutant

Patch = Callable[[pytest.MonkeyPatch], None]
Change = Callable[[Any, str], Any]
"""What the landing writes into a table is changed on the way: (frame, the world's name) -> frame."""

A2 = "device = 'a-{0}' AND seq = 2"


def without(condition: str) -> Change:
    return lambda rows, world: rows.where(f"NOT coalesce({condition.format(world)}, false)")


def doubled(condition: str) -> Change:
    return lambda rows, world: rows.unionByName(rows.where(condition.format(world))).coalesce(1)


def invented(column: str, condition: str, value: str) -> Change:
    """A row more, under the name of a message that has no such reading."""
    add = changed(column, "true", value)
    return lambda rows, world: rows.unionByName(add(rows.where(condition.format(world)), world)).coalesce(1)


def changed(column: str, condition: str, value: str) -> Change:
    def change(rows: Any, world: str) -> Any:
        from pyspark.sql import functions as F

        kind = rows.schema[column].dataType.simpleString()
        replaced = f"IF({condition}, CAST({value} AS {kind}), {column})"
        return rows.withColumn(column, F.expr(replaced.format(world)))

    return change


def break_writes(monkeypatch: pytest.MonkeyPatch, changes: list[tuple[str, Change, str]]) -> None:
    """Each change of (table, change, world) applies to what is written into the table from now on."""
    from lakehouse.append import Append

    original = Append.write

    def write(self: Append, rows: Any) -> None:
        for table, change, world in changes:
            if self._appender.table.name == table:
                rows = change(rows, world)
        original(self, rows)

    monkeypatch.setattr(Append, "write", write)


def skips_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.land import Landing

    original, skipped = Landing._land_tables, []

    def land(self: Landing, batch: Any) -> None:
        if skipped:
            original(self, batch)
        skipped.append(batch)

    monkeypatch.setattr(Landing, "_land_tables", land)


def commits_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.dedup_index import DedupIndex
    from streaming.land import Landing

    original, look, again = Landing._land_readings, DedupIndex.duplicates, []

    def land(self: Landing, batch: Any) -> Any:
        found = original(self, batch)
        if not again:
            again.append(batch)
            original(self, batch)
        return found

    monkeypatch.setattr(Landing, "_land_readings", land)
    monkeypatch.setattr(
        DedupIndex, "duplicates", lambda self, rows: look(self, rows).slice(0, 0) if again else look(self, rows)
    )


def takes_no_copy_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.dedup_index import DedupIndex

    original = DedupIndex.duplicates
    monkeypatch.setattr(DedupIndex, "duplicates", lambda self, rows: original(self, rows).slice(0, 0))


def drops_copies_uncompared(monkeypatch: pytest.MonkeyPatch) -> None:
    from streaming.duplicate_comparator import DuplicateComparator

    monkeypatch.setattr(DuplicateComparator, "conflicts", lambda self, rows, copies: ([], 0))


def loses_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows only: where a promised commit is missing the next start refuses, and no oracle is needed."""
    break_writes(monkeypatch, [("dead_letters", lambda rows, world: rows.limit(0), "x")])


WRITES = [
    Mutant("loses one row of a message", "landing", True, False, ("readings", without(f"{A2} AND metric = 'door'"))),
    Mutant("loses a message", "landing", True, True, ("readings", without(A2))),
    Mutant("stores a row twice", "landing", True, True, ("readings", doubled(f"{A2} AND metric = 'door'"))),
    Mutant("alters a value", "landing", True, False, ("readings", changed("value", A2, "value + 1"))),
    Mutant("alters a text", "landing", True, False, ("readings", changed("text", A2, "'ajar'"))),
    Mutant("alters an event time", "landing", True, False,
           ("readings", changed("event_time", A2, "event_time + INTERVAL 1 HOUR"))),
    Mutant("alters the device's time of a message", "landing", True, False,
           ("readings", changed("device_time", A2, "device_time + INTERVAL 1 SECOND"))),
    Mutant("alters when a row was received", "landing", True, True,
           ("readings", changed("received_at", A2, "received_at - INTERVAL 2 MINUTES"))),
    Mutant("stores a row in another day", "landing", True, False,
           ("readings", changed("date", f"{A2} AND metric = 'door'", "date - INTERVAL 1 DAY"))),
    Mutant("invents a row", "landing", True, False,
           ("readings", invented("metric", f"{A2} AND metric = 'door'", "'window'"))),
    Mutant("stores under another device", "landing", True, True, ("readings", changed("device", A2, "'b-{0}'"))),
    Mutant("stores under another message's number", "landing", True, True,
           ("readings", changed("message_number", A2, "message_number + 1"))),
    Mutant("stores a dead letter twice", "landing", True, True,
           ("dead_letters", doubled("reason = 'bad_json' AND device = 'c-{0}'"))),
    Mutant("does not note a dropped copy", "landing", False, True, ("duplicates", without("device = 'a-{0}'"))),
    Mutant("notes a dropped copy twice", "landing", False, False, ("duplicates", doubled("device = 'a-{0}'"))),
]  # fmt: skip
"""`breaks` is a table and a change of what is written into it."""

BATCHES = [
    Mutant("skips a batch", "landing", True, True, skips_a_batch),
    Mutant("commits a batch twice", "landing", True, True, commits_a_batch_twice),
    Mutant("takes no copy for one", "landing", True, False, takes_no_copy_for_one),
    Mutant("drops a copy with other content", "landing", True, False, drops_copies_uncompared),
    Mutant("loses dead letters", "landing", True, True, loses_dead_letters),
]
"""`breaks` patches a step of the landing."""


def _swap(where: str, make: Callable[[Any], Any]) -> Patch:
    """Replaces a name of a module by what `make` makes of it."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        module, name = where.rsplit(".", 1)
        monkeypatch.setattr(where, make(getattr(importlib.import_module(module), name)))

    return patch


def _news(change: Callable[[list[Any]], list[Any]]) -> Patch:
    """A pass of the rollups that goes on from an earlier one folds other files than it should."""

    def make(original: Any) -> Any:
        def news_since(*arguments: Any) -> Any:
            news = original(*arguments)
            if news is not None and not news.whole:
                news.files = change(news.files)
            return news

        return news_since

    return _swap("streaming.derive.rollups.changes_since", make)


def _first(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Changes the first argument of a function."""
    return lambda original: (
        lambda rows, *more, **named: original(rows if rows is None else change(rows), *more, **named)
    )


def _result(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Changes what a function returns."""
    return lambda original: lambda *given, **named: change(original(*given, **named))


def join_loses_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakehouse.append import Append

    count = Append.row_count
    monkeypatch.setattr(Append, "row_count", property(lambda self: count.fget(self) + 1))  # type: ignore[attr-defined]
    break_writes(monkeypatch, [("readings", without(f"{A2} AND metric = 'door'"), "x")])


def takes_every_day(original: Any) -> Any:
    """Retention calls every day expired."""

    def plan(state: Any, **settings: Any) -> Any:
        planned = original(state, **settings)
        return replace(planned, files=_older(state, 1, date(9999, 1, 1)), waiting={})

    return plan


def not_a(rows: Any) -> Any:
    return rows.where("device <> 'a-x'")


DERIVATION = [
    Mutant("rollups miss a commit", "derivation", False, False, _news(lambda files: files[1:])),
    Mutant("rollups fold readings twice", "derivation", False, False,
           _swap("streaming.derive.rollups.minute_partials", _result(lambda rows: rows.unionAll(rows)))),
    Mutant("rollups lose late readings", "derivation", False, False,
           _swap("streaming.derive.rollups.minute_partials",
                 _first(lambda rows: rows.where("event_time > received_at - INTERVAL 1 HOUR")))),
    Mutant("rollups forget what a window held", "derivation", False, False,
           _swap("streaming.derive.rollups_table.rows_of", _result(lambda rows: rows.limit(0)))),
    Mutant("latest passes a device over", "derivation", False, False,
           _swap("streaming.derive.latest_derivation.latest_rows", _first(not_a))),
    Mutant("latest takes the last arrival for the newest", "derivation", False, False,
           _swap("streaming.derive.latest_derivation.latest_rows",
                 _first(lambda rows: rows.withColumn("event_time", rows["received_at"])))),
    Mutant("devices passes a device over", "derivation", False, False,
           _swap("streaming.derive.devices_derivation.heard_messages", _first(not_a))),
    Mutant("the ledger passes stored readings over", "derivation", False, True,
           _swap("streaming.derive.ledger.stored_facts", _first(not_a))),
    Mutant("the ledger counts dead letters not at all", "derivation", False, True,
           _swap("streaming.derive.ledger.refused_facts", _first(lambda rows: rows.limit(0)))),
    Mutant("the ledger counts outcomes twice", "derivation", False, True,
           _swap("streaming.derive.ledger.read_outcomes", _result(lambda rows: rows.unionAll(rows)))),
    Mutant("a join loses a row", "maintenance", True, False, join_loses_a_row),
    Mutant("retention takes a day before its time", "maintenance", True, True,
           _swap("streaming.maintain.table_maintainer.plan_expiry", takes_every_day)),
]  # fmt: skip
"""`breaks` patches a step behind the landed tables."""


def _of_stream(name: str, method: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Patch:
    """Changes a method of the sink of one stream; the others go on as they are."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        from streaming.sql.sinks import StreamSink

        original = getattr(StreamSink, method)
        broken = change(original)

        def call(self: StreamSink, *arguments: Any) -> Any:
            return (broken if self._applied.name == name else original)(self, *arguments)

        monkeypatch.setattr(StreamSink, method, call)

    return patch


def _not_at_first(original: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[Any] = []

    def call(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return original(self, *arguments) if len(calls) > 1 else None

    return call


def _twice(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any) -> Any:
        original(self, *arguments)
        return original(self, *arguments)

    return call


def _rows_lost(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, append, rows, *more: original(self, append, rows.where("device NOT LIKE 'b-%'"), *more)


STREAMS = [
    Mutant("skips a batch of a stream", "sql", False, False, _of_stream("skips", "_commit", _not_at_first)),
    Mutant("commits a stream's batch twice", "sql", False, False, _of_stream("doubles", "_commit", _twice)),
    Mutant("loses rows of a stream", "sql", False, False, _of_stream("loses", "_commit", _rows_lost)),
    Mutant(
        "sends nothing to the stream's topic",
        "sql",
        False,
        False,
        _of_stream("mutes", "_send", lambda original: _quiet),
    ),
]
"""`breaks` patches the sink of the stream that the first verb names."""
STREAM_NAMES = ("skips", "doubles", "loses", "mutes")


def _quiet(self: Any, *arguments: Any) -> None:
    """Does nothing."""
