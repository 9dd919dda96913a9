"""Users of Kafka with a password (SCRAM-SHA-512), set by an administrator on a running cluster."""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ingest.kafka_settings import KafkaSettings
from ingest.topics.admin import TIMEOUT_SECONDS, admin_client, no_answer_error, partition_counts, result_of
from ingest.topics.rights import is_denied, missing_right

__all__ = ["set_scram_users"]

ITERATIONS: Final = 4096
"""The least that Kafka takes. The passwords are random, so more iterations protect nothing."""
SHOWN_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.05


def set_scram_users(settings: KafkaSettings, passwords: Mapping[str, str]) -> None:
    """Make these users, or give existing ones these passwords; returns when Kafka shows them, after five seconds at the latest.

    Kafka shows the name of a user and not which password it knows. So a login may still meet the former password for a moment.

    Args:
        settings: the cluster, with a user who may change it (ALTER on the cluster).
        passwords: password by name of the user. The password itself is not sent, only what SCRAM keeps of it.

    Raises:
        MissingRightError: this user may not change users.
        RetryableError: Kafka does not answer, or refuses.
    """
    client = admin_client(settings)
    # Ask for topics first: that answer says why a login fails.
    partition_counts(client, settings)
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted: list[Any] = [
        UserScramCredentialUpsertion(name, kind, secret.encode()) for name, secret in passwords.items()
    ]
    try:
        for future in client.alter_user_scram_credentials(wanted, request_timeout=TIMEOUT_SECONDS).values():
            result_of(future)
        _await_users(client, passwords)
    except (KafkaException, TimeoutError) as error:
        if is_denied(error):
            raise missing_right(settings, "set passwords of users", "ALTER", "cluster") from error
        raise no_answer_error(settings, error, "setting passwords of users") from error


def _await_users(client: AdminClient, names: Mapping[str, str]) -> None:
    deadline = time.monotonic() + SHOWN_SECONDS
    while time.monotonic() < deadline:
        # Without names it is one answer for all users; the client's type hints allow both forms.
        asked: Any = client.describe_user_scram_credentials(request_timeout=TIMEOUT_SECONDS)
        if set(names) <= set(result_of(asked)):
            return
        time.sleep(PAUSE_SECONDS)
