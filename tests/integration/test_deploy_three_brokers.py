"""Three secured brokers under a gateway, a stream and a fleet: brokers that die, and secrets that change, without a loss.

It takes minutes: `make chaos` runs it.
"""

import signal
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from deploy.certificates.folder import _read_authority, rotate_leaves
from deploy.certificates.issue import LeafRequest, sign_leaf
from deploy.local.broker import find_mosquitto
from deploy.local.broker_answer import connect_accepted
from deploy.settings_file import write_private
from ingest.contract.errors import RetryableError
from ingest.topics.describe import topic_names
from tests.support.secured_pipeline import INFLIGHT, SecuredPipeline, ending_in, secured_pipeline, serves

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1800),
    pytest.mark.durable_broker,
    pytest.mark.promise("P1"),
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine"),
]
RATE = 200.0
OUTAGE_SECONDS = 4.0
SHORT_SECONDS = 30.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPipeline]:
    with secured_pipeline(tmp_path_factory.mktemp("secured")) as pipeline:
        yield pipeline


@pytest.fixture
def pipeline(shared: SecuredPipeline) -> Iterator[SecuredPipeline]:
    """Under load, with all nodes."""
    shared.back(*(node for node in shared.cluster.nodes if not node.alive))
    shared.load.start(RATE)
    shared.flows()
    shared.lands()
    yield shared
    shared.load.pause()


def test_any_one_broker_may_die_and_come_back(pipeline: SecuredPipeline) -> None:
    process, stream = pipeline.gateway.pid, pipeline.stream.pid
    for node in pipeline.cluster.nodes:
        since = time.time()
        node.kill()
        pipeline.flows()
        assert not node.alive, "the other two carry all of it"
        pipeline.note(f"{node.name} killed", since)
        pipeline.back(node)
    verdict = pipeline.settled()
    assert verdict.repeated == 0, "Kafka knew what the writer sent again"
    assert (pipeline.gateway.pid, pipeline.stream.pid) == (process, stream)


@pytest.mark.promise("P2")
@pytest.mark.parametrize("gateway_dies", [False, True], ids=["gateway lives", "gateway dies meanwhile"])
def test_with_two_brokers_gone_nothing_is_acknowledged(pipeline: SecuredPipeline, gateway_dies: bool) -> None:
    pipeline.load.pause()
    pipeline.settled()
    acked, recorded, repeated = pipeline.acknowledged(), pipeline.in_kafka(), pipeline.verdict().repeated
    pipeline.load.start(RATE)
    pipeline.flows()
    gone = pipeline.cluster.nodes[1:] if gateway_dies else pipeline.cluster.nodes[:2]
    since = time.time()
    for node in gone:
        node.kill()
    # What was on its way when they died may still be reported.
    pipeline.wait(lambda: pipeline.gateway.metric(INFLIGHT) > RATE, "messages that wait")
    at_outage, sent = pipeline.acknowledged(), len(pipeline.load.sent)
    pipeline.wait(lambda: len(pipeline.load.sent) > sent + OUTAGE_SECONDS * RATE, "more messages from the fleet")
    assert pipeline.acknowledged() == at_outage
    if gateway_dies:
        pipeline.gateway.kill()
    pipeline.back(*gone)
    if gateway_dies:
        pipeline.reader.look()
        assert at_outage - acked <= pipeline.in_kafka() - recorded, "each PUBACK had its record"
        pipeline.gateway.start()
        pipeline.wait(pipeline.gateway.healthy, "the next gateway process")
    pipeline.flows()
    pipeline.note(f"two brokers gone, {'gateway killed' if gateway_dies else 'gateway living'}", since)
    verdict = pipeline.settled()
    assert gateway_dies or verdict.repeated == repeated


