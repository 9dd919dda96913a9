"""Finding of the monitor's audits, kept until an audit of the same time finds nothing, or until a person accepts it.

Without it, one audit would report a loss, and the next one, which does not reach back so far, would not. The finding is a small
file next to the settings, or in `monitoring.state_dir`, so that it survives a restart of the monitor. Only the monitor writes
the file; `tidegate audit --accept` removes it and leaves a report.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from lakehouse.atomic_file import write_json
from monitoring.monitoring_settings import MonitoringSettings

__all__ = [
    "AuditFinding",
    "BalanceFaults",
    "FindingFile",
    "FinishedAudit",
    "accept_finding",
    "finding_after",
    "finding_file",
    "state_folder",
]

FILE_NAME: Final = "audit-finding.json"

Ranges = Mapping[str, tuple[int, int]]
"""Partition -> (first offset, offset after the last)."""

logger = logging.getLogger("tidegate.deploy.monitor")


class BalanceFaults(NamedTuple):
    """Counts that must all be 0."""

    unaccounted: int = 0
    duplicate_rows: int = 0
    order_violations: int = 0


@dataclass(frozen=True, slots=True)
class FinishedAudit:
    """One finished audit. Times are receive times in epoch seconds.

    Attributes:
        since: start of the audited time.
        until: start of the audit.
        pending: messages that have not landed yet and may still be lost.
        faults: the faults that it found, without pending messages.
        read: the offsets that it read of each partition.
        oldest: the first offset of each partition that Kafka then had.
    """

    since: float
    until: float
    pending: int
    faults: BalanceFaults
    read: Ranges
    oldest: Mapping[str, int]

    @classmethod
    def of(cls, report: Mapping[str, Any], *, began_at: float, window_seconds: float) -> Self:
        """Return an audit from the report of `tidegate audit --json`."""
        pending = int(report.get("pending", 0))
        unaccounted = max(0, int(report["unaccounted"]) - pending)
        faults = BalanceFaults(unaccounted, int(report["duplicate_rows"]), int(report["order_violations"]))
        since = datetime.fromisoformat(report["since"]).timestamp() if "since" in report else began_at - window_seconds
        read = {where: (int(start), int(end)) for where, (start, end) in _by_partition(report.get("offsets"))}
        return cls(since, began_at, pending, faults, read, dict(_by_partition(report.get("oldest"))))

    def can_see(self, read: Ranges) -> bool:
        """Return whether Kafka still has these records: retention deleted none, and no topic was recreated or truncated."""
        ends = {where: end for where, (_, end) in self.read.items()}
        return all(
            self.oldest.get(where, end) <= start and ends.get(where, start) >= end
            for where, (start, end) in read.items()
            if end > start
        )


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Faults, the receive time in which they lie, and the records that show them.

    `provable` is False once Kafka no longer has all of these records.
    """

    since: float
    until: float
    faults: BalanceFaults
    read: Ranges = field(default_factory=dict)
    provable: bool = True

    def describe(self) -> str:
        """Return the finding as a note of the audit."""
        end = (
            "The finding stays until an audit of this time finds nothing, or until `tidegate audit --accept`."
            if self.provable
            else "Kafka no longer has all records of this time, so no audit can clear the finding: accept it with "
            "`tidegate audit --accept`."
        )
        return f"Faults are in messages received from {_clock(self.since)} to {_clock(self.until)}. {end}"


def finding_after(held: AuditFinding | None, audited: FinishedAudit) -> AuditFinding | None:
    """Return the finding after one more audit; None only if there is no fault, or the audit has cleared all of it."""
    wrong = any(audited.faults)
    if held is None:
        return AuditFinding(audited.since, audited.until, audited.faults, audited.read) if wrong else None
    provable = held.provable and audited.can_see(held.read)
    if provable and audited.since <= held.since:
        if wrong:
            return AuditFinding(held.since, audited.until, audited.faults, audited.read)
        # Pending messages may be the lost ones.
        return held if audited.pending else None
    if not wrong:
        return replace(held, provable=provable)
    # Where the times overlap, both may contain the same faults; an audit of the whole time will show it.
    both = [
        max(pair) if audited.since < held.until else sum(pair) for pair in zip(held.faults, audited.faults, strict=True)
    ]
    return AuditFinding(held.since, audited.until, BalanceFaults(*both), held.read, provable)


class FindingFile:
    """The current finding and its file. `fault` says why it would not survive a restart; it is empty if it would.

    Args:
        file: file of the finding; None keeps it in memory only.
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self.fault = file, ""
        self.held = _read(file) if file is not None else None
        self._is_kept = self.held is not None

    def take(self, audited: FinishedAudit) -> None:
        """Update the finding with one more audit."""
        before, self.held = self.held, finding_after(self.held, audited)
        if self.held is None:
            if before is not None:
                logger.info("an audit cleared the finding: %s", before.describe())
                self._forget()
        elif self.held != before:
            self._keep(self.held)

    def was_accepted(self) -> AuditFinding | None:
        """Return the finding that a person accepted since the last call, which removes its file; else None."""
        if self.held is None or not self._is_kept or self._file is None or self._file.exists():
            return None
        accepted, self.held, self._is_kept = self.held, None, False
        logger.info("a person accepted the audit's finding: %s", accepted.describe())
        return accepted

    def _keep(self, held: AuditFinding) -> None:
        if self._file is None:
            return
        try:
            write_json(self._file, asdict(held))
        except OSError as error:
            self.fault = (
                f"{self._file} cannot be written ({error.strerror}): a restart of the monitor loses the finding."
            )
            logger.warning("%s", self.fault)
        else:
            self._is_kept, self.fault = True, ""

    def _forget(self) -> None:
        if self._file is not None and self._is_kept:
            self._file.unlink(missing_ok=True)
        self._is_kept, self.fault = False, ""


def state_folder(settings: MonitoringSettings, config: Path) -> Path:
    """Return the folder in which the monitor with this settings file keeps its finding."""
    return Path(settings.state_dir) if settings.state_dir is not None else config.absolute().parent


def finding_file(folder: Path) -> Path:
    """Return the file in which the monitor with this folder keeps its finding."""
    return folder / FILE_NAME


def accept_finding(folder: Path, author: str) -> tuple[AuditFinding, Path] | None:
    """Remove the monitor's finding and write a report next to it; return None without a finding."""
    file = finding_file(folder)
    held = _read(file)
    if held is None:
        return None
    at = datetime.now(UTC)
    report = folder / f"audit-accepted-{at:%Y%m%dT%H%M%S}.json"
    write_json(report, {**asdict(held), "accepted_at": at.isoformat(), "author": author})
    file.unlink(missing_ok=True)
    return held, report


def _read(file: Path) -> AuditFinding | None:
    try:
        found = json.loads(file.read_text("utf-8"))
        read = {where: (int(start), int(end)) for where, (start, end) in found["read"].items()}
        return AuditFinding(
            float(found["since"]), float(found["until"]), BalanceFaults(*found["faults"]), read, found["provable"]
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s cannot be read (%s): the finding of an earlier audit is unknown", file, error)
        return None


def _by_partition(topics: Mapping[str, Mapping[str, Any]] | None) -> Iterator[tuple[str, Any]]:
    for topic, parts in (topics or {}).items():
        for partition, told in parts.items():
            yield f"{topic}/{partition}", told


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
