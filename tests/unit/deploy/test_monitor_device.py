"""What the page of one device is told: numbers to plot, texts, when it was heard, and what of a gap may be refusals."""

import threading
from typing import Any

import pytest

from deploy.monitor.dead_letters import list_dead_letters
from deploy.monitor.device_page import show_device, text_runs
from deploy.monitor.left_out_reader import LeftOutReader
from deploy.settings import Settings
from gateway.left_out import encode_left_out
from ingest.contract.errors import RetryableError
from tests.support.fleet import ago, device, flowed, letter, minute


def reading(seconds_ago: float, metric: str = "t", **values: Any) -> dict[str, Any]:
    at = ago(seconds_ago)
    return {"device": "a", "metric": metric, "event_time": at, "received_at": at, **values}


def test_a_metric_of_texts_is_listed_as_the_runs_in_which_it_stayed_the_same(small_lake: Any) -> None:
    states = ["idle", "idle", "run", "run", "run", "idle"]
    small_lake.put("devices", device("a", seen=1))
    small_lake.put(
        "readings",
        *(reading(60 - n, "state", text=text) for n, text in enumerate(states)),
        reading(5, "door", value=1.0, text="true"),
        reading(4, "mixed", value=2.0),
        reading(3, "mixed", text="broken"),
        reading(2, "note", text="<b>x</b>" * 100),
    )
    found = show_device(small_lake.root, "a", flowed((90_000, 0)))
    assert [each["metric"] for each in found["metrics"]] == ["mixed", "door"]
    assert [each["value"] for each in found["metrics"]] == [[2.0], [1.0]]
    listed = [(each["metric"], each["text"], each["count"]) for each in found["texts"]]
    assert [each[0] for each in listed] == ["note", "mixed", "state", "state", "state"]
    assert listed[1:] == [("mixed", "broken", 1), ("state", "idle", 1), ("state", "run", 3), ("state", "idle", 2)]
    assert listed[0][1] == ("<b>x</b>" * 100)[:400]
    run = found["texts"][3]
    assert 1.5 < run["last_at"] - run["first_at"] < 2.5


def test_runs_of_nothing_are_none() -> None:
    assert text_runs("m", [], []) == []


def test_a_device_was_heard_when_its_newest_reading_or_dead_letter_came(small_lake: Any) -> None:
    small_lake.put("devices", device("a", seen=400), device("b", seen=400), device("c", seen=400))
    small_lake.put("readings", reading(20, value=1.0), reading(1, value=9.0, flags=["retained"], retained=True))
    small_lake.put("dead_letters", letter(1, device="b", received_at=ago(30)))

    def told(name: str) -> tuple[int, bool]:
        found = show_device(small_lake.root, name, flowed((90_000, 0)))
        assert found["device"]["silent_seconds"] == found["silent_seconds"]
        assert abs(found["device"]["last_seen"] + found["silent_seconds"] - ago(0).timestamp()) < 5
        return int(found["silent_seconds"]) // 10 * 10, found["is_silent"]

    assert [told(name) for name in ("a", "b", "c")] == [(20, False), (30, False), (400, True)]


def test_a_device_whose_first_row_is_still_to_come_has_its_plots(small_lake: Any) -> None:
    small_lake.put("devices", device("other", seen=3))
    small_lake.put("readings", reading(3, value=1.0))
    found = show_device(small_lake.root, "a", flowed((90_000, 0)))
    assert (found["device"], found["is_silent"]) == (None, None)
    assert [each["value"] for each in found["metrics"]] == [[1.0]]


def test_messages_that_nobody_could_read_are_counted_beside_a_gap(small_lake: Any) -> None:
    """Once per message, and never one whose number was known when it was refused."""
    small_lake.put("devices", device("a", seen=3))
    small_lake.put("ledger", minute("a", received=8, gap=2))
    numbers = iter(range(100))

    def refused(reason: str, **changes: Any) -> dict[str, Any]:
        number = next(numbers)
        return letter(
            number,
            device="a",
            reason=reason,
            **{"gateway": "g", "gateway_epoch": 1, "message_number": number, **changes},
        )

    small_lake.put(
        "dead_letters",
        refused("bad_json"),
        refused("not_object"),
        refused("not_object", message_number=1),
        refused("out_of_range"),
        refused("bad_encoding", partial=True),
        refused("bad_json", received_at=ago(100_000)),
    )
    assert show_device(small_lake.root, "a", flowed((90_000, 0)))["refused_unread"] == 2


