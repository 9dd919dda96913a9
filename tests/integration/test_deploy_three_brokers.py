"""Three secured brokers under a gateway and a fleet: two that die, and secrets of MQTT that change, without a loss.

It takes minutes: `make chaos` runs it.
"""

import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from deploy.certificates.folder import _read_authority, rotate_leaves
from deploy.certificates.issue import LeafRequest, sign_leaf
from deploy.local.broker import find_mosquitto
from deploy.local.broker_answer import connect_accepted
from deploy.settings_file import write_private
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
    yield shared
    shared.load.pause()


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
