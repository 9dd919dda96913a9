"""Correction of rows of `readings`: the handler of the request `correct`.

It is one Delta transaction. Corrected rows have the flag `corrected`, and the version before it has the old rows. The derived
tables follow by themselves: the removed files in the table's log show which windows to recalculate.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakehouse.requests import Request
from lakehouse.tables import READINGS
from streaming.history.journal import CorrectionJournal
from streaming.history.plan_correction import CorrectionPlan, plan_correction
from streaming.history.rewrite import applied, rewrite_files
from streaming.history.row_correction import RowCorrection
from streaming.history.selection import RowSelection
from streaming.writer_context import WriterContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["correct"]


def correct(writer: WriterContext, request: Request) -> dict[str, Any]:
    """Make the correction that is asked for, once, however often this is called with the request.

    The request's arguments: `device`, `metric`, `from`, `to` and those of a `RowCorrection`.

    Raises:
        TidegateError: there is nothing to correct, or it cannot be done so; nothing was changed.
    """
    journal = CorrectionJournal(writer.root)
    if done := journal.find(request.id, "done"):
        return {**done, "again": True}
    if begun := journal.find(request.id, "begun"):
        commit = applied(writer.root, READINGS.name, request.id, after=begun["version"])
        if commit is not None:
            return _finish(journal, request, commit["corrected"], commit["version"])
    selection, change = RowSelection.of(request.arguments), RowCorrection.of(request.arguments)
    plan = plan_correction(writer.root, selection, change)
    if begun is None:
        journal.add({"id": request.id, "state": "begun", "version": plan.match.version, "at": _now()})
    told = plan.as_dict()
    version = _commit(writer, request, selection, plan, told)
    return _finish(journal, request, told, version)


def _commit(
    writer: WriterContext, request: Request, selection: RowSelection, plan: CorrectionPlan, told: dict[str, Any]
) -> int:
    def change(rows: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        chosen = selection.condition() & plan.change.is_touched()
        if plan.change.delete:
            return rows.where(~chosen)
        return rows.withColumns(
            {name: F.when(chosen, column).otherwise(F.col(name)) for name, column in plan.change.columns().items()}
        )

    files = plan.match.data_files
    rows = plan.match.total_rows - plan.removed_rows
    # The log keeps what was done, not the content of rows.
    effect = {key: value for key, value in told.items() if key != "example"}
    metadata = {"request": request.mark(), "corrected": effect}
    return rewrite_files(writer, READINGS, files, change, rows=rows, metadata=metadata)


def _finish(journal: CorrectionJournal, request: Request, told: dict[str, Any], version: int) -> dict[str, Any]:
    entry = {
        "id": request.id,
        "state": "done",
        "at": _now(),
        "asked_at": request.at,
        "author": request.author,
        "reason": request.reason,
        **request.arguments,
        **told,
        "version": version,
        "before_version": version - 1,
    }
    journal.add(entry)
    return {key: value for key, value in entry.items() if key != "state"}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
