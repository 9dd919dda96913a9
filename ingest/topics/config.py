"""Change settings of a topic in use, by name, unless a reader of Tidegate would lose records."""

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ingest.contract.errors import ConfigError, FatalError, RetryableError, TidegateError
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import is_own_topic
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error, result_of
from ingest.topics.describe import describe_topics, topic_names
from ingest.topics.retention import AGE, SEGMENT, SIZE, ConfigChange, count_unread_older
from ingest.topics.rights import is_denied, missing_right, topic_not_found
from ingest.topics.setup import wanted_config

__all__ = ["change_topic", "settings_config"]

_COMPACTED: Final = "compact"
_RETENTION: Final = frozenset({AGE, SIZE, SEGMENT})
_REFUSED: Final = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST})


def settings_config(settings: KafkaSettings, name: str) -> dict[str, str]:
    """Return all Kafka settings that Tidegate's settings ask for on this topic.

    Raises:
        FatalError: the topic is not one of Tidegate's.
    """
    if not is_own_topic(name):
        message = (
            f"Topic {name} is not one of Tidegate's, so the settings do not cover it: name what to change, such as "
            "--set retention.ms=3600000"
        )
        raise FatalError(message)
    return wanted_config(settings, name)


def change_topic(
    settings: KafkaSettings, name: str, wanted: Mapping[str, str], *, readers: Iterable[str] = (), dry_run: bool = False
) -> list[ConfigChange]:
    """Give a topic these settings and return those that differed; all others stay.

    On Tidegate's own topics it changes only retention, or what the settings ask for. On all others, any setting that Kafka
    knows.

    Kafka deletes what is past a limit at its next check, minutes later. Returns when Kafka shows the new settings.

    Args:
        settings: the cluster.
        name: of the topic.
        wanted: Kafka's own names and values.
        readers: groups that must have read the records that may be deleted.
        dry_run: Kafka checks the change but does not apply it.

    Raises:
        FatalError: the topic does not exist or is one of Kafka's own, or a reader would lose records.
        MissingRightError: this user may not read or change the settings.
        ConfigError: Kafka does not know the setting or rejects a value, or the change would have no effect.
        RetryableError: Kafka does not answer.
    """
    if name.startswith("__"):
        message = f"Topic {name} is an internal topic of Kafka: Tidegate does not change it"
        raise FatalError(message)
    has = _config_of(settings, name)
    if is_own_topic(name):
        _refuse_unusual(settings, name, has, wanted)
    _refuse_unknown(name, has, wanted)
    changes = [
        ConfigChange(key, has[key] or "", value) for key, value in wanted.items() if not _is_same(has[key] or "", value)
    ]
    if not changes:
        return []
    # Kafka checks the values first: only then are limits certain to be numbers.
    _alter(settings, name, changes, dry_run=True)
    _refuse_loss(settings, name, changes, readers)
    if not dry_run:
        _alter(settings, name, changes, dry_run=False)
        _await_shown(settings, name, changes)
    return changes


def _refuse_unusual(settings: KafkaSettings, name: str, has: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse to change settings on which Tidegate relies: time by Kafka's clock, compaction, the largest record."""
    usual = wanted_config(settings, name)
    odd = [key for key, value in wanted.items() if key not in _RETENTION and usual.get(key) != value]
    if odd:
        message = (
            f"Topic {name} is Tidegate's, which relies on its {', '.join(odd)}: change only its retention, or apply the "
            "settings (--as-settings)"
        )
        raise FatalError(message)
    if has.get("cleanup.policy") == _COMPACTED and {AGE, SIZE} & wanted.keys():
        message = f"Topic {name} is compacted: it keeps the newest record of each key, however old. Retention has no effect on it"
        raise ConfigError(message)


def _refuse_unknown(name: str, has: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    for key in wanted:
        if key not in has:
            close = difflib.get_close_matches(key, has, n=1)
            guess = f"Did you mean {close[0]}?" if close else f"It has {', '.join(sorted(has))}."
            message = f"Topic {name} has no setting {key!r}: Kafka does not know it. {guess}"
            raise ConfigError(message)


def _is_same(has: str, wanted: str) -> bool:
    """Return whether Kafka shows the wanted value: it writes numbers, lists and true in its own form."""
    return _plain(has) == _plain(wanted)


def _plain(value: str) -> tuple[str | float, ...]:
    return tuple(_number(part.strip().lower()) for part in value.split(","))


def _number(text: str) -> str | float:
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return number if isfinite(number := float(text)) else text
    return text


def _config_of(settings: KafkaSettings, name: str) -> Mapping[str, str]:
    states = describe_topics(settings, [name])
    if name not in states:
        raise topic_not_found(settings, name, topic_names(settings))
    if not states[name].config:
        raise missing_right(settings, f"read the settings of topic {name}", "DESCRIBE_CONFIGS")
    return states[name].config


def _refuse_loss(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange], readers: Iterable[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    limits = [now_ms - one.kept_ms for one in changes if one.is_less]
    for group in readers if limits else ():
        unread = count_unread_older(settings, group, name, max(limits))
        if unread:
            message = (
                f"{group} has not read {unread} records of {name} that Kafka may delete after this change: wait until it "
                "has (`tidegate status` shows its lag), or accept their loss with --accept-loss"
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
            raise no_answer_error(settings, error, f"changing topic {name}") from error
        except KafkaException as error:
            raise _fault(settings, name, error) from error


def _fault(settings: KafkaSettings, name: str, error: KafkaException) -> TidegateError:
    code = error.args[0].code()
    if code in _REFUSED:
        return ConfigError(f"Kafka rejects these settings of topic {name}: {error.args[0].str()}")
    if is_denied(error):
        return missing_right(settings, f"change topic {name}", "ALTER_CONFIGS")
    return no_answer_error(settings, error, f"changing topic {name}")


def _await_shown(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange]) -> None:
    """Wait until Kafka shows the change: the broker learns of it after the controller has answered."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        has = _config_of(settings, name)
        if all(_is_same(has.get(one.setting, ""), one.after) for one in changes):
            return
        if time.monotonic() > deadline:
            message = (
                f"Kafka accepted the change of {name} but does not show it yet: check `tidegate topics describe {name}`"
            )
            raise RetryableError(message)
        time.sleep(0.1)
