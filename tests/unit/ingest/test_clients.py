"""What the Kafka client refuses is a wrong setting with a name, whichever client is made first."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.contract.errors import ConfigError
from ingest.groups.offset_mirror import OffsetMirror
from ingest.kafka_settings import KafkaSettings
from ingest.producer import KafkaWriter
from ingest.read.offset_range import read_range
from ingest.topics.admin import wait_for_kafka

CLIENTS: list[Callable[[KafkaSettings], object]] = [
    lambda settings: wait_for_kafka(settings, threading.Event(), str),
    lambda settings: KafkaWriter(settings, None),
    lambda settings: list(read_range(settings, "t", {0: 0}, {0: 1})),
    lambda settings: OffsetMirror(settings, "g"),
]


@pytest.mark.parametrize("make", CLIENTS, ids=["admin", "producer", "consumer", "mirror"])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"security_protocol": "SSL", "ssl_ca_file": "{folder}/none.pem"}, r"kafka\.ssl_ca_file \S+/none\.pem: "),
        ({"security_protocol": "SSL", "ssl_ca_file": "{folder}/no.pem"}, r"kafka\.ssl_ca_file \S+/no\.pem: "),
        ({"security_protocol": "SSL", "ssl_crl_file": "{folder}/none.pem"}, r"kafka\.ssl_crl_file \S+/none\.pem: "),
        ({"extra": {"client.rack": "a", "reconnect.backoff.ms": "abc"}}, r'kafka\.extra\."reconnect\.backoff\.ms"'),
        ({"extra": {"broker.address.family": "odd"}}, r'kafka\.extra\."broker\.address\.family"'),
    ],
    ids=["no file", "no certificate", "no list", "no number", "no such value"],
)
def test_a_value_that_the_client_refuses_is_told_by_its_setting(
    make: Callable[[KafkaSettings], object], changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    filled = {key: text.format(folder=tmp_path) if isinstance(text, str) else text for key, text in changes.items()}
    with pytest.raises(ConfigError, match=named) as caught:
        make(KafkaSettings(bootstrap_servers="127.0.0.1:1", **filled))
    assert caught.value.exit_code == 78
