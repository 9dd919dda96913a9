"""Login to a real Kafka by client certificate and by OAuth, for librdkafka and for Java; wrong ones are one sentence."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from deploy.local.kafka_java import property_lines
from deploy.settings import java_locale
from deploy.settings_file import write_private
from deploy.settings_secrets import FileSecret
from deploy.testbed.cluster import KafkaCluster, open_cluster
from deploy.testbed.node import KRAFT_AUTHORIZER
from ingest.contract.errors import RetryableError
from ingest.kafka_login import java_flags
from ingest.kafka_settings import KafkaSettings
from ingest.log import DeliveryError
from ingest.producer import KafkaWriter
from ingest.security import jvm_conf
from ingest.topics.acl import apply_acls, plan_acls
from ingest.topics.describe import topic_names
from ingest.topics.rights import missing_by_role
from ingest.topics.roles import Acl, Role
from ingest.topics.setup import create_topic
from tests.support.authority import Authority
from tests.support.servers import set_scram_password
from tests.support.token_server import SECRET, TokenServer, open_token_server

Wait = Callable[..., Any]
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


def java_topics(cluster: KafkaCluster, settings: KafkaSettings, folder: Path) -> subprocess.CompletedProcess[str]:
    """List topics with Kafka's own tool: the same client, and the same options, as in Spark."""
    file = folder / "java.properties"
    write_private(file, property_lines(jvm_conf(settings)))
    tool, *rest = cluster.nodes[0].part.tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", settings.bootstrap_servers, "--list",
        "--command-config", str(file),
    )  # fmt: skip
    return subprocess.run(
        [tool, *java_flags(settings), *rest], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | java_locale(),
    )  # fmt: skip


class Certified:
    """A cluster that takes client certificates of an authority of its own; whoever shows none may do everything."""

    def __init__(self, cluster: KafkaCluster, authority: Authority) -> None:
        self.cluster, self._authority = cluster, authority

    def settings(self, name: str, password: str = "") -> KafkaSettings:
        given = self.cluster.settings.model_dump() | self._authority.kafka_login(name, password)
        return KafkaSettings.model_validate(given)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    folder = tmp_path_factory.mktemp("certified")
    authority = Authority(folder)
    properties = {
        "listener.name.client.ssl.client.auth": "requested",
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(authority.file),
        "authorizer.class.name": KRAFT_AUTHORIZER,
        "super.users": "User:broker;User:ANONYMOUS",
    }
    with open_cluster(folder / "bed", brokers=1, security="ssl", properties=properties) as cluster:
        yield Certified(cluster, authority)


@pytest.mark.parametrize("password", ["", "key-password"])
def test_a_client_certificate_logs_in_from_both_clients(
    certified: Certified, tmp_path: Path, unique_name: str, wait_until: Wait, password: str
) -> None:
    name = f"gw-{unique_name}"
    settings, admin = certified.settings(name, password), certified.cluster.settings
    topic = "telemetry.readings"
    create_topic(admin, topic, partitions=1)
    assert topic in topic_names(admin)
    # As itself, and not as whoever shows no certificate: it may see nothing.
    assert topic not in topic_names(settings)
    hidden = java_topics(certified.cluster, settings, tmp_path)
    assert (hidden.returncode, topic in hidden.stdout.split()) == (0, False), hidden.stderr
    assert missing_by_role(settings)[Role.READER]

    apply_acls(admin, f"User:{name}", add=plan_acls(admin, f"User:{name}", [Role.READER]).missing)
    wait_until(lambda: topic in topic_names(settings), what="the rights")
    seen = java_topics(certified.cluster, settings, tmp_path)
    assert topic in seen.stdout.split(), seen.stderr
    missing = missing_by_role(settings)
    assert not [one for one in missing[Role.READER] if one.name == topic]
    assert "WRITE" in [one.operation for one in missing[Role.GATEWAY] if one.name == topic]


