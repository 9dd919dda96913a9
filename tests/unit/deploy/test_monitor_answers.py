"""What the page asks the monitor: one device, its dead letters, a redrive; hostile texts come back as they are."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.monitor.device_page import show_device
from deploy.monitor.fleet_probe import FleetProbe
from deploy.monitor.page_answers import make_page_api
from deploy.monitor.silent_devices import HealthyFlowSpans
from deploy.settings import Settings
from monitoring.page.page_api import PageApi, PageError
from tests.support.fleet import ago, device, flowed, letter, minute
from tests.support.naughty import NAUGHTY

HOSTILE = sorted(
    {
        text
        for text in [
            *NAUGHTY,
            "'; DROP TABLE devices; --", "x' OR '1'='1", "decode(unhex('27'))", "\\' OR 1=1", '"devices"', "devices ledger",
            "<script>alert(1)</script>", "</script>", "\u2028\u2029", "a\x00b", "%00", "${jndi:ldap://x}", "*/ SELECT 1 /*",
        ]
        if text and len(text) <= 1024
    }
)  # fmt: skip


@pytest.fixture
def answers(small_lake: Any, monkeypatch: pytest.MonkeyPatch) -> PageApi:
    monkeypatch.setattr("ingest.gateway_state.read_state", lambda _kafka: [])
    settings = Settings.model_validate({"lake": {"root": small_lake.root}})
    return make_page_api(settings, threading.Event(), flowed((90_000, 0)))


def test_hostile_device_ids_come_back_as_they_are_and_find_themselves_alone(small_lake: Any, answers: PageApi) -> None:
    """All naughty strings as ids, as metrics and as topics: through SQL and JSON unchanged, and none is any other."""
    small_lake.put("devices", *(device(text, seen=10 + n) for n, text in enumerate(HOSTILE)))
    small_lake.put(
        "readings",
        *(
            {"device": text, "metric": text, "value": 1.5, "received_at": ago(10), "event_time": ago(10)}
            for text in HOSTILE
        ),
    )
    small_lake.put("ledger", *(minute(text, received=1) for text in HOSTILE))
    small_lake.put("dead_letters", *(letter(n, device=text, topic=text) for n, text in enumerate(HOSTILE)))
    for text in HOSTILE[::71]:
        found = json.loads(json.dumps(answers.device(text)))
        assert found["device"]["device"] == text
        assert [each["metric"] for each in found["metrics"]] == [text]
        assert found["ledger"]["received"] == 1
        assert [each["mqtt_topic"] for each in found["dead_letters"]] == [text]
        listed = answers.dead_letters(None, text, 10, None)
        assert [(each["device"], each["letters"]) for each in listed["causes"][0]["by_device"]] == [(text, 1)]
        assert answers.dead_letters(text, None, 10, None)["letters"] == []
        assert text in {each["device"] for each in answers.devices(text, 500)["devices"]}
    probe = FleetProbe(small_lake.root, HealthyFlowSpans())
    probe.look()
    assert {each["device"] for each in probe.devices["talkers"]} <= set(HOSTILE)


def test_hostile_payloads_are_text_of_an_answer(small_lake: Any, answers: PageApi) -> None:
    payloads = [text.encode("utf-8", "surrogatepass") for text in HOSTILE[::41]] + [b"\xff\xfe\x00\x1b[31m", b""]
    small_lake.put("dead_letters", *(letter(n, payload=payload, got="<b>") for n, payload in enumerate(payloads)))
    for number, payload in enumerate(payloads):
        found = json.loads(json.dumps(answers.dead_letter(f"0-{number}")))
        import base64

        assert base64.b64decode(found["payload_base64"]) == payload
        assert found["got"] == "<b>"
        assert all(isinstance(line, str) and line.isprintable() for line in found["payload_lines"])
        assert found["next"]
        assert isinstance(found["received_at"], float)


def test_one_device_with_its_last_readings(small_lake: Any, answers: PageApi) -> None:
    rows = [
        {"device": "a", "metric": metric, "value": float(n), "unit": "Cel", "event_time": at, "received_at": at}
        for metric in ("temperature", "humidity")
        for n, at in enumerate(ago(1000 - n) for n in range(250))
    ]
    small_lake.put("devices", device("a", seen=700, skew=12, last_rejected_because="stuck", last_rejected_at=ago(800)))
    small_lake.put(
        "readings", *rows, {"device": "b", "metric": "other", "value": 1.0}, {**rows[0], "value": float("nan")}
    )
    found = answers.device("a")
    assert [each["metric"] for each in found["metrics"]] == ["humidity", "temperature"]
    for each in found["metrics"]:
        assert len(each["at"]) == len(each["value"]) == 200
        assert each["at"] == sorted(each["at"])
        assert each["value"][-1] == 249
        assert each["unit"] == "Cel"
    assert found["device"]["last_rejected_because"] == "stuck"
    assert 700 <= found["silent_seconds"] < 730
    assert found["is_silent"] is True
    nobody = answers.device("nobody")
    assert (nobody["device"], nobody["metrics"], nobody["dead_letters"]) == (None, [], [])
    assert nobody["is_silent"] is None


def test_a_device_is_silent_on_its_page_where_the_list_says_so(small_lake: Any) -> None:
    small_lake.put(
        "devices",
        device("silent", seen=400),
        device("slow", seen=400, interval=100.0),
        device("never learned", seen=400, interval=None),
        device("gone for days", seen=300_000, first_seen=ago(500_000)),
        device("came and went", seen=400, interval=1.0, first_seen=ago(402)),
    )

    def told(flow: HealthyFlowSpans) -> list[bool | None]:
        names = ("silent", "slow", "never learned", "gone for days", "came and went")
        return [show_device(small_lake.root, name, flow)["is_silent"] for name in names]

    assert told(flowed((90_000, 0))) == [True, False, None, None, None]
    assert told(flowed((90_000, 395), flowing=False)) == [False, False, None, None, None]


def test_many_metrics_and_lone_numbers_are_bounded_and_json(small_lake: Any, answers: PageApi) -> None:
    values = [float("nan"), float("inf"), 1.0]
    small_lake.put("devices", device("a", seen=1))
    small_lake.put(
        "readings",
        *({"device": "a", "metric": f"m{n}", "value": v, "received_at": ago(5)} for n in range(30) for v in values),
    )
    found = answers.device("a")
    json.dumps(found, allow_nan=False)
    assert len(found["metrics"]) == 12


@pytest.mark.parametrize("wrong", ["0-1' OR true --", "", "a b", "0-1\n", "é", "x" * 301, "0-1;"])
def test_an_id_that_is_none_is_refused_before_it_is_sql(answers: PageApi, wrong: str) -> None:
    with pytest.raises(PageError) as told:
        answers.dead_letter(wrong)
    assert told.value.status == 400
    with pytest.raises(PageError) as told:
        answers.redrive([wrong], True)
    assert told.value.status == 400


def test_a_letter_that_is_not_there_is_told(answers: PageApi) -> None:
    with pytest.raises(PageError, match="no dead letter 0-9") as told:
        answers.dead_letter("0-9")
    assert told.value.status == 404


def test_redrives_are_made_of_the_letters_asked_for_one_at_a_time(
    answers: PageApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    running, go = threading.Event(), threading.Event()

    def run(_settings: Any, **options: Any) -> Any:
        asked.append(options)
        running.set()
        assert go.wait(30)
        return SimpleNamespace(to_dict=lambda: {"letters": 2})

    monkeypatch.setattr("deploy.dlq.redrive.run_redrive", run)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(answers.redrive(["0-1", "topic.x-0-2"], True)))
    thread.start()
    assert running.wait(30)
    with pytest.raises(PageError, match="Another redrive is running"):
        answers.redrive(["0-1"], False)
    go.set()
    thread.join(30)
    assert found == [{"letters": 2, "unknown": ["0-1", "topic.x-0-2"]}]
    assert asked[0]["where"] == "id IN ('0-1', 'topic.x-0-2')"
    assert (asked[0]["dry_run"], asked[0]["again"]) == (True, False)
    assert answers.redrive(["0-1"], False) == {"letters": 2, "unknown": ["0-1"]}


def test_a_dry_run_over_real_tables(small_lake: Any, answers: PageApi) -> None:
    named = {"gateway": "g", "gateway_epoch": 1, "message_number": 1}
    payload = b'{"values": {"t": 1}}'
    small_lake.put("dead_letters", letter(1, topic="tidegate/v1/a/readings", payload=payload, **named))
    found = answers.redrive(["0-7", "0-1", "0-8"], True)
    assert (found["letters"], found["accepted"], found["dry_run"]) == (1, 1, True)
    assert found["unknown"] == ["0-7", "0-8"], "an id that no letter has must not look like one that was judged"
