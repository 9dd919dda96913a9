"""Figures of derived streams: output events, compared one by one with the events of the generator. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from deploy.bench.kafka_load.derived import DerivedRecord
from deploy.bench.meetup import COUNTRY, ExpectedEvent, MeetupEvents
from ingest.contract.errors import FatalError

__all__ = ["DerivedOutput", "derived_figures"]

_ENOUGH: Final = 100
"""Records of which one lies above the p99."""


@dataclass(frozen=True)
class DerivedOutput:
    """Result of one run: records of the topics and devices of the tables' rows by stream, country before city.

    A stream that writes no table has no entry in `rows`.

    `due_at` says when a message was due, None where they came as fast as they could; `disturbed_at` is when the run
    was disturbed, None where it was not.
    """

    records: Mapping[str, Sequence[DerivedRecord]]
    rows: Mapping[str, Sequence[str]]
    due_at: Callable[[int], float] | None = None
    disturbed_at: float | None = None


def derived_figures(meetup: MeetupEvents, outcome: DerivedOutput) -> dict[str, float]:
    """Latencies, sizes and faults of both streams.

    Returns:
        `mean_ms`, `p50_ms`, `p99_ms` from due to read, of both streams' records together, and of each as `country_…`, `city_…`;
        a p99 of fewer than 100 records is left out.
        `gateway_ms` (due to received by the gateway), `country_step_ms` (received to read from the country's topic) and
        `city_step_ms` (from there to read from the city's), means: the parts of the way.
        `country_records`, `country_megabytes` (of the events that it is made of), `country_topic_bytes` (keys and values),
        and the same of the city.
        `lost`, `doubled`: of both topics and both tables; in a topic without what its headers show as a replay, which is
        `replayed`. `wrong`: records that differ from what the generator made. `recovered_ms`: from the disturbance to the first
        record that was due after it and came after the longest pause since then.

    Raises:
        FatalError: nothing came out.
    """
    latencies: list[float] = []
    found: dict[str, float] = {}
    faults: Counter[str] = Counter({"lost": 0, "doubled": 0, "replayed": 0, "wrong": 0})
    first: list[dict[str, DerivedRecord]] = []
    wanted = (list(meetup.of_country()), list(meetup.of_city()))
    for label, name, expected in zip(("country", "city"), outcome.records, wanted, strict=True):
        mine = [one for one in outcome.records[name] if meetup.number(one.key) is not None]
        kept = _without_replays(mine)
        seen = {one.key: one for one in reversed(kept)}
        first.append(seen)
        made = {meetup.event_id(one.number): one for one in expected}
        faults["replayed"] += len(mine) - len(kept)
        faults["wrong"] += sum(not _is_as_made(meetup, one, made, outcome.due_at) for one in kept)
        counts = [Counter(one.key for one in kept)]
        if name in outcome.rows:
            counts.append(Counter(device for device in outcome.rows[name] if meetup.number(device) is not None))
        for counted in counts:
            faults["lost"] += len(made.keys() - counted.keys())
            faults["doubled"] += sum(count - 1 for count in counted.values())
        own = [one.seen_at - _clock(one) for one in seen.values()]
        latencies += own
        found |= {f"{label}_{figure}": value for figure, value in _times(own).items()}
        found[f"{label}_records"] = float(len(seen))
        found[f"{label}_megabytes"] = round(len(seen) * meetup.event_bytes / 1e6, 6)
        found[f"{label}_topic_bytes"] = float(sum(one.bytes for one in seen.values()))
    if not latencies:
        message = f"the streams returned none of {meetup.count} events; see `tidegate streams ls`"
        raise FatalError(message)
    return {**_times(latencies), **found, **_steps(*first), **_recovered(first[0], outcome), **dict(faults)}


def _without_replays(records: Sequence[DerivedRecord]) -> list[DerivedRecord]:
    """Return the records for a reader of the topic that drops those with the headers of an earlier record."""
    known: set[tuple[str, ...]] = set()
    kept = []
    for one in records:
        if one.batch not in known:
            known.add(one.batch)
            kept.append(one)
    return kept


def _is_as_made(
    meetup: MeetupEvents, one: DerivedRecord, made: Mapping[str, ExpectedEvent], due_at: Callable[[int], float] | None
) -> bool:
    expected, value = made.get(one.key), one.value
    if expected is None:
        return False
    fields: dict[str, Any] = {
        "device": one.key, "event": expected.event, "country": COUNTRY, "city": expected.city,
    }  # fmt: skip
    whole = set(value) == {*fields, "message_id", "event_time", "received_at"}
    as_due = due_at is None or round(_clock(one) * 1000) == int(due_at(expected.number) * 1000)
    return whole and as_due and all(value[name] == text for name, text in fields.items())


def _clock(one: DerivedRecord) -> float:
    """Return the time at which the event was due; without a pace, the time at which it was created for sending."""
    return _instant(one.value["event_time"])


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _times(seconds: Sequence[float]) -> dict[str, float]:
    """A p99 of too few records would only be the highest of them."""
    if not seconds:
        return {}
    ascending = sorted(seconds)

    def rank(share: float) -> float:
        return round(ascending[max(0, math.ceil(share * len(ascending)) - 1)] * 1000, 1)

    return {
        "mean_ms": round(sum(ascending) / len(ascending) * 1000, 1),
        "p50_ms": rank(0.5),
        **({"p99_ms": rank(0.99)} if len(ascending) >= _ENOUGH else {}),
    }


def _steps(country: Mapping[str, DerivedRecord], city: Mapping[str, DerivedRecord]) -> dict[str, float]:
    def mean_ms(seconds: Sequence[float]) -> float:
        return round(sum(seconds) / len(seconds) * 1000, 1)

    steps = {
        "gateway_ms": [_instant(one.value["received_at"]) - _clock(one) for one in country.values()],
        "country_step_ms": [one.seen_at - _instant(one.value["received_at"]) for one in country.values()],
        "city_step_ms": [one.seen_at - country[key].seen_at for key, one in city.items() if key in country],
    }
    return {name: mean_ms(seconds) for name, seconds in steps.items() if seconds}


def _recovered(country: Mapping[str, DerivedRecord], outcome: DerivedOutput) -> dict[str, float]:
    """The first record that was due after the disturbance may come before anything stops: a disk takes a while to be full."""
    at = outcome.disturbed_at
    if at is None:
        return {}
    times = sorted(one.seen_at for one in country.values())
    pauses = [(later - max(earlier, at), later) for earlier, later in pairwise([at, *times]) if later > at]
    _, again = max(pauses, default=(0.0, at))
    later = [one.seen_at for one in country.values() if _clock(one) > at and one.seen_at >= again]
    return {"recovered_ms": round((min(later) - at) * 1000, 1)} if later else {}
