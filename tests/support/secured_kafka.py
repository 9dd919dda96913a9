"""One Kafka for all tests of logins and rights: TLS, passwords, tokens, an authorizer, and a guest who may do nothing."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pydantic import SecretStr

from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf
from tests.support.authority import Authority
from tests.support.token_server import SECRET, TokenServer, open_token_server

GUEST = "User:guest"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


class SecuredKafka:
    """A cluster that takes passwords and tokens, and the server that gives tokens."""

    def __init__(self, cluster: KafkaCluster, server: TokenServer, authority: Authority) -> None:
        self.cluster, self.server = cluster, server
        self._authority = authority

    def token_settings(self, **changes: Any) -> KafkaSettings:
        """Of the user admin, who logs in by a token."""
        oauth = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_username": "admin",
            "sasl_password": SecretStr(SECRET),
            "oauth_token_url": self.server.url,
            "oauth_scope": "kafka",
            "oauth_ca_file": str(self._authority.file),
        }
        return KafkaSettings.model_validate(self.cluster.settings.model_dump() | oauth | changes)

    def take_rights(self) -> None:
        """The guest may do nothing again."""
        admin = AdminClient(client_conf(self.cluster.settings, client_id="test"))
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, GUEST, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in admin.delete_acls([every]).values():
            future.result(60)
        while admin.describe_acls(every).result(60):  # brokers learn of it after the controller has answered
            time.sleep(0.02)


@pytest.fixture(scope="session")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    with open_token_server(folder, authority) as server:
        listener = "listener.name.client.oauthbearer"
        properties = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            f"{listener}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{listener}.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": server.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
        }
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        options = (f"{allowed}.urls={server.jwks.as_uri()}", f"{allowed}.files={server.jwks}")
        bed = folder / "bed"
        with open_cluster(bed, brokers=1, security="sasl_ssl", properties=properties, java_options=options) as cluster:
            yield SecuredKafka(cluster, server, authority)


@pytest.fixture
def secured_kafka(_secured: SecuredKafka) -> Iterator[SecuredKafka]:
    """With topic names of your own; the rights that a test gives the guest are gone after it."""
    yield _secured
    _secured.take_rights()
