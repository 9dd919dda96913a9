"""When a batch begins: profiles, single settings, and the options of Spark's Kafka source that follow."""

import pytest

from streaming.kafka_source import cut_options
from streaming.stream_settings import BatchCut, StreamSettings


@pytest.mark.parametrize(
    ("settings", "cut"),
    [
        ({}, BatchCut(0, 0.0)),
        ({"profile": "latency"}, BatchCut(0, 0.0)),
        ({"profile": "balanced"}, BatchCut(150, 0.7)),
        ({"profile": "thrifty"}, BatchCut(5000, 5.0)),
        ({"profile": "balanced", "max_wait_seconds": 2.5}, BatchCut(150, 2.5)),
        ({"profile": "thrifty", "min_records_per_batch": 0}, BatchCut(0, 5.0)),
        ({"min_records_per_batch": 10, "max_wait_seconds": 1}, BatchCut(10, 1.0)),
    ],
)
def test_a_single_setting_replaces_that_of_the_profile(settings: dict[str, object], cut: BatchCut) -> None:
    assert StreamSettings.model_validate(settings).batch_cut == cut


@pytest.mark.parametrize(
    ("cut", "options"),
    [
        (BatchCut(0, 5.0), {}),
        (BatchCut(150, 0.0), {}),
        (BatchCut(150, 0.7), {"minOffsetsPerTrigger": "150", "maxTriggerDelay": "700ms"}),
        (BatchCut(5000, 0.0001), {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1ms"}),
    ],
)
def test_spark_gets_both_options_or_none(cut: BatchCut, options: dict[str, str]) -> None:
    """A minimum without a time would hold the last records back for 15 minutes, Spark's default."""
    assert cut_options(cut, max_records=1000) == options
