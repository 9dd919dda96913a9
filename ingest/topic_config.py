"""Settings of a topic that is in use: changed by name, and not where a reader would lose records."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ingest.admin import DENIED, TIMEOUT_SECONDS, admin_client, no_topic, result_of, unanswered
from ingest.cluster import is_own_topic
from ingest.contract.errors import ConfigError, FatalError, RetryableError, TidegateError
from ingest.retention import AGE, SIZE, ConfigChange, unread_older
from ingest.settings import KafkaSettings
from ingest.topic_setup import wanted_config
from ingest.topic_state import describe_topics, topic_names

__all__ = ["change_topic", "settings_config"]

_COMPACTED: Final = "compact"
_REFUSED: Final = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST})


def settings_config(settings: KafkaSettings, name: str) -> dict[str, str]:
    """All that the settings want of this topic.

    Raises:
        FatalError: it is none of Tidegate's.
    """
    _refuse_foreign(name)
    return wanted_config(settings, name)


def change_topic(
    settings: KafkaSettings, name: str, wanted: Mapping[str, str], *, readers: Iterable[str] = (), dry_run: bool = False
) -> list[ConfigChange]:
    """Give a topic these settings and return those that differed; all others stay.

    Kafka deletes what is past a limit at its next look, minutes later. Back when Kafka shows what was asked for.

    Args:
        settings: the cluster.
        name: of the topic.
        wanted: Kafka's own names and values.
        readers: groups that must have read what may go.
        dry_run: Kafka judges the change and makes none.

    Raises:
        FatalError: no such topic, none of Tidegate's, no permission, or a reader would lose records.
        ConfigError: Kafka refuses a value, or would do nothing for it.
        RetryableError: Kafka does not answer.
    """
    _refuse_foreign(name)
    has = _config_of(settings, name)
    if has.get("cleanup.policy") == _COMPACTED and {AGE, SIZE} & wanted.keys():
        message = f"Topic {name} is compacted: it keeps the newest record of each key, however old; retention does nothing there"
        raise ConfigError(message)
    changes = [ConfigChange(key, has.get(key, ""), value) for key, value in wanted.items() if has.get(key) != value]
    _refuse_loss(settings, name, changes, readers)
    if changes:
        _alter(settings, name, changes, dry_run=dry_run)
    if changes and not dry_run:
        _await_shown(settings, name, changes)
    return changes


def _refuse_foreign(name: str) -> None:
    if not is_own_topic(name):
        message = (
            f"Topic {name} is none of Tidegate's (see `tidegate topics ls`): change it with the tools of your Kafka"
        )
        raise FatalError(message)


def _config_of(settings: KafkaSettings, name: str) -> Mapping[str, str]:
    states = describe_topics(settings, [name])
    if name not in states:
        raise no_topic(settings, name, topic_names(settings))
    if not states[name].config:
        raise _denied(settings, name, "read the settings of", "DESCRIBE_CONFIGS")
    return states[name].config


def _refuse_loss(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange], readers: Iterable[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    limits = [now_ms - one.kept_ms for one in changes if one.is_less]
    for group in readers if limits else ():
        unread = unread_older(settings, group, name, max(limits))
        if unread:
            message = (
                f"{group} has not read {unread} records of {name} that Kafka may then delete: wait until it has "
                "(`tidegate status` shows its lag), or give them up with --accept-loss"
            )
            raise FatalError(message)


def _alter(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange], *, dry_run: bool) -> None:
    entries = [ConfigEntry(one.setting, one.after, incremental_operation=AlterConfigOpType.SET) for one in changes]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    client = admin_client(settings)
    done = client.incremental_alter_configs([resource], validate_only=dry_run, request_timeout=TIMEOUT_SECONDS)
    for future in done.values():
        try:
            result_of(future)
        except TimeoutError as error:
            raise unanswered(settings, error, f"changing topic {name}") from error
        except KafkaException as error:
            raise _fault(settings, name, error) from error


def _fault(settings: KafkaSettings, name: str, error: KafkaException) -> TidegateError:
    code = error.args[0].code()
    if code in _REFUSED:
        return ConfigError(f"Kafka refuses this of topic {name}: {error.args[0].str()}")
    if code in DENIED:
        return _denied(settings, name, "change", "ALTER_CONFIGS")
    return unanswered(settings, error, f"changing topic {name}")


def _denied(settings: KafkaSettings, name: str, what: str, right: str) -> FatalError:
    user = settings.sasl_username or "ANONYMOUS"
    return FatalError(f"The Kafka user {user} may not {what} topic {name}: grant it {right} on the topic")


def _await_shown(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange]) -> None:
    """The broker learns of a change after the controller has answered."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        has = _config_of(settings, name)
        if all(has.get(one.setting) == one.after for one in changes):
            return
        if time.monotonic() > deadline:
            message = f"Kafka took the change of topic {name} and does not show it yet: look with `tidegate topics ls`"
            raise RetryableError(message)
        time.sleep(0.1)
