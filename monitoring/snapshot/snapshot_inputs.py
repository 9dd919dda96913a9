"""Data of a snapshot besides metrics, given by the process that serves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KafkaNames", "SnapshotInputs"]


@dataclass(frozen=True, slots=True)
class KafkaNames:
    """Kafka's topic and the group that lands it, passed in because monitoring imports no hop."""

    readings: str
    group: str


@dataclass(frozen=True, slots=True)
class SnapshotInputs:
    """Side data of one look.

    Attributes:
        parts: parts of the embedded run, by name: state, since, detail; None without a supervisor, when the targets count.
        ready: whether the embedded run is ready, as its supervisor reports.
        started_at: start of this monitor in epoch seconds.
        targets: job -> scraped address.
        probes: probe -> its fault; empty text while it answers.
        alerts: all current alerts, each as the page shows it.
        command: the program's name and its options (`name`, `where`), for complete commands on the page.
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
