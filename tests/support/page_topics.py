"""Topics and records as the page is told of them; `from tests.support.page_topics import a_record`."""

import json
import threading
import time
from typing import Any

READINGS = "telemetry.readings"
PARTITIONS = 3
RECORDS = 120


def a_piece(content: str | None, **changes: Any) -> dict[str, Any] | None:
    """A key, a value or a header's value."""
    if content is None:
        return None
    return {"text": content, "bytes": len(content.encode("utf-8", "replace")), "cut": False, **changes}


def a_record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """One record of `telemetry.readings`; a higher number is an older one."""
    at = time.time() - number
    device = f"pump-{number % 30}"
    value = {
        "v": 1,
        "gateway": "gw-1",
        "epoch": 1_764_000_000_000,
        "number": 9000 - number,
        "received_us": int(at * 1_000_000),
        "topic": f"tidegate/v1/{device}/readings",
        "device": device,
        "readings": [{"metric": "temperature", "value": 61.5, "unit": "°C"}, {"metric": "state", "text": "open"}],
        "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {
        "partition": number % PARTITIONS,
        "offset": 1_204_331 - number // PARTITIONS,
        "at_ms": int(at * 1000),
        "time_type": "append",
        "size_bytes": len(text.encode()) + len(device),
        "key": a_piece(device),
        "headers": [],
        "value": a_piece(text),
        **changes,
    }


def a_topic(name: str = READINGS, partitions: int = PARTITIONS, **changes: Any) -> dict[str, Any]:
    """One topic with its partitions."""
    now = time.time() * 1000
    return {
        "topic": name,
        "policy": "delete",
        "retention_seconds": 604_800.0,
        "retention_bytes": 10 * 1024**3,
        "time_type": "append",
        "min_in_sync": 1,
        "partitions": [
            {
                "partition": number,
                "first": 4331 + number,
                "next": 1_204_332 + number,
                "records": 1_200_001,
                "leader": 1,
                "replicas": 1,
                "in_sync": 1,
                "oldest_ms": now - 86_400_000 * 3,
                "newest_ms": now - 400 * number,
            }
            for number in range(partitions)
        ],
        **changes,
    }


def normal_topics() -> list[dict[str, Any]]:
    """Those of a run."""
    compacted = {"policy": "compact", "retention_seconds": None, "retention_bytes": None}
    return [
        a_topic("telemetry.dead-letters", 1),
        a_topic("telemetry.gateway-state", 1, **compacted),
        a_topic("telemetry.outcomes", 1),
        a_topic(),
        a_topic("telemetry.stream.hot", 1),
    ]


class ScriptedTopics:
    """What Kafka would answer, in attributes that a test writes; `asked` are the questions for records, which wait at `gate`."""

    def __init__(self) -> None:
        self.topics = normal_topics()
        self.records = [a_record(number) for number in range(RECORDS)]
        self.asked: list[Any] = []
        self.changes: dict[str, Any] = {}
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def listed(self) -> dict[str, Any]:
        """As `/api/topics` answers."""
        if self.fault:
            raise self.fault
        return {"topics": self.topics}

    def look(self, wanted: Any) -> dict[str, Any]:
        """As `/api/topic` answers; its places are indices of the list of records, under the name of partition 0."""
        self.asked.append(wanted)
        self.gate.wait(60)
        if self.fault:
            raise self.fault
        fits = [
            each
            for each in self.records
            if wanted.partition in (None, each["partition"])
            and (wanted.key is None or (each["key"] or {}).get("text") == wanted.key)
        ]
        place = (wanted.places or {}).get(0, 0)
        first = {"before": place, "after": max(0, place - wanted.limit), "oldest": len(fits) - wanted.limit}.get(
            wanted.begin, 0
        )
        last = place if wanted.begin == "after" else first + wanted.limit
        shown = fits[max(0, first) : last]
        return {
            "topic": wanted.name,
            "records": shown,
            "older": f"0:{first + len(shown)}" if first + len(shown) < len(fits) else None,
            "newer": f"0:{max(0, first)}",
            "looked": len(self.records),
            "looked_bytes": 48_000,
            "spent": None,
            "back_to_ms": None,
            "only_partition": None,
            "gone": False,
            "silent": [],
            **self.changes,
        }