def test_a_rolling_restart_brings_new_certificates_and_new_passwords(pipeline: SecuredPipeline) -> None:
    """The steps of OPERATORS.md: first the file of the client, then the server."""
    process, stream, repeated = pipeline.gateway.pid, pipeline.stream.pid, pipeline.verdict().repeated
    rotate_leaves(pipeline.kafka_pki, days=30, now=datetime.now(UTC))
    since, former = time.time(), dict(pipeline.passwords)
    for user in ("gateway", "stream"):
        pipeline.passwords[user] = f"second-{user}-secret"
        pipeline.write_secret(user, pipeline.passwords[user])
        pipeline.set_kafka_password(user)
    old = {"sasl_username": "gateway", "sasl_password": SecretStr(former["gateway"])}
    pipeline.wait(lambda: _is_refused(pipeline, old), "the former password to be refused")
    node_file = pipeline.kafka_pki / "node.pem"
    for node in pipeline.cluster.nodes:
        node.process.signal(signal.SIGTERM)
        assert node.process.wait_end(60)
        pipeline.back(node)
        assert serves(node.part.port, node_file)
    pipeline.flows()
    pipeline.note("rolling restart with a new password", since)
    verdict = pipeline.settled()
    assert verdict.repeated == repeated
    assert (pipeline.gateway.pid, pipeline.stream.pid) == (process, stream), "no process was restarted"
    for user in ("gateway", "stream"):
        for text in (former[user], pipeline.passwords[user]):
            assert text not in pipeline.gateway.log() + pipeline.stream.log()


def _is_refused(pipeline: SecuredPipeline, login: dict[str, Any]) -> bool:
    try:
        topic_names(pipeline.admin.model_copy(update=login))
    except RetryableError as error:
        return "uthentication" in str(error)
    return False


def test_a_restart_of_the_gateway_brings_its_new_certificate_for_kafka(pipeline: SecuredPipeline) -> None:
    rotate_leaves(pipeline.kafka_pki, days=30, now=datetime.now(UTC))
    since = time.time()
    assert pipeline.gateway.terminate() == 0
    pipeline.gateway.start()
    pipeline.wait(pipeline.gateway.healthy, "the next gateway process")
    pipeline.flows()
    pipeline.note("restart of the gateway", since)
    pipeline.settled()


def test_mqtt_gets_new_certificates_and_new_passwords_without_a_restart(pipeline: SecuredPipeline) -> None:
    process, own = pipeline.gateway.pid, pipeline.pki / "client-gateway.pem"
    # The former certificate ends soon, so that a later connection proves that the gateway shows the new one.
    request = LeafRequest.client("gateway", days=1)
    short = sign_leaf(_read_authority(pipeline.pki)[0], request, now=ending_in(SHORT_SECONDS))
    since, ends_at = time.time(), time.time() + SHORT_SECONDS
    write_private(own, short.pem)
    pipeline.change_mqtt_password("second-mqtt-secret")
    assert not _mqtt_accepts(pipeline, pipeline.passwords["mqtt"])
    rotate_leaves(pipeline.pki, days=30, now=datetime.now(UTC))
    pipeline.wait(lambda: time.time() > ends_at, "the end of the former certificate")
    assert not _mqtt_accepts(pipeline, "second-mqtt-secret", short.pem), "it has ended"
    pipeline.change_mqtt_password("third-mqtt-secret")
    assert serves(pipeline.broker_part.port, pipeline.pki / "server-127.0.0.1.pem")
    pipeline.flows()
    pipeline.note("new certificates and passwords of MQTT", since)
    pipeline.settled()
    assert pipeline.gateway.pid == process
    for text in (pipeline.passwords["mqtt"], "second-mqtt-secret", "third-mqtt-secret"):
        assert text not in pipeline.gateway.log()


def _mqtt_accepts(pipeline: SecuredPipeline, password: str, pem: str = "") -> bool:
    context = ssl.create_default_context(cafile=pipeline.pki / "ca.pem")
    file = pipeline.folder / "shown.pem"
    write_private(file, pem or (pipeline.pki / "client-fleet.pem").read_text())
    context.load_cert_chain(file)
    return connect_accepted(
        "127.0.0.1", pipeline.broker_part.port, level=5, name="gateway", password=password, timeout=5.0, context=context
    )


def test_the_audit_finds_nothing_after_all_of_that(pipeline: SecuredPipeline) -> None:
    verdict = pipeline.settled()
    report = pipeline.audit()
    figures = report.figures
    assert (figures.unaccounted, figures.duplicate_rows, figures.order_violations) == (0, 0, 0), report.to_dict()
    assert (report.behind, figures.stored, figures.dead_lettered) == (0, verdict.sent, 0), report.to_dict()
