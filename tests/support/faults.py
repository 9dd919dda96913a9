"""For tests that break things: a real broker, a real Kafka, real gateway processes of both MQTT versions, and a judge."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.chaos.numbered_load import NumberedLoad
from deploy.chaos.proxy import LinkProxy
from deploy.chaos.run import KafkaReader
from deploy.chaos.testbed import ChaosTestbed, GatewayProcess
from deploy.chaos.verdict import DeliveryVerdict, RecordedMessages, judge
from deploy.local.broker import Mosquitto, find_mosquitto
from deploy.local.ports import choose_port
from deploy.testbed.server_process import SingleServer
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics

USER, PASSWORD = "tester", "a secret: with spaces"
PROTOCOLS = ("5", "3.1.1")


class BorrowedKafka:
    """The session's Kafka, which a fault may hold or kill as long as it is up again at the end."""

    def __init__(self, server: Any) -> None:
        self._server, self.part = server, server.part

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.restart()

    def hold(self) -> None:
        self._server.hold()

    def resume_process(self) -> None:
        self._server.resume_process()


class Rig:
    """A gateway per MQTT version on one broker, each with a session of its own, so that each gets every message."""

    def __init__(self, folder: Path, name: str, broker: SingleServer, kafka: Any) -> None:
        self.name = name
        self.stage = ChaosTestbed(folder, broker, kafka, username=USER, password=PASSWORD)
        self.broker, self.kafka = broker, kafka
        self.kafka_settings = KafkaSettings(bootstrap_servers=kafka.part.bootstrap_servers, partitions=2)
        ensure_topics(self.kafka_settings)
        self.gateways: list[GatewayProcess] = []
        self._readers: dict[str, KafkaReader] = {}
        self._load: NumberedLoad | None = None

    def add(
        self, protocol: str, suffix: str = "", *, mqtt: dict[str, Any] | None = None, **more: Any
    ) -> GatewayProcess:
        """A gateway that is not started yet."""
        name = f"{self.name}-{protocol.replace('.', '')}{suffix}"
        settings = self.stage.settings(
            name, mqtt={"protocol": protocol, "keepalive_seconds": 5, **(mqtt or {})}, **more
        )
        self._readers[name] = KafkaReader(self.kafka_settings, name)
        self.gateways.append(self.stage.gateway(settings))
        return self.gateways[-1]

    @property
    def load(self) -> NumberedLoad:
        if self._load is None:
            mqtt = {
                "host": self.broker.part.host,
                "port": self.broker.part.port,
                "username": USER,
                "password": PASSWORD,
            }
            self._load = NumberedLoad(MqttSettings.model_validate(mqtt), name=self.name, devices=4)
        return self._load

    def landed(self, gateway: GatewayProcess) -> RecordedMessages:
        """What is in Kafka of it; as far as known, while Kafka does not answer."""
        reader = self._readers[gateway.name]
        with suppress(RetryableError):
            reader.look()
        return reader.landed

    def has_all(self, gateway: GatewayProcess) -> bool:
        return not set(self.load.sent).difference(self.landed(gateway).keys())

    def judge(self, gateway: GatewayProcess, **how: Any) -> DeliveryVerdict:
        return judge(self.load.sent, self.load.acknowledged, self.landed(gateway), **how)

    def close(self) -> None:
        if self._load is not None:
            self._load.close()
        self.stage.close()
        self.broker.kill()


MakeRig = Callable[..., Rig]


@contextmanager
def rig_maker(folder: Path, kafka_server: Any) -> Iterator[MakeRig]:
    made: list[Rig] = []

    def make(*, kafka: Any = None, **limits: Any) -> Rig:
        if find_mosquitto() is None:
            pytest.skip("mosquitto is not on this machine")
        own = folder / f"stage-{len(made)}"
        own.mkdir()
        part = Mosquitto(own / "broker", choose_port(0)[0], users={USER: PASSWORD}, **limits)
        broker = SingleServer(part, own / "broker.log")
        try:
            name = f"t-{uuid.uuid4().hex[:12]}"
            made.append(Rig(own, name, broker, kafka or BorrowedKafka(kafka_server)))
        except BaseException:
            broker.kill()
            raise
        return made[-1]

    try:
        yield make
    finally:
        for rig in made:
            rig.close()


@pytest.fixture
def fault_rig(tmp_path: Path, kafka_server: Any) -> Iterator[MakeRig]:
    """`fault_rig(**limits of the broker)`; skips where mosquitto is not there: the other broker forgets in a fault."""
    with rig_maker(tmp_path, kafka_server) as make:
        yield make


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory: pytest.TempPathFactory, kafka_server: Any) -> Iterator[MakeRig]:
    """The same for faults after which a rig is as good as new: its gateways need not be started for each."""
    with rig_maker(tmp_path_factory.mktemp("shared"), kafka_server) as make:
        yield make


@pytest.fixture(scope="session")
def start_all(wait_until: Any) -> Callable[..., None]:
    """`start_all(rig)`: every gateway up and subscribed."""

    def start(rig: Rig, *runner: str) -> None:
        for gateway in rig.gateways:
            gateway.start(*runner)
        for gateway in rig.gateways:
            wait_until(lambda one=gateway: one.ended is not None or one.healthy(), what=f"{gateway.name} being up")
            assert gateway.ended is None, gateway.log()[-1000:]

    return start


@pytest.fixture
def assert_whole(wait_until: Any) -> Callable[..., list[DeliveryVerdict]]:
    """`assert_whole(rig)`: nothing lost, doubled, swapped or unexplained, at each gateway, once all has arrived."""

    def check(rig: Rig, *gateways: GatewayProcess, seconds: float = 60.0, **how: Any) -> list[DeliveryVerdict]:
        assert rig.load.finish(), "the publisher has no PUBACK for some messages"
        verdicts = []
        for gateway in gateways or rig.gateways:
            wait_until(lambda one=gateway: rig.has_all(one), seconds=seconds, what=f"all messages by {gateway.name}")
            wait_until(lambda one=gateway: not rig.judge(one).unexplained, what=f"the counts of {gateway.name}")
            verdicts.append(rig.judge(gateway, **how))
            assert verdicts[-1].whole, (gateway.name, verdicts[-1], gateway.log()[-2000:])
            assert verdicts[-1].stored == len(rig.load.sent)
            assert "Traceback" not in gateway.log(), gateway.log()
        return verdicts

    return check


@pytest.fixture
def new_proxy() -> Iterator[Callable[[int], LinkProxy]]:
    """`new_proxy(port)`: a link to that port of loopback which a test can make bad."""
    made: list[LinkProxy] = []

    def make(port: int) -> LinkProxy:
        made.append(LinkProxy(("127.0.0.1", port)))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


def native(seq: int, **more: Any) -> bytes:
    return json.dumps({"boot": 1, "seq": seq, "values": {"temp": 21.5}, **more}).encode()
