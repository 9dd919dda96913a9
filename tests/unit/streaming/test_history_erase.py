"""When an erasure may say that the derived tables have taken it in, without a JVM."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakehouse.create import create_table
from lakehouse.derived_tables import LEDGER
from lakehouse.tables import DEAD_LETTERS, READINGS
from streaming.derive.ledger import LedgerDerivation
from streaming.derive.shared_arrivals import SharedArrivals
from streaming.history.erase import _derive
from streaming.history.receipt import ErasureReceipt


def test_tables_that_are_merely_not_due_are_not_up_to_date(tmp_path: Path) -> None:
    for table in (READINGS, DEAD_LETTERS, LEDGER):
        create_table(str(tmp_path), table, log_retention_hours=24)
    nothing: Any = None
    writer: Any = SimpleNamespace(root=str(tmp_path), background_tasks={})
    arrivals = SharedArrivals(nothing, writer.root, every_seconds=3600)
    LedgerDerivation(writer, arrivals)
    passes: list[bool] = []

    def run_pass() -> bool:
        passes.append(arrivals.begin())
        arrivals.release()
        return False

    writer.background_tasks["derive"] = run_pass
    run_pass()
    run_pass()
    assert _derive(writer, ErasureReceipt(writer.root, "1")) == "up to date"
    assert passes == [True, False, True]


def test_passes_of_others_are_due_when_they_say_so(tmp_path: Path) -> None:
    writer: Any = SimpleNamespace(root=str(tmp_path), background_tasks={"derive": lambda: False})
    assert _derive(writer, ErasureReceipt(writer.root, "1")) == "up to date"
