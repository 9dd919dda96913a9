"""`tidegate repair`: find what keeps the stream from running, show the fix, and apply it on request. No JVM.

Nothing is ever deleted: files in the way are moved to `<root>/_repair/<time>`, next to a report. If a repair is killed between
two steps, the stream still rejects the state, and the next repair continues.
"""

import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.kafka_settings import KafkaSettings
from ingest.read.record_names import NameReader
from ingest.topics.describe import topic_ids
from ingest.topics.offsets import begin_offsets, end_offsets
from lakehouse.commit_metadata import custom_metadata
from lakehouse.lock import WriterLock, is_held
from lakehouse.paths import is_local, to_path
from lakehouse.tables import TABLES
from streaming.checkpoint import LocalCheckpoint
from streaming.kafka_source import LandedTopics
from streaming.landing_offsets import Offsets, largest_offsets, mark_history, newest_mark, newest_of
from streaming.log_identity import KafkaLog, KafkaView, lost_records
from streaming.lost_records import (
    REPAIR_FOLDER,
    LostRecords,
    StartInstruction,
    find_lost_records,
    read_start_instruction,
    write_start_instruction,
)
from streaming.repair_checkpoint import checkpoint_findings, checkpoint_moves
from streaming.repair_finding import RepairFinding
from streaming.repair_tables import DROP_FLAG, table_findings
from streaming.start_landing import first_offsets
from streaming.stored_times import stored_times
from streaming.vanished_commits import vanished_findings

__all__ = ["ACCEPT_FLAG", "DROP_FLAG", "RepairExamination", "RepairSubject", "apply", "examine_pipeline"]

ACCEPT_FLAG: Final = "--accept-loss"


@dataclass(frozen=True, slots=True)
class RepairSubject:
    """Subject of a repair: the tables' root, the landing's checkpoint, and Kafka (None if it is not asked)."""

    root: Path
    checkpoint: Path
    kafka: KafkaSettings | None
    topics: LandedTopics

    @classmethod
    def of(
        cls, root: str, checkpoint: str, kafka: KafkaSettings | None, topics: LandedTopics | None = None
    ) -> "RepairSubject":
        """Create a subject from settings.

        Raises:
            ConfigError: tables or checkpoint are not on this machine's disk.
        """
        for uri in (root, checkpoint):
            if not is_local(uri):
                message = f"`tidegate repair` works on local disks only, not on {uri}. Use the tools of that store."
                raise ConfigError(message)
        tables, landing = (to_path(uri).absolute() for uri in (root, checkpoint))
        return cls(tables, landing, kafka, topics or LandedTopics())


@dataclass(frozen=True, slots=True)
class RepairExamination:
    """Findings, and notes on what limits them."""

    findings: Sequence[RepairFinding]
    notes: Sequence[str]

    def left(self, flags: Collection[str]) -> list[RepairFinding]:
        """Return the findings that --apply with these flags does not fix, and that stop the stream or a query."""
        return [each for each in self.findings if not each.harmless and not _is_mended(each, flags)]


def examine_pipeline(patient: RepairSubject, *, is_locked: bool = False) -> RepairExamination:
    """Look at checkpoint, tables and Kafka; changes nothing. `is_locked`: the writer's lock is the caller's own."""
    notes: list[str] = []
    if not is_locked and is_held(patient.root):
        notes.append("A writer is running, so a write in progress may look broken. Stop the writer before a repair.")
    findings = [*checkpoint_findings(patient.checkpoint), *table_findings(patient.root, patient.checkpoint)]
    if not any(each.log or each.replay for each in findings):
        findings += _vanished(patient, findings)
    try:
        if any(each.log for each in findings):
            notes.append(
                "Kafka was not examined, because a table is damaged. Run `tidegate repair` again after the fix."
            )
        else:
            findings += _kafka(patient, findings)
    except RetryableError as error:
        notes.append(f"Kafka was not examined: {error}")
    return RepairExamination(findings, notes)


def apply(
    patient: RepairSubject, flags: Collection[str], *, note: dict[str, Any]
) -> tuple[RepairExamination, list[str]]:
    """Examine again under the writer's lock and fix; return the findings and the places of the moved files, as sentences.

    Raises:
        FatalError: a writer is running.
    """
    with ExitStack() as cleanup:
        for folder, what in ((patient.root, "tables"), (patient.checkpoint, "checkpoint")):
            cleanup.callback(WriterLock(folder, what=what, patience_seconds=5.0).close)
        found = examine_pipeline(patient, is_locked=True)
        return found, _mend(patient, [each for each in found.findings if _is_mended(each, flags)], note)


def _is_mended(finding: RepairFinding, flags: Collection[str]) -> bool:
    return not finding.by_hand and (finding.needs is None or finding.needs in flags)


