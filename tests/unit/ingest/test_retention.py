"""Limits of a topic in Kafka's words, and which change of them lets it keep less."""

import pytest

from ingest.contract.topics import topic_specs
from ingest.topics.retention import ConfigChange, retention_config


def test_limits_are_kafkas_own_settings() -> None:
    assert retention_config(24, None) == {"retention.ms": "86400000"}
    assert retention_config(-1, -1) == {"retention.ms": "-1", "retention.bytes": "-1"}


def test_a_limit_of_size_brings_the_segments_that_a_new_topic_of_this_size_has() -> None:
    size = 64 * 1024**2
    made, *_ = topic_specs(partitions=1, max_record_bytes=1024**2, retention_bytes=size, retention_ms=1)
    assert retention_config(None, size) == {key: made.config[key] for key in ("retention.bytes", "segment.bytes")}


@pytest.mark.parametrize(
    ("setting", "before", "after", "is_less"),
    [
        ("retention.ms", "1000", "999", True),
        ("retention.ms", "-1", "999", True),
        ("retention.bytes", "1000", "1000", False),
        ("retention.bytes", "1000", "-1", False),
        ("retention.bytes", "999", "1000", False),
        ("segment.bytes", "1000", "10", False),
        ("cleanup.policy", "delete", "compact", False),
    ],
)
def test_less_is_kept_only_by_a_lower_limit(setting: str, before: str, after: str, is_less: bool) -> None:
    assert ConfigChange(setting, before, after).is_less is is_less
