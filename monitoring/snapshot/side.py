"""What a snapshot tells beside metrics: given by the process that serves it, each part by whoever knows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Names", "Side"]


@dataclass(frozen=True, slots=True)
class Names:
    """Names that monitoring, which knows no hop, is told: Kafka's topics and the group that lands them."""

    readings: str
    group: str


@dataclass(frozen=True, slots=True)
class Side:
    """Side data of one look.

    Attributes:
        parts: of the embedded run, by name: state, since, detail; None where nobody supervises, and targets speak.
        ready: whether that run is, as its supervisor says.
        started_at: when this monitor began to look.
        targets: job -> address, as they are scraped.
        probes: probe -> what keeps it from answering; empty text while it answers.
        alerts: all that are told now, each as the page shows it.
        command: what a person writes before and behind the words of a command: name and where.
    """

    version: str
    started_at: float
    targets: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] | None = None
    ready: bool | None = None
    tables: Sequence[Mapping[str, Any]] = ()
    devices: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] | None = None
    alerts: Sequence[Mapping[str, Any]] = ()
    prometheus_up: bool | None = None
    alertmanager_up: bool | None = None
    command: Mapping[str, str] | None = None
    redrive: bool = False
    disk_free_bytes: float | None = None
