"""What a device hears of its refusals: what is in it, how much of it, and where it may be sent."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.decoders.shape import Reply
from gateway.gateway_settings import GatewaySettings, ReceiptSettings, RouteSettings
from gateway.replies import receipts as module
from gateway.replies.receipts import DeviceReceipts, make_receipts, receipt_topic
from gateway.replies.rejection import Rejection
from gateway.routes import compile_routes
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason
from monitoring.metrics.gateway import GatewayMetrics

pytestmark = pytest.mark.promise("P5")

AT_US = 1_795_830_000_123_000


class Rig:
    """Receipts with a clock of their own; `told` gives what goes out as (topic, message)."""

    def __init__(self, registry: CollectorRegistry, routes: tuple[str, ...] = (), **settings: Any) -> None:
        self.now = 100.0
        self._registry = registry
        metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=())
        table = compile_routes(tuple(RouteSettings(filter=text) for text in routes))
        self.receipts = DeviceReceipts(ReceiptSettings(**settings), metrics, table, clock=lambda: self.now)

    def of(self, *refusals: Rejection) -> list[Reply]:
        return self.receipts.of(list(refusals), AT_US)

    def told(self, *refusals: Rejection) -> list[tuple[str, Any]]:
        return [(reply.topic, json.loads(reply.payload)) for reply in self.of(*refusals)]

    def held_back(self, why: str) -> float | None:
        return self._registry.get_sample_value("tidegate_gateway_receipts_held_back_total", {"why": why})


def refusal(device: str | None = "attic", **more: Any) -> Rejection:
    reject = Reject(Reason.WRONG_TYPE, "$.values.temp", '"warm"', "a number", profile="room@2")
    values = {"message_id": "bs:1:7", "topic": f"tidegate/v1/{device}/readings"} | more
    return Rejection(
        device, more.pop("reject", reject), **{key: value for key, value in values.items() if key != "reject"}
    )


@pytest.fixture
def rig(registry: CollectorRegistry) -> Rig:
    return Rig(registry)


def test_a_receipt_says_what_was_refused_and_what_was_wanted(rig: Rig) -> None:
    assert rig.told(refusal()) == [
        (
            "tidegate/receipts/attic",
            {
                "reason": "wrong_type", "path": "$.values.temp", "got": '"warm"', "wanted": "a number",
                "profile": "room@2", "message_id": "bs:1:7", "topic": "tidegate/v1/attic/readings",
                "received_at": "2026-11-28T01:40:00.123Z", "partial": False, "count": 1,
            },
        )
    ]  # fmt: skip


def test_refused_parts_of_one_message_are_one_receipt_and_messages_are_each_one(rig: Rig) -> None:
    parts = [refusal(partial=True) for _ in range(3)]
    other = refusal(partial=True, message_id="bs:1:8")
    found = rig.told(*parts, other, refusal(message_id=None), refusal(message_id=None))
    assert [told["count"] for _, told in found] == [3, 1, 1, 1]


def test_a_device_that_floods_gets_its_rate_and_then_one_summary(rig: Rig) -> None:
    assert len(rig.told(*[refusal() for _ in range(100)])) == 5
    assert rig.held_back("device") == 95
    rig.now += 0.5
    assert rig.receipts.tick() == []
    rig.now += 0.6
    (summary,) = rig.receipts.tick()
    assert json.loads(summary.payload)["held_back"] == 94
    rig.now += 60
    assert rig.receipts.tick() == []
    ((_, later),) = rig.told(refusal())
    assert "held_back" not in later


def test_what_was_held_back_is_told_with_the_next_receipt(rig: Rig) -> None:
    rig.of(*[refusal() for _ in range(8)])
    rig.now += 1.1
    ((_, told),) = rig.told(refusal())
    assert told["held_back"] == 3


def test_one_device_takes_nothing_from_another_and_all_together_are_bounded(registry: CollectorRegistry) -> None:
    rig = Rig(registry, per_second=10)
    rig.of(*[refusal("loud") for _ in range(1000)])
    assert [topic for topic, _ in rig.told(refusal("quiet"))] == ["tidegate/receipts/quiet"]
    rig.now += 2
    assert len(rig.of(*[refusal(f"d{n}") for n in range(1000)])) == 20
    assert rig.held_back("total") == 980


def test_ever_new_response_topics_take_nothing_from_others(registry: CollectorRegistry) -> None:
    rig = Rig(registry, per_second=10)
    for device in ("loud", None):
        for n in range(100):
            rig.of(refusal(device, response_topic=f"tidegate/receipts/loud/{n}"))
    assert [topic for topic, _ in rig.told(refusal("quiet"))] == ["tidegate/receipts/quiet"]


def test_memory_is_bounded_by_devices(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DEVICES", 50)
    for n in range(500):
        rig.of(*[refusal(f"device-{n}") for _ in range(8)])
    assert len(rig.receipts._buckets) == 50
    assert rig.receipts._holding <= set(rig.receipts._buckets)
    rig.now += 1000
    assert len(rig.receipts.tick()) <= 50


@pytest.mark.parametrize(
    ("device", "topic"),
    [
        ("attic", "tidegate/receipts/attic"),
        ("site/a+#", "tidegate/receipts/site%2Fa%2B%23"),
        ("50%", "tidegate/receipts/50%25"),
        ("Küche", "tidegate/receipts/Küche"),
    ],
)
def test_a_device_id_is_one_safe_segment(device: str, topic: str) -> None:
    assert receipt_topic(device) == topic


def test_a_response_topic_gets_the_receipt_with_the_correlation_data_and_the_devices_own_one_too(rig: Rig) -> None:
    asked = refusal(response_topic="tidegate/receipts/attic/answers", correlation=b"\x00\x07")
    plain, answer = rig.of(asked)
    assert (plain.topic, plain.correlation) == ("tidegate/receipts/attic", None)
    assert (answer.topic, answer.correlation) == ("tidegate/receipts/attic/answers", b"\x00\x07")
    (both,) = rig.of(refusal(response_topic="tidegate/receipts/attic", correlation=b"x"))
    assert both.correlation == b"x"


def test_without_a_device_only_a_response_topic_can_be_told(rig: Rig) -> None:
    assert rig.of(refusal(None)) == []
    (answer,) = rig.of(refusal(None, response_topic="tidegate/receipts/me", reject=Reject(Reason.NO_ROUTE)))
    assert answer.topic == "tidegate/receipts/me"


@pytest.mark.parametrize(
    "topic",
    [
        "cmnd/other/POWER", "homeassistant/x/set", "$SYS/x", "$share/g/tidegate/receipts/x", "", "tidegate/receipts/",
        "tidegate/receipts", "tidegate/receipts/#", "tidegate/receipts/+/x", "tidegate/receipts/a\0b",
        "tidegate/receipts/" + "x" * 600, "tidegate/v1/other/readings", "tidegate/receipts/a\nb",
    ],
)  # fmt: skip
def test_no_device_can_make_us_publish_elsewhere(registry: CollectorRegistry, topic: str) -> None:
    rig = Rig(registry)
    assert [reply.topic for reply in rig.of(refusal(response_topic=topic))] == ["tidegate/receipts/attic"]
    assert rig.held_back("address") == 1


def test_a_setting_allows_more_response_topics_but_none_that_would_come_back_as_a_reading(
    registry: CollectorRegistry,
) -> None:
    rig = Rig(registry, ("answers/loop/#",), response_topics=["answers/#"])
    (_, allowed) = rig.of(refusal(response_topic="answers/attic"))
    assert allowed.topic == "answers/attic"
    assert len(rig.of(refusal(response_topic="answers/loop/attic"))) == 1
    native = Rig(CollectorRegistry(), response_topics=["#"])
    assert len(native.of(refusal(response_topic="tidegate/v1/other/readings"))) == 1


def test_a_hostile_text_or_correlation_is_cut(rig: Rig) -> None:
    hostile = Reject(Reason.BAD_JSON, "$." + "x" * 10_000, "\x1b[2J\udc80" + "y" * 10_000, None)
    more = {"response_topic": "tidegate/receipts/x", "correlation": b"c" * 60_000, "topic": "t" * 60_000}
    for reply in rig.of(refusal(reject=hostile, message_id="m" * 10_000, **more)):
        assert len(reply.payload) < 2000
        assert b"\x1b" not in reply.payload
        assert reply.correlation is None


def test_what_waits_to_be_told_is_small_too(rig: Rig) -> None:
    hostile = Reject(Reason.BAD_JSON, "$." + "x" * 60_000, "y" * 60_000, "z" * 60_000)
    long = "t" * 60_000
    rig.of(*[refusal(reject=hostile, correlation=b"c" * 60_000, topic=long, message_id=long) for _ in range(9)])
    (bucket,) = rig.receipts._buckets.values()
    assert len(repr(bucket.waiting)) < 2000


def test_switched_off_nobody_is_told(registry: CollectorRegistry) -> None:
    metrics = GatewayMetrics(registry, reasons=Reason, ignored_reasons=())
    off = make_receipts(ReceiptSettings(enabled=False), (), GatewaySettings(), metrics)
    assert (off.of([refusal()], AT_US), off.tick()) == ([], [])
    on = make_receipts(ReceiptSettings(response_topics=("answers/#",)), (), GatewaySettings(), metrics)
    assert len(on.of([refusal(response_topic="answers/x")], AT_US)) == 2
