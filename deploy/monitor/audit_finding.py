"""What a running audit found wrong: held until one that looks at all of it again finds nothing, or a person accepts it.

Without this a loss would be told for one audit and be well with the next, which no longer reaches back to it. It is a small
file beside the settings, so that a monitor that starts anew knows it. Only the monitor writes it; `tidegate audit --accept` takes
it away and leaves a report.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from lakehouse.whole_file import write_json

__all__ = ["Audited", "Faults", "Finding", "FindingFile", "accept_finding", "finding_after", "finding_file"]

FILE_NAME: Final = "audit-finding.json"

Ranges = Mapping[str, tuple[int, int]]
"""Partition -> first offset, and the one after the last."""

logger = logging.getLogger("tidegate.deploy.monitor")


class Faults(NamedTuple):
    """What must all be 0."""

    unaccounted: int = 0
    duplicate_rows: int = 0
    order_violations: int = 0


@dataclass(frozen=True, slots=True)
class Audited:
    """One audit that came to its end. Instants are epoch seconds, of receive.

    Attributes:
        since: where it began to look.
        until: when it was started.
        pending: messages that have not landed yet, and may still be lost.
        faults: what it found, without those.
        read: what it read of each partition.
        oldest: the first offset that Kafka then had of each.
    """

    since: float
    until: float
    pending: int
    faults: Faults
    read: Ranges
    oldest: Mapping[str, int]

    @classmethod
    def of(cls, report: Mapping[str, Any], *, began_at: float, window_seconds: float) -> Self:
        """From what `tidegate audit --json` says."""
        pending = int(report.get("pending", 0))
        unaccounted = max(0, int(report["unaccounted"]) - pending)
        faults = Faults(unaccounted, int(report["duplicate_rows"]), int(report["order_violations"]))
        since = datetime.fromisoformat(report["since"]).timestamp() if "since" in report else began_at - window_seconds
        read = {where: (int(start), int(end)) for where, (start, end) in _by_partition(report.get("offsets"))}
        return cls(since, began_at, pending, faults, read, dict(_by_partition(report.get("oldest"))))

    def can_see(self, read: Ranges) -> bool:
        """Whether Kafka still has these records: retention took none, and no topic was made anew or cut."""
        ends = {where: end for where, (_, end) in self.read.items()}
        return all(
            self.oldest.get(where, end) <= start and ends.get(where, start) >= end
            for where, (start, end) in read.items()
            if end > start
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, in what was received when, and which records show it. `provable` ends once Kafka has not all of them."""

    since: float
    until: float
    faults: Faults
    read: Ranges = field(default_factory=dict)
    provable: bool = True

    def told(self) -> str:
        """As a note of the audit."""
        end = (
            "Until an audit that reaches back to it finds nothing, or until `tidegate audit --accept`, it stands."
            if self.provable
            else "Kafka no longer has all of its records, so no audit can clear it: it stands until `tidegate audit --accept`."
        )
        return f"What is wrong lies in what was received from {_clock(self.since)} to {_clock(self.until)}. {end}"


def finding_after(held: Finding | None, audited: Audited) -> Finding | None:
    """What is held after one more audit: None only where nothing was, or where all of it was proven to be well."""
    wrong = any(audited.faults)
    if held is None:
        return Finding(audited.since, audited.until, audited.faults, audited.read) if wrong else None
    provable = held.provable and audited.can_see(held.read)
    if provable and audited.since <= held.since:
        if wrong:
            return Finding(held.since, audited.until, audited.faults, audited.read)
        # What has not landed may be what is lost.
        return held if audited.pending else None
    if not wrong:
        return replace(held, provable=provable)
    # The same faults may lie in both where the times overlap: an audit of all of it will tell.
    both = [
        max(pair) if audited.since < held.until else sum(pair) for pair in zip(held.faults, audited.faults, strict=True)
    ]
    return Finding(held.since, audited.until, Faults(*both), held.read, provable)


class FindingFile:
    """The finding that is held, and its file. `fault` says why it is not kept over a restart; empty where it is.

    Args:
        file: where it is kept; None keeps it in memory only.
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self.fault = file, ""
        self.held = _read(file) if file is not None else None
        self._is_kept = self.held is not None

    def take(self, audited: Audited) -> None:
        """One more audit."""
        before, self.held = self.held, finding_after(self.held, audited)
        if self.held is None:
            if before is not None:
                logger.info("an audit found what was wrong to be well again: %s", before.told())
                self._forget()
        elif self.held != before:
            self._keep(self.held)

    def was_accepted(self) -> Finding | None:
        """The one that a person accepted since the last call: its file is gone."""
        if self.held is None or not self._is_kept or self._file is None or self._file.exists():
            return None
        accepted, self.held, self._is_kept = self.held, None, False
        logger.info("a person accepted what the audit found: %s", accepted.told())
        return accepted

    def _keep(self, held: Finding) -> None:
        if self._file is None:
            return
        try:
            write_json(self._file, asdict(held))
        except OSError as error:
            self.fault = f"{self._file} cannot be written ({error.strerror}), so a restart of the monitor forgets it."
            logger.warning("%s", self.fault)
        else:
            self._is_kept, self.fault = True, ""

    def _forget(self) -> None:
        if self._file is not None and self._is_kept:
            self._file.unlink(missing_ok=True)
        self._is_kept, self.fault = False, ""


def finding_file(folder: Path) -> Path:
    """Where the monitor whose settings lie in this folder keeps its finding."""
    return folder / FILE_NAME


def accept_finding(folder: Path, author: str) -> tuple[Finding, Path] | None:
    """Take the finding from the monitor and leave a report beside it; None where there is none."""
    file = finding_file(folder)
    held = _read(file)
    if held is None:
        return None
    at = datetime.now(UTC)
    report = folder / f"audit-accepted-{at:%Y%m%dT%H%M%S}.json"
    write_json(report, {**asdict(held), "accepted_at": at.isoformat(), "author": author})
    file.unlink(missing_ok=True)
    return held, report


def _read(file: Path) -> Finding | None:
    try:
        found = json.loads(file.read_text("utf-8"))
        read = {where: (int(start), int(end)) for where, (start, end) in found["read"].items()}
        return Finding(float(found["since"]), float(found["until"]), Faults(*found["faults"]), read, found["provable"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s cannot be read (%s): what an earlier audit found is not known", file, error)
        return None


def _by_partition(topics: Mapping[str, Mapping[str, Any]] | None) -> Iterator[tuple[str, Any]]:
    for topic, parts in (topics or {}).items():
        for partition, told in parts.items():
            yield f"{topic}/{partition}", told


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
