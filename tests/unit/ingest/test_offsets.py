"""Offsets of a time: which time Kafka is asked for."""

from typing import Any

import pytest

from ingest.kafka_settings import KafkaSettings
from ingest.topics import offsets
from ingest.topics.offsets import offsets_at


@pytest.mark.parametrize(("time_ms", "asked"), [(-1, 0), (-2, 0), (-62_135_596_800_000, 0), (0, 0), (7, 7)])
def test_a_time_before_1970_is_never_kafkas_word_for_the_end(
    time_ms: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka reads -1 as the latest and -2 as the earliest offset."""

    def found(_settings: object, _topic: str, spec: Any) -> dict[int, int]:
        return {0: spec._value}

    monkeypatch.setattr(offsets, "_offsets", found)
    assert offsets_at(KafkaSettings(), "rooms", time_ms) == {0: asked}
