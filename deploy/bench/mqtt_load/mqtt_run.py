"""One run of a load on an MQTT broker: its processes, and the figures."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

from deploy.bench.kafka_load.client_work import ClientWork, elapsed_seconds
from deploy.bench.kafka_load.latency import merge_latencies
from deploy.bench.kafka_load.worker import START_SECONDS, LoadWorker, open_worker
from deploy.bench.kafka_load.workload import split_evenly
from deploy.bench.mqtt_load.packets import LEAST_BYTES, MOST_IN_FLIGHT
from deploy.testbed.mosquitto import MqttAddress
from ingest.contract.errors import ConfigError

__all__ = ["MqttLoad", "run_mqtt"]

_LEAD_SECONDS: Final = 0.2
_RUN_SECONDS: Final = 600.0
_SLOW_RATE: Final = 1000.0
"""Messages a second that a load without a rate reaches at least."""
MOST_PUBLISHERS: Final = 100


@dataclass(frozen=True, kw_only=True)
class MqttLoad:
    """Load that is published at QoS 1 and read by one subscriber at the same time.

    Attributes:
        topic: each publisher has one below it.
        messages: of all publishers together, without warm-up.
        message_bytes: of a payload, 16 or more: it begins with the time at which it was due, and its number.
        rate: messages per second of all publishers together, at fixed times (open loop); 0 is as fast as the window lets.
        window: messages of a publisher that are not acknowledged, at most.
        publishers: processes, each with one connection.
        warmup_messages: published before the clock starts, to a topic without a reader.

    Raises:
        ConfigError: a value is out of its range.
    """

    topic: str
    messages: int
    message_bytes: int = 100
    rate: float = 0.0
    window: int = 100
    publishers: int = 1
    warmup_messages: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("message_bytes", LEAST_BYTES, 900_000),
            ("window", 1, MOST_IN_FLIGHT),
            ("publishers", 1, MOST_PUBLISHERS),
        ):
            if not least <= getattr(self, name) <= most:
                message = f"load on {self.topic}: {name} is {getattr(self, name)}, wanted {least} to {most}"
                raise ConfigError(message)


def run_mqtt(
    load: MqttLoad, address: MqttAddress, *, on_started: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Run a load once, in processes of its own.

    Args:
        load: what is published.
        address: of the broker.
        on_started: called before the clock starts.

    Returns:
        `published`, those with a PUBACK; `received`, different ones; `lost`, published and not received, absent where that is not
        known; `unacknowledged`; `duplicates`, received again; `publish_per_second`, `receive_per_second`; `puback_p50_ms` to
        `puback_max_ms`, from due to PUBACK; `end_to_end_p50_ms` to `end_to_end_max_ms`, from due to received;
        `client_cpu_us_per_message` and `publish_client_cores` of publishers and subscriber together; with a rate `late_ms`, the
        longest time by which a message left after it was due; `curves` and `over_time`, percentiles for plots.

    Raises:
        UnavailableError: a process of the load failed; the text has its last words.
    """
    with ExitStack() as parts:
        plans = _publish_plans(load, address)
        subscriber = parts.enter_context(_open("subscribe", _subscribe_plan(load, address)))
        publishers = [parts.enter_context(_open("publish", plan)) for plan in plans]
        rate = min(load.rate or _SLOW_RATE, _SLOW_RATE)
        for worker in (subscriber, *publishers):
            worker.await_ready(START_SECONDS + 3 * load.warmup_messages / rate)
        on_started()
        begin_at = time.time() + _LEAD_SECONDS
        for worker in (subscriber, *publishers):
            worker.say(begin_at)
        seconds = _RUN_SECONDS + 3 * load.messages / (load.rate or _SLOW_RATE)
        sent = [worker.work(seconds) for worker in publishers]
        subscriber.say(sum(one.messages for one in sent))
        received = subscriber.work(seconds)
    return _figures(load, sent, received)


def _open(module: str, plan: Mapping[str, Any]) -> AbstractContextManager[LoadWorker]:
    return open_worker(f"{__package__}.{module}", plan)


def _publish_plans(load: MqttLoad, address: MqttAddress) -> list[dict[str, Any]]:
    plans: list[dict[str, Any]] = []
    parts = zip(
        split_evenly(load.messages, load.publishers), split_evenly(load.warmup_messages, load.publishers), strict=True
    )
    first = 0
    for number, (messages, warmup) in enumerate(parts):
        plan = {
            "address": asdict(address), "topic": f"{load.topic}/{number:02d}", "messages": messages,
            "warm_topic": f"{load.topic}-warm/{number:02d}", "warmup_messages": warmup, "first_number": first,
            "message_bytes": load.message_bytes, "rate": load.rate / load.publishers, "window": load.window,
        }  # fmt: skip
        plans.append(plan)
        first += messages
    return plans


def _subscribe_plan(load: MqttLoad, address: MqttAddress) -> dict[str, Any]:
    return {
        "address": asdict(address), "topic": f"{load.topic}/00", "topics": f"{load.topic}/#", "messages": load.messages,
        "client_id": f"{load.topic}-subscriber", "message_bytes": load.message_bytes,
    }  # fmt: skip


def _figures(load: MqttLoad, sent: Sequence[ClientWork], received: ClientWork) -> dict[str, Any]:
    published = sum(one.messages for one in sent)
    acks, reads = merge_latencies(one.latencies for one in sent), merge_latencies([received.latencies])
    cpu = sum(one.cpu_seconds for one in (*sent, received))
    seconds = elapsed_seconds(sent)
    found: dict[str, Any] = {
        "published": published,
        "received": received.messages,
        **_lost(load.messages, published, received.messages),
        "unacknowledged": load.messages - published,
        "duplicates": received.again,
        "publish_per_second": round(published / seconds, 1),
        "publish_client_cores": round(cpu / seconds, 3),
        "client_cpu_us_per_message": round(cpu / load.messages * 1_000_000, 3),
        **acks.figures("puback"),
        **reads.figures("end_to_end"),
    }
    if received.messages:
        reading = received.ended - min(one.began for one in sent)
        found["receive_per_second"] = round(received.messages / max(reading, 1e-6), 1)
    if load.rate:
        found["late_ms"] = round(max(one.late_ms for one in sent), 3)
    return found | {
        "curves": {"puback": acks.curve(), "end_to_end": reads.curve()},
        "over_time": {"puback": acks.over_time(), "end_to_end": reads.over_time()},
    }


def _lost(messages: int, published: int, received: int) -> dict[str, int]:
    """Return the least number of messages with a PUBACK that did not come; absent if it is not known whether any did.

    One that came without a PUBACK hides one that has a PUBACK and did not come: both are counted, not named.
    """
    lost = max(0, published - received)
    return {"lost": lost} if lost or published == messages else {}
