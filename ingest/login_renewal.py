"""New passwords for Kafka clients that live long: a changed secret file applies at their next login, without a new client."""

import time
from collections.abc import Callable
from typing import Final, Protocol

from ingest.kafka_login import OAUTH
from ingest.kafka_settings import KafkaSettings

__all__ = ["LoginRenewal"]

LOOK_SECONDS: Final = 1.0


class _SaslClient(Protocol):
    """Producer, consumer or admin client of librdkafka."""

    def set_sasl_credentials(self, username: str, password: str, /) -> object:
        """Take the password for later logins."""


class LoginRenewal:
    """The password that some clients have, compared with that of the settings about once a second.

    librdkafka keeps its open connections and uses a new password where it connects again. So a record in flight is not
    affected. Neither the client secret of OAuth nor a client certificate can change in a client: they apply at the next start.

    Owned by the thread that uses the clients: a client must not be freed meanwhile.
    """

    def __init__(self, settings: KafkaSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the settings before the clients are made from them."""
        self._user, self._clock = settings.sasl_username or "", clock
        self._secret = None if settings.sasl_mechanism in (None, OAUTH) else settings.sasl_password
        self._given = "" if self._secret is None else self._secret.get_secret_value()
        self._look_at = clock() + LOOK_SECONDS

    def apply(self, *clients: _SaslClient) -> None:
        """Give the clients the password if it has changed. Call it often and with the same clients: few calls look."""
        if self._secret is None or (now := self._clock()) < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        newest = self._secret.get_secret_value()
        if newest == self._given:
            return
        for client in clients:
            client.set_sasl_credentials(self._user, newest)
        self._given = newest
