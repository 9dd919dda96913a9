"""Three secured brokers under a gateway and a fleet: with two of them gone nothing is acknowledged, and nothing is lost.

It takes minutes: `make chaos` runs it.
"""

import time
from collections.abc import Iterator

import pytest

from deploy.local.broker import find_mosquitto
from tests.support.secured_pipeline import INFLIGHT, SecuredPipeline, secured_pipeline

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1800),
    pytest.mark.durable_broker,
    pytest.mark.promise("P1"),
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not on this machine"),
]
RATE = 200.0
OUTAGE_SECONDS = 4.0


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
