"""One redrive from settings to report: finds the letters, opens what it needs, closes it again."""

import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack

from deploy.dlq.dead_letter_query import find_dead_letters
from deploy.dlq.journal import RedriveJournal
from deploy.dlq.redrive import RedriveReport, RedriveRun
from deploy.settings import Settings
from gateway.decoders.state import DecoderState
from gateway.memory.restart_state import is_own_state
from gateway.message_processor import MessageProcessor
from gateway.profiles.policy import make_policy
from gateway.routes import compile_routes
from ingest.contract.errors import TidegateError

__all__ = ["make_redrive_processor", "run_redrive"]


def make_redrive_processor(settings: Settings, state: Iterable[tuple[str, bytes]] = ()) -> MessageProcessor:
    """Create the gateway's own judgement by these settings, without the rate: a redrive by a person is not a flood.

    `state` is what gateways remember of births and aliases. Steps and standing values are judged within the redrive
    alone: what the live gateway saw last is of another time.
    """
    policy = make_policy(settings.gateway, settings.routes, live=False)
    routes = compile_routes(settings.routes, settings.gateway)
    state = [(key, value) for key, value in state if not is_own_state(key)]
    return MessageProcessor(routes, settings.gateway, state=DecoderState(state), policy=policy)


def _state(settings: Settings, *, needed: bool) -> list[tuple[str, bytes]]:
    from ingest.gateway_state import read_state

    try:
        return read_state(settings.kafka)
    except TidegateError:
        if needed:
            raise
        return []  # a dry run works without Kafka; messages that need a birth are then rejected


def run_redrive(
    settings: Settings,
    *,
    where: str | None,
    limit: int | None,
    again: bool,
    rate: float,
    dry_run: bool,
    stop: threading.Event,
) -> RedriveReport:
    """Redrive the letters that `where` finds, and report the result of each.

    Raises:
        FatalError: another redrive runs; RetryableError: Kafka does not take records.
        TidegateError: `where` is not SQL.
    """
    from ingest.producer import open_writer
    from ingest.record_limits import LearnedLimits

    root, run = settings.lake.root, time.time_ns() // 1_000_000
    gate = make_redrive_processor(settings, _state(settings, needed=not dry_run))
    with ExitStack() as cleanup:
        journal = writer = None
        if not dry_run:
            journal = RedriveJournal(root, run)
            cleanup.callback(journal.close)
            journal.join_files(settings.lake.dead_letters_days)
            writer = open_writer(settings.kafka, client_id="tidegate-redrive", learned=LearnedLimits(batch_bytes=1))
            cleanup.callback(writer.close)
        # Found under the lock: what another redrive has just done is done.
        young = max(0.0, settings.stream.horizon_days * 86_400 - settings.mqtt.session_expiry_seconds)
        redrive = RedriveRun(root, gate, run=run, writer=writer, journal=journal, young_us=int(young * 1_000_000))
        for letters in find_dead_letters(root, where, limit, again=again):
            redrive.run(letters, rate=rate, stop=stop)
            if stop.is_set():
                break
        return redrive.report