def test_a_certificate_of_another_authority_is_one_sentence(certified: Certified, tmp_path: Path) -> None:
    stranger = Authority(tmp_path).kafka_login("gw")
    settings = KafkaSettings.model_validate(certified.cluster.settings.model_dump() | stranger)
    with pytest.raises(RetryableError, match="alert certificate unknown") as refusal:
        topic_names(settings)
    assert "\n" not in str(refusal.value)


class Authorized:
    """A cluster that takes tokens, and the server that gives them."""

    def __init__(self, cluster: KafkaCluster, server: TokenServer, authority: Authority) -> None:
        self.cluster, self.server = cluster, server
        self._authority = authority

    def settings(self, **changes: Any) -> KafkaSettings:
        oauth = {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_username": "admin",
            "sasl_password": SecretStr(SECRET),
            "oauth_token_url": self.server.url,
            "oauth_scope": "kafka",
            "oauth_ca_file": str(self._authority.file),
        }
        return KafkaSettings.model_validate(self.cluster.settings.model_dump() | oauth | changes)


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    folder = tmp_path_factory.mktemp("authorized")
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
            yield Authorized(cluster, server, authority)


def test_a_token_logs_in_from_both_clients(authorized: Authorized, tmp_path: Path, unique_name: str) -> None:
    settings = authorized.settings()
    create_topic(settings, unique_name, partitions=1)
    assert unique_name in topic_names(settings)
    asked = len(authorized.server.asked)
    seen = java_topics(authorized.cluster, settings, tmp_path)
    assert unique_name in seen.stdout.split(), seen.stderr
    assert authorized.server.asked[asked:] == ["admin"]
    # The token's subject is the user: another client sees nothing.
    assert unique_name not in topic_names(authorized.settings(sasl_username="other"))


def test_a_wrong_secret_is_one_sentence(authorized: Authorized) -> None:
    with pytest.raises(RetryableError) as refusal:
        topic_names(authorized.settings(sasl_password=SecretStr("canary-secret")))
    assert "\n" not in str(refusal.value)
    assert "canary-secret" not in str(refusal.value)
    assert "wrong admin" in authorized.server.asked


def test_a_writer_logs_in_again_with_the_password_that_its_file_has_then(
    authorized: Authorized, tmp_path: Path, unique_name: str, wait_until: Wait
) -> None:
    admin, user, file = authorized.cluster.settings, f"w-{unique_name}", tmp_path / "password"
    write_private(file, "first-secret")
    set_scram_password(admin, user, "first-secret")
    create_topic(admin, unique_name, partitions=1)
    apply_acls(admin, f"User:{user}", add=[Acl("topic", unique_name, "literal", "WRITE")])
    login = {"sasl_username": user, "sasl_password": FileSecret(str(file), "kafka.sasl_password")}
    # The client closes its idle connections, so that the next record needs a new login.
    idle = {"extra": {"connections.max.idle.ms": "1000"}}
    writer = KafkaWriter(KafkaSettings.model_validate(admin.model_dump() | login | idle), None)
    failures: list[DeliveryError | None] = []

    def write(value: bytes) -> int:
        writer.produce(unique_name, b"k", value, failures.append)
        return writer.flush(30)

    def is_refused() -> bool:
        try:
            topic_names(admin.model_copy(update={"sasl_username": user, "sasl_password": SecretStr("first-secret")}))
        except RetryableError:
            return True
        return False

    try:
        assert write(b"1") == 0
        write_private(file, "second-secret")
        set_scram_password(admin, user, "second-secret")
        wait_until(is_refused, what="the former password to be refused")
        idle_since = time.monotonic()
        wait_until(
            lambda: writer.poll(0) == 0 and time.monotonic() - idle_since > 4, what="an idle connection to close"
        )
        assert write(b"2") == 0
        assert failures == [None, None]
    finally:
        writer.close()
