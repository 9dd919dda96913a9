"""A missing right in Kafka is one error wherever Kafka says so, and no other answer is taken for it; without a Kafka."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr

from ingest.contract.errors import FatalError, MissingRightError, TidegateError, UnavailableError
from ingest.groups import describe as group_state
from ingest.groups import offset_mirror as groups
from ingest.groups import rewind
from ingest.groups.describe import describe_group
from ingest.groups.offset_mirror import delete_group
from ingest.kafka_settings import KafkaSettings
from ingest.read import offset_range as consumer
from ingest.read.tail import judge_error
from ingest.topics import config as topic_config
from ingest.topics import offsets
from ingest.topics import rights as topic_rights
from ingest.topics import setup as topic_setup
from ingest.topics.config import change_topic
from ingest.topics.offsets import end_offsets
from ingest.topics.rights import topic_not_found
from ingest.topics.setup import create_topic, delete_topic

SETTINGS = KafkaSettings(
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="guest",
    sasl_password=SecretStr("x"),
)
TOPIC, GROUP, CLUSTER = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip


class _Admin:
    """Answers each question about `t` with one error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def list_topics(self, **_: object) -> Any:
        """The brokers, which any user may see."""
        return SimpleNamespace(topics={}, brokers={1: None})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(self._code)))
        return lambda *_, **__: {"t": future}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on Kafka answers so."""

    def be(code: int) -> None:
        for module in (group_state, groups, offsets, topic_config, topic_rights, topic_setup):
            monkeypatch.setattr(module, "admin_client", lambda *_, **__: _Admin(code))
        for module in (group_state, offsets):
            monkeypatch.setattr(module, "partition_counts", lambda *_: {"t": 1})
        monkeypatch.setattr(topic_setup, "partition_counts", lambda *_: {})
        monkeypatch.setattr(topic_config, "_config_of", lambda *_: {"retention.ms": "1"})

    return be


def commit(settings: KafkaSettings) -> None:
    rewind.rewind(settings, "t", "rooms", [rewind.OffsetMove(0, 1, 0, 1)])


COMMANDS: list[tuple[Callable[[KafkaSettings], object], int, str]] = [
    (lambda settings: describe_group(settings, "t"), GROUP, "see group t: grant it DESCRIBE on the group"),
    (lambda settings: delete_group(settings, "t"), GROUP, "delete group t: grant it DELETE on the group"),
    (lambda settings: end_offsets(settings, "t"), TOPIC, "see the offsets of topic t: grant it DESCRIBE on the topic"),
    (lambda settings: create_topic(settings, "t", partitions=1), TOPIC, "create topic t: grant it CREATE on the cluster"),
    (lambda settings: create_topic(settings, "t", partitions=1), CLUSTER, "create topic t: grant it CREATE on the cluster"),
    (lambda settings: delete_topic(settings, "t"), TOPIC, "delete topic t: grant it DELETE on the topic"),
    (lambda settings: change_topic(settings, "t", {"retention.ms": "2"}), TOPIC, "grant it ALTER_CONFIGS on the topic"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "code", "words"), COMMANDS, ids=[words for *_, words in COMMANDS])
def test_a_missing_right_is_one_error_with_the_next_step(
    ask: Callable[[KafkaSettings], object], code: int, words: str, answer: Callable[[int], None]
) -> None:
    answer(code)
    with pytest.raises(MissingRightError, match=words) as fault:
        ask(SETTINGS)
    assert fault.value.exit_code == UnavailableError.exit_code
    assert str(fault.value).startswith("The Kafka user guest may not ")
    answer(KafkaError.UNKNOWN)
    with pytest.raises(TidegateError) as other:
        ask(SETTINGS)
    assert not isinstance(other.value, MissingRightError), "another answer is another error"


@pytest.mark.parametrize(
    ("code", "words"), [(TOPIC, "READ on the topic"), (GROUP, "READ on the group")], ids=["topic", "group"]
)
def test_offsets_that_may_not_be_written_name_the_right(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(rewind, "make_client", lambda *_: SimpleNamespace(commit=refuse, close=lambda: None))
    with pytest.raises(MissingRightError, match=words):
        commit(SETTINGS)
    part = SimpleNamespace(partition=0, error=KafkaError(code))
    client = SimpleNamespace(commit=lambda **_: [part], close=lambda: None)
    monkeypatch.setattr(rewind, "make_client", lambda *_: client)
    with pytest.raises(MissingRightError, match=words):
        commit(SETTINGS)


def test_records_that_may_not_be_read_name_the_right() -> None:
    with pytest.raises(MissingRightError, match="guest may not read topic t: grant it READ on the topic"):
        judge_error(KafkaError(TOPIC), "t", SETTINGS)
    with pytest.raises(MissingRightError, match="guest may not read topic t: grant it READ on the topic"):
        consumer._check(KafkaError(TOPIC), SETTINGS, "t", 0)


def test_a_topic_that_kafka_hides_is_not_the_same_as_none(answer: Callable[[int], None]) -> None:
    answer(TOPIC)
    hidden = topic_not_found(SETTINGS, "t", ["tt"])
    assert isinstance(hidden, MissingRightError)
    assert "has no topic t, or user guest may not see it. Did you mean tt?" in str(hidden)
    for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TIMED_OUT):
        answer(code)
        none = topic_not_found(SETTINGS, "t", ["tt"])
        assert type(none) is FatalError and "may not see it" not in str(none)