def _mend(patient: RepairSubject, findings: Sequence[RepairFinding], note: dict[str, Any]) -> list[str]:
    if not findings:
        return []
    aside = patient.root / REPAIR_FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    aside.mkdir(parents=True)
    report = {"findings": [each.to_dict() for each in findings], **note}
    (aside / "report.json").write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
    done = [f"The findings are in {aside / 'report.json'}."]
    # The order for the next start comes first: a repair killed after it leaves what the stream refuses anyway.
    if any(each.replay or each.lost for each in findings):
        order = _order(read_start_instruction(str(patient.root)), findings)
        done.append(
            f"The next start reads {write_start_instruction(str(patient.root), order, {'report': str(aside / 'report.json')})}."
        )
    # The checkpoint before the torn commit: without it, and with the commit still there, the stream does not start.
    moved = [_move(patient, path, aside) for path in dict.fromkeys(path for each in findings for path in each.moves)]
    if moved:
        done.append(f"{len(moved)} files and folders were moved to {aside}.")
    done += [_drop(patient.root / each.drop, aside) for each in findings if each.drop is not None]
    return done


def _order(old: StartInstruction, findings: Sequence[RepairFinding]) -> StartInstruction:
    replay: Offsets = {topic: dict(parts) for topic, parts in old.replay.items()}
    for finding in findings:
        for topic, parts in finding.replay.items():
            into = replay.setdefault(topic, {})
            into |= {part: min(at, into.get(part, at)) for part, at in parts.items()}
    return StartInstruction(replay, (*old.accepted, *(each for finding in findings for each in finding.lost)))


def _move(patient: RepairSubject, path: Path, aside: Path) -> Path:
    within = patient.root if path.is_relative_to(patient.root) else patient.checkpoint.parent
    to = aside / path.relative_to(within)
    to.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        shutil.move(path, to)
    return to


def _drop(folder: Path, aside: Path) -> str:
    from deltalake import CommitProperties, DeltaTable

    told = custom_metadata({"repair": str(aside.name)})
    removed = DeltaTable(str(folder)).repair(commit_properties=CommitProperties(custom_metadata=told))["files_removed"]
    return f"{len(removed)} missing data files were removed from the log of {folder.name}."


def _kafka(patient: RepairSubject, findings: Sequence[RepairFinding]) -> Iterator[RepairFinding]:
    """Losses that the next start would refuse; those of what has to be read again are part of that."""
    if patient.kafka is None:
        return
    kafka, names = patient.kafka, patient.topics.names
    try:
        oldest = {topic: begin_offsets(kafka, topic) for topic in names}
        newest = {topic: end_offsets(kafka, topic) for topic in names}
    except RetryableError:
        raise
    except FatalError:
        oldest, newest = {}, {}
    order = read_start_instruction(str(patient.root))
    if any(each.replay for each in findings):
        lost = order.refused(find_lost_records(_order(order, findings).replay, oldest, newest))
    else:
        trust = _is_trusted(patient, findings)
        lost = _losses(patient, KafkaView(oldest, newest, topic_ids(kafka, names)), order, trust=trust)
    if lost:
        yield RepairFinding(
            f"Kafka no longer has the records that come next: {'; '.join(map(str, lost))}.",
            "accepts the loss: sets the checkpoint aside and goes on with the records that Kafka still has; where a log was cut "
            "back, at its first record that differs. The next commit names the lost ranges",
            moves=checkpoint_moves(patient.checkpoint),
            lost=tuple(lost),
            needs=ACCEPT_FLAG,
        )


def _vanished(patient: RepairSubject, findings: Sequence[RepairFinding]) -> Iterator[RepairFinding]:
    """Yield missing commits; none if an earlier repair already set where they land again."""
    checkpoint, order = LocalCheckpoint(patient.checkpoint), read_start_instruction(str(patient.root))
    trust = _is_trusted(patient, findings)
    if order.replay and not (trust and checkpoint.begun()):
        return
    mark = newest_of([newest_mark(str(patient.root), name) for name in TABLES])
    passed = bool(order.unless_in(mark).accepted)
    yield from vanished_findings(patient.root, patient.checkpoint, mark, checkpoint, trust=trust, passed_over=passed)


def _is_trusted(patient: RepairSubject, findings: Sequence[RepairFinding]) -> bool:
    """Return whether the checkpoint stays as it is."""
    return not any(path.is_relative_to(patient.checkpoint) for each in findings for path in each.moves)


def _losses(patient: RepairSubject, view: KafkaView, order: StartInstruction, *, trust: bool) -> list[LostRecords]:
    """Return the losses that the next start would refuse; `trust` if the checkpoint stays as it is."""
    assert patient.kafka is not None  # noqa: S101
    root, checkpoint = str(patient.root), LocalCheckpoint(patient.checkpoint)
    marks = [newest_mark(root, name) for name in TABLES]
    mark, begun = newest_of(marks), trust and checkpoint.begun()
    order = order.unless_in(mark)
    following = (checkpoint.next_offsets() if begun else first_offsets(marks, order.replay)) or {}
    reached = largest_offsets(following, mark.reach if mark else {}, checkpoint.planned_ends() if begun else {})
    reader = NameReader(patient.kafka)
    try:
        log = KafkaLog(patient.kafka, reader)
        stored = stored_times(root, patient.topics.readings)
        lost = lost_records(view, mark, following, reached, lambda: mark_history(root, TABLES), log, stored)
    finally:
        reader.close()
    return order.refused_by_checkpoint(lost, following) if begun else order.refused(lost)
