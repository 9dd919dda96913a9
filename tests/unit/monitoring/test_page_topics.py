"""The routes of topics: what they hand on, what they refuse, and that a Kafka that hangs keeps no other answer waiting."""

import threading
from collections.abc import Callable
from typing import Any

from monitoring.page.page_api import PageError, TopicRequest


def test_the_question_is_handed_on_and_its_answer_is_json(make_page_stage: Callable[..., Any]) -> None:
    asked: list[TopicRequest] = []

    def topic(wanted: TopicRequest) -> dict[str, Any]:
        asked.append(wanted)
        return {"records": [], "topic": wanted.name}

    stage = make_page_stage(answers={"topic": topic, "topics": lambda: {"topics": []}})
    assert stage.ask("/api/topics").body == b'{"topics":[]}'
    answer = stage.ask("/api/topic?name=telemetry.readings&partition=2&key=%C3%A4&limit=7&from=oldest")
    assert (answer.status, answer.body) == (200, b'{"records":[],"topic":"telemetry.readings"}')
    assert asked == [TopicRequest("telemetry.readings", "oldest", 0, None, 2, "ä", 7)]


def test_what_cannot_be_meant_asks_nobody_and_refusals_are_one_sentence(make_page_stage: Callable[..., Any]) -> None:
    def topic(wanted: TopicRequest) -> dict[str, Any]:
        raise PageError(404, f"Kafka has no topic {wanted.name}")

    stage = make_page_stage(answers={"topic": topic})
    refused = stage.ask("/api/topic?name=telemetry.readings&limit=9999")
    assert (refused.status, refused.body) == (400, b'{"error":"Invalid ?limit=: use a whole number from 1 to 200."}')
    missing = stage.ask("/api/topic?name=x")
    assert (missing.status, missing.body) == (404, b'{"error":"Kafka has no topic x"}')
    assert stage.ask("/api/topic?name=x", method="POST").status == 405


def test_a_kafka_that_hangs_keeps_no_devices_answer_waiting(
    make_page_stage: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    never, hung = threading.Event(), threading.Semaphore(0)

    def topics() -> dict[str, Any]:
        hung.release()
        never.wait(60)
        return {}

    stage = make_page_stage(answers={"topics": topics, "device": lambda name: {"device": name}})
    askers = [threading.Thread(target=stage.ask, args=("/api/topics",), daemon=True) for _ in range(4)]
    for asker in askers:
        asker.start()
    assert hung.acquire(timeout=60)
    assert hung.acquire(timeout=60)
    assert stage.ask("/api/device?device=a").body == b'{"device":"a"}'
    never.set()
    for asker in askers:
        asker.join(60)
