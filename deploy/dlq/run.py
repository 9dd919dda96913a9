"""One redrive from settings to report: finds the letters, opens what it needs, closes it again."""

import threading
import time
from contextlib import ExitStack

from deploy.dlq.journal import Journal
from deploy.dlq.letters import find_letters
from deploy.dlq.redrive import Redrive, Report
from deploy.settings import Settings
from gateway.outcome import Gate
from gateway.routes import compile_routes

__all__ = ["make_gate", "run_redrive"]


def make_gate(settings: Settings) -> Gate:
    """The gateway's own judgement by these settings."""
    return Gate(compile_routes(settings.routes), settings.gateway)


def run_redrive(
    settings: Settings,
    *,
    where: str | None,
    limit: int | None,
    again: bool,
    rate: float,
    dry_run: bool,
    stop: threading.Event,
) -> Report:
    """Redrive the letters that `where` finds, and say what became of each.

    Raises:
        FatalError: another redrive runs; RetryableError: Kafka does not take records.
        TidegateError: `where` is no SQL.
    """
    from ingest.producer import open_writer

    root, run = settings.lake.root, time.time_ns() // 1_000_000
    gate = make_gate(settings)
    with ExitStack() as cleanup:
        journal = writer = None
        if not dry_run:
            journal = Journal(root, run)
            cleanup.callback(journal.close)
            writer = open_writer(settings.kafka, client_id="tidegate-redrive")
            cleanup.callback(writer.close)
        # Found under the lock: what another redrive has just done is done.
        letters = find_letters(root, where, limit, again=again)
        return Redrive(root, gate, run=run, writer=writer, journal=journal).run(letters, rate=rate, stop=stop)
