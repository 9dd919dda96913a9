"""Faults of the demo: the part, the duration, and the alert that must report it."""

from dataclasses import dataclass
from typing import Final

__all__ = ["FAULTS", "MOST_SECONDS", "DemoFault"]

MOST_SECONDS: Final = 110.0
"""Largest duration: the supervisor restarts a part that hangs for longer, because it counts it as dead after two minutes."""


@dataclass(frozen=True)
class DemoFault:
    """One fault.

    Attributes:
        part: of the embedded run.
        shows: what a person sees while it lasts.
        alert: the alert that must fire and resolve.
        seconds: how long it lasts unless another time is asked for.
        least_seconds: a shorter one is over before its alert fires.
        watcher: the part whose alerts are silent when it is young, and for how many seconds.
    """

    part: str
    shows: str
    alert: str
    seconds: float
    least_seconds: float
    watcher: tuple[str, float]


FAULTS: Final = {
    fault.part: fault
    for fault in (
        DemoFault(
            "kafka",
            "The gateway stops acknowledging; the broker and the gateway hold the messages of the devices.",
            "TidegateKafkaUnreachable",
            60.0,
            20.0,
            ("monitor", 60.0),
        ),
        DemoFault(
            "broker",
            "Devices get no answer; the gateway loses its connection and resumes its session.",
            "TidegateBrokerUnreachable",
            60.0,
            45.0,
            ("monitor", 60.0),
        ),
        DemoFault(
            "gateway",
            "The broker queues the messages of the devices; the canary's readings are missing.",
            "TidegateCanaryMissing",
            100.0,
            90.0,
            ("canary", 180.0),
        ),
        DemoFault(
            "stream",
            "Kafka keeps new records and the lag grows; the canary's readings are missing.",
            "TidegateCanaryMissing",
            100.0,
            90.0,
            ("canary", 180.0),
        ),
    )
}
"""Faults by part. Times follow from the alerts: how long each waits, and how far it looks back."""
