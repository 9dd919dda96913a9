"""The faults that can be shown: which part, for how long, and which alert must tell of it."""

from dataclasses import dataclass
from typing import Final

__all__ = ["FAULTS", "MOST_SECONDS", "Fault"]

MOST_SECONDS: Final = 110.0
"""A part that hangs longer is started anew by the supervisor, which takes it for dead after two minutes."""


@dataclass(frozen=True)
class Fault:
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
        Fault(
            "kafka",
            "Nothing is acknowledged any more; the broker and the gateway hold what devices send.",
            "TidegateKafkaUnreachable",
            60.0,
            20.0,
            ("monitor", 60.0),
        ),
        Fault(
            "broker",
            "Devices get no answer; the gateway loses its session and takes it up again.",
            "TidegateBrokerUnreachable",
            60.0,
            45.0,
            ("monitor", 60.0),
        ),
        Fault(
            "gateway",
            "The broker queues what devices send; the canary's readings are missed.",
            "TidegateCanaryMissing",
            100.0,
            90.0,
            ("canary", 180.0),
        ),
        Fault(
            "stream",
            "Kafka keeps what arrives and lag grows; the canary's readings are missed.",
            "TidegateCanaryMissing",
            100.0,
            90.0,
            ("canary", 180.0),
        ),
    )
}
"""By part. Times follow from the alerts: how long each waits, and how far it looks back."""
