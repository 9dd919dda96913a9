"""Settings of a topic that is in use: changed by name, and not where a reader of Tidegate would lose records."""

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ingest.admin import TIMEOUT_SECONDS, admin_client, result_of, unanswered
from ingest.cluster import is_own_topic
from ingest.contract.errors import ConfigError, FatalError, RetryableError, TidegateError
from ingest.retention import AGE, SEGMENT, SIZE, ConfigChange, unread_older
from ingest.settings import KafkaSettings
from ingest.topic_rights import is_denied, missing_right, no_topic
from ingest.topic_setup import wanted_config
from ingest.topic_state import describe_topics, topic_names

__all__ = ["change_topic", "settings_config"]

_COMPACTED: Final = "compact"
_RETENTION: Final = frozenset({AGE, SIZE, SEGMENT})
_REFUSED: Final = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST})


def settings_config(settings: KafkaSettings, name: str) -> dict[str, str]:
    """All that the settings want of this topic.

    Raises:
        FatalError: it is not one of Tidegate's.
    """
    if not is_own_topic(name):
        message = (
            f"Topic {name} is not one of Tidegate's, so the settings say nothing of it: name what to change, such as "
            "--set retention.ms=3600000"
        )
        raise FatalError(message)
    return wanted_config(settings, name)


def change_topic(
    settings: KafkaSettings, name: str, wanted: Mapping[str, str], *, readers: Iterable[str] = (), dry_run: bool = False
) -> list[ConfigChange]:
    """Give a topic these settings and return those that differed; all others stay.

    Of Tidegate's own topics only retention is changed, or what the settings want. Of all others, each setting that Kafka knows.

    Kafka deletes what is past a limit at its next look, minutes later. Back when Kafka shows what was asked for.

    Args:
        settings: the cluster.
        name: of the topic.
        wanted: Kafka's own names and values.
        readers: groups that must have read what may go.
        dry_run: Kafka judges the change and makes none.

    Raises:
        FatalError: no such topic, one of Kafka's own, or a reader would lose records.
        MissingRightError: this user may not read or change the settings.
        ConfigError: Kafka has no such setting, refuses a value, or would do nothing for it.
        RetryableError: Kafka does not answer.
    """
    if name.startswith("__"):
        message = f"Topic {name} is Kafka's own, and is not changed here"
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
    # Kafka judges the values first: only then are limits sure to be numbers.
    _alter(settings, name, changes, dry_run=True)
    _refuse_loss(settings, name, changes, readers)
    if not dry_run:
        _alter(settings, name, changes, dry_run=False)
        _await_shown(settings, name, changes)
    return changes


def _refuse_unusual(settings: KafkaSettings, name: str, has: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Tidegate relies on the other settings of its topics: on time by Kafka's clock, compaction, the largest record."""
    usual = wanted_config(settings, name)
    odd = [key for key, value in wanted.items() if key not in _RETENTION and usual.get(key) != value]
    if odd:
        message = (
            f"Topic {name} is Tidegate's, which relies on its {', '.join(odd)}: change its retention, or give it what the "
            "settings want (--as-settings)"
        )
        raise FatalError(message)
    if has.get("cleanup.policy") == _COMPACTED and {AGE, SIZE} & wanted.keys():
        message = f"Topic {name} is compacted: it keeps the newest record of each key, however old; retention does nothing there"
        raise ConfigError(message)


def _refuse_unknown(name: str, has: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    for key in wanted:
        if key not in has:
            close = difflib.get_close_matches(key, has, n=1)
            guess = f"Did you mean {close[0]}?" if close else f"It has {', '.join(sorted(has))}."
            message = f"Kafka has no setting {key!r} of a topic, so none of {name}. {guess}"
            raise ConfigError(message)


def _is_same(has: str, wanted: str) -> bool:
    """Whether Kafka shows one where the other was asked for: it writes numbers, lists and true in a form of its own."""
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
        raise no_topic(settings, name, topic_names(settings))
    if not states[name].config:
        raise missing_right(settings, f"read the settings of topic {name}", "DESCRIBE_CONFIGS")
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
    if is_denied(error):
        return missing_right(settings, f"change topic {name}", "ALTER_CONFIGS")
    return unanswered(settings, error, f"changing topic {name}")


def _await_shown(settings: KafkaSettings, name: str, changes: Sequence[ConfigChange]) -> None:
    """The broker learns of a change after the controller has answered."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        has = _config_of(settings, name)
        if all(_is_same(has.get(one.setting, ""), one.after) for one in changes):
            return
        if time.monotonic() > deadline:
            message = (
                f"Kafka took the change of {name} and does not show it yet: look with `tidegate topics describe {name}`"
            )
            raise RetryableError(message)
        time.sleep(0.1)
