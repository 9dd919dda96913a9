"""Several gateways share the load: each takes its part of the topics, and one after the other is restarted."""

from collections.abc import Callable
from typing import Any

import pytest

from deploy.chaos.numbered_load import NumberedLoad
from deploy.chaos.run import KafkaReader
from deploy.chaos.verdict import judge
from gateway.gateway_settings import MqttSettings

pytestmark = [pytest.mark.durable_broker, pytest.mark.promise("P3")]

ROUTES = [{"filter": "line/{line}/{device}/readings", "decoder": "native", "device": "{device}"}]


def test_two_gateways_and_a_rolling_restart_keep_each_devices_order(
    fault_rig: Callable[..., Any], start_all: Callable[..., None], wait_until: Any
) -> None:
    rig = fault_rig()
    parts = {"1": "5", "2": "3.1.1"}
    gateways = [
        rig.add(protocol, f"-{part}", mqtt={"subscriptions": [f"line/{part}/#"]}, routes=ROUTES)
        for part, protocol in parts.items()
    ]
    start_all(rig)
    login = {"username": "tester", "password": "a secret: with spaces"}
    mqtt = MqttSettings.model_validate({"host": rig.broker.part.host, "port": rig.broker.part.port, **login})
    loads = [
        NumberedLoad(mqtt, name=f"{rig.name}-{part}", devices=5, topic=f"line/{part}/{{device}}/readings")
        for part in parts
    ]
    reader = KafkaReader(rig.kafka_settings, *(gateway.name for gateway in gateways))
    for load in loads:
        load.start(150)
    for gateway in gateways:
        before = sum(len(load.acknowledged) for load in loads)
        wait_until(lambda least=before + 100: sum(len(one.acknowledged) for one in loads) > least, what="the load")
        assert gateway.terminate(10) == 0, gateway.log()[-1000:]
        gateway.start()
        wait_until(gateway.healthy, what="being up again")
    sent = {}
    for load in loads:
        assert load.finish()
        load.close()
        sent |= load.sent
    wait_until(lambda: not sent.keys() - reader.look().keys(), what="all stored")
    wait_until(lambda: not judge(sent, sent, reader.look()).unexplained, what="the counts")
    verdict = judge(sent, sent, reader.look())
    assert verdict.whole, verdict
    assert verdict.repeated == 0
    shares = {
        gateway.name: {r.topic[:7] for _, r in reader.landed.readings if r.gateway == gateway.name}
        for gateway in gateways
    }
    assert list(shares.values()) == [{"line/1/"}, {"line/2/"}]
