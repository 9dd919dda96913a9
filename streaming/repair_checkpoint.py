"""Damage of the landing's checkpoint, and the files to set aside so that Spark can continue."""

from collections.abc import Iterator
from pathlib import Path

from ingest.contract.errors import FatalError
from streaming.checkpoint import LocalCheckpoint
from streaming.repair_finding import RepairFinding

__all__ = ["checkpoint_findings", "checkpoint_moves"]


def checkpoint_findings(folder: Path) -> Iterator[RepairFinding]:
    """Yield at most one finding: a checkpoint without metadata is set aside as a whole, else back to its last good batch."""
    checkpoint = LocalCheckpoint(folder)
    try:
        checkpoint.query_id()
    except FatalError:
        yield RepairFinding(
            f"The file `metadata` of the checkpoint {folder} is missing or damaged: Spark would start a new query and count its "
            "batches from 0.",
            "sets the checkpoint aside; landing goes on from the offsets in the tables",
            moves=checkpoint_moves(folder),
        )
        return
    what = checkpoint.damage()
    if what is None:
        return
    good = checkpoint.last_good()
    if good is None:
        then = "sets the checkpoint aside; landing goes on from the offsets in the tables"
        yield RepairFinding(f"The checkpoint {folder} can't be used: {what}.", then, moves=checkpoint_moves(folder))
        return
    later = tuple(path for name in ("offsets", "commits") for path in _after(folder / name, good))
    yield RepairFinding(
        f"The checkpoint {folder} can't be used: {what}.",
        f"goes back to batch {good}, the last complete one, and sets the files of later batches aside; the tables know what "
        "those batches landed, so no row lands again",
        moves=later,
    )


def checkpoint_moves(folder: Path) -> tuple[Path, ...]:
    """All of a checkpoint, but for the lock that keeps a second writer away."""
    return tuple(sorted(path for path in folder.iterdir() if path.name != "_writer.lock")) if folder.is_dir() else ()


def _after(folder: Path, batch: int) -> list[Path]:
    """Files of later batches, their checksums and temporary ones included."""

    def number(name: str) -> str:
        return name.lstrip(".").partition(".")[0]

    return sorted(path for path in folder.iterdir() if number(path.name).isdigit() and int(number(path.name)) > batch)
