"""Scene of one fault: two gateways, one per MQTT version, under load, behind links that can be made bad."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.chaos.numbered_load import NumberedLoad
from deploy.chaos.proxy import LinkProxy
from deploy.chaos.testbed import ChaosTestbed, GatewayProcess
from deploy.testbed.node import KafkaNode
from deploy.testbed.server_process import SingleServer
from ingest.contract.errors import FatalError

__all__ = ["PROTOCOLS", "FaultScene"]

PROTOCOLS: Final = ("5", "3.1.1")
LOOK_SECONDS: Final = 0.1


@dataclass
class FaultScene:
    """Parts that a fault can break.

    Attributes:
        seconds: how long the fault is to last.
        rng: all chance of the fault comes from here.
        by_device: False where the fault disturbs the publisher's own link, too.
        forgotten: spans of time (epoch seconds) whose messages the broker had acknowledged and may have forgotten.
        figures: what a fault reports besides the verdict, such as the number of kills.
    """

    stage: ChaosTestbed
    load: NumberedLoad
    gateways: list[GatewayProcess]
    proxies: list[LinkProxy]
    seconds: float
    rng: random.Random
    by_device: bool = True
    forgotten: list[tuple[float, float]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def broker(self) -> SingleServer:
        """The MQTT broker."""
        return self.stage.broker

    @property
    def kafka(self) -> SingleServer | KafkaNode:
        """The Kafka."""
        return self.stage.kafka

    def start(self, gateways: Iterable[GatewayProcess] | None = None) -> None:
        """Start the gateways, and wait until messages flow."""
        started = list(self.gateways if gateways is None else gateways)
        for gateway in started:
            gateway.start()
        for gateway in started:
            self.wait(gateway.healthy, 120.0, f"start of {gateway.name} ({gateway.log_file})")

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait until it is true.

        Raises:
            FatalError: it did not become true in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                message = f"no {what} within {seconds:g} s"
                raise FatalError(message)
            time.sleep(LOOK_SECONDS)

    def until(self) -> float:
        """The monotonic time at which the fault is to end, counted from now."""
        return time.monotonic() + self.seconds