def test_dead_letters_are_counted_by_cause_and_within_it_by_device(small_lake: Any) -> None:
    given = [("bad_json", "a"), ("bad_json", "a"), ("bad_json", "b"), ("bad_json", None), ("no_route", None)]
    small_lake.put("dead_letters", *(letter(n, reason=r, device=d) for n, (r, d) in enumerate(given)))
    causes = list_dead_letters(small_lake.root, None, None, 10)["causes"]
    assert [(each["reason"], each["letters"], each["devices"], each["redriven"]) for each in causes] == [
        ("bad_json", 4, 2, 0),
        ("no_route", 1, 0, 0),
    ]
    assert sorted((str(each["device"]), each["letters"]) for each in causes[0]["by_device"]) == [
        ("None", 1),
        ("a", 2),
        ("b", 1),
    ]
    assert all(isinstance(each["last_received_at"], float) for each in (*causes, *causes[0]["by_device"]))
    assert [each["reason"] for each in list_dead_letters(small_lake.root, "no_route", None, 10)["causes"]] == [
        "bad_json",
        "no_route",
    ]
    assert [each["letters"] for each in list_dead_letters(small_lake.root, None, "b", 10)["causes"]] == [1]


def test_older_letters_follow_each_other_without_a_hole(small_lake: Any) -> None:
    small_lake.put("dead_letters", *(letter(n, received_at=ago(100 + n // 3)) for n in range(10)))
    pages, before = [], None
    while page := [each["id"] for each in list_dead_letters(small_lake.root, None, None, 4, before)["letters"]]:
        pages.append(page)
        before = page[-1]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert len({each for page in pages for each in page}) == 10
    assert list_dead_letters(small_lake.root, None, None, 4, "9-9")["letters"] == []


ROUTES = {
    "[[routes]] number 1 (site/a/#)": {"x": 3, "y": 5},
    "[[routes]] number 2 (site/#)": {"z": 9},
    "[[routes]] number 3 (refused/+)": {"r": 1},
}


def test_the_fields_that_the_routes_of_a_device_leave_out_are_listed(
    small_lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first route of each of its topics, those of its dead letters too; Kafka is asked once a minute at most."""
    asked, now, state = [], [0.0], [("tidegate/gw-1/left_out", encode_left_out(ROUTES, 5000))]

    def read_state(_kafka: Any, *, wanted: Any) -> list[tuple[str, bytes]]:
        asked.append(threading.current_thread())
        if not state:
            raise RetryableError("Kafka is away")
        return [(key, value) for key, value in [*state, ("homie/x", b"{}")] if wanted(key)]

    monkeypatch.setattr("ingest.gateway_state.read_state", read_state)
    mapping = {"keep": ["t"]}
    routes = [{"filter": name, "mapping": mapping} for name in ("site/a/#", "site/#", "refused/+")]
    settings = Settings.model_validate({"routes": routes})
    left_out = LeftOutReader(lambda: settings, clock=lambda: now[0])
    small_lake.put("readings", reading(3, value=1.0, mqtt_topic="site/a/s"), reading(2, value=1.0, mqtt_topic="none"))
    small_lake.put("readings", {**reading(3, value=1.0, mqtt_topic="site/b/s"), "device": "b"})
    small_lake.put("dead_letters", letter(1, device="a", topic="refused/a"))

    def listed(device: str) -> Any:
        found = show_device(small_lake.root, device, flowed((90_000, 0)), left_out)["left_out"]
        return found if found is None else [(row["field"], row["count"], row["since"]) for row in found]

    assert listed("a") == [("y", 5, 5.0), ("x", 3, 5.0), ("r", 1, 5.0)]
    assert listed("b") == [("z", 9, 5.0)]
    assert listed("nobody") == []
    assert len(asked) == 1
    assert asked[0] is not threading.current_thread()
    (row,) = show_device(small_lake.root, "b", flowed((90_000, 0)), left_out)["left_out"]
    assert (row["gateway"], row["route"]) == ("gw-1", "[[routes]] number 2 (site/#)")
    assert row["next"] == 'Add `"z"` to `keep`, in the mapping of [[routes]] number 2 (site/#).'
    state.clear()
    now[0] = 61.0
    listed("b")
    asked[-1].join(5)
    assert (listed("b"), len(asked)) == (None, 2), "what is not known is no empty list"
    state.append(("tidegate/gw-1/left_out", encode_left_out({}, 0)))
    now[0] = 122.0
    assert (listed("b"), len(asked)) == ([], 3)
