"""Tables with dead letters over a log in memory; `from tests.support.dead_letters import Lake`."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from deploy.dlq.dead_letter_query import find_dead_letters
from deploy.dlq.journal import RedriveJournal
from deploy.dlq.redrive import RedriveReport, RedriveRun
from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.message_processor import Message, MessageProcessor, Outcome
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.reading import decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS
from ingest.memory import MemoryLog
from lakehouse.create import ensure_tables
from lakehouse.tables import TABLES

__all__ = ["AT_US", "EPOCH", "LANDED", "LIMITS", "Lake", "moment"]

LIMITS = GatewaySettings()
EPOCH, AT_US = 1_700_000_000_000, 1_795_830_000_000_000
LANDED = datetime.now(UTC) - timedelta(hours=1)


class Lake:
    """Tables with what a gateway without routes refused; `redrive` is a run by a gateway that has one."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.log = MemoryLog()
        self._number = 0
        ensure_tables(self.root, TABLES.values(), log_retention_hours=24)

    def receive(self, topic: str, payload: bytes, *, gate: MessageProcessor | None = None, **more: Any) -> Outcome:
        """Refuse or accept a message as a gateway without routes does, and land what comes of it."""
        self._number += 1
        message = Message(self._number, EPOCH, AT_US + self._number, topic.encode(), payload, **more)
        outcome = (gate or MessageProcessor(compile_routes(()), LIMITS)).decide(message)
        for record in outcome.records:
            if record.topic == READINGS:
                self.land_readings(decode_record(record.value))
            else:
                self._land_letter(decode_dead_letter(record.value), payload)
        return outcome

    def _land_letter(self, letter: Any, payload: bytes) -> None:
        kept = b"" if letter.payload_sha256 else payload
        row = {
            "reason": letter.reason.value, "stage": "gateway", "path": letter.path, "got": letter.got,
            "wanted": letter.wanted, "device": letter.device, "mqtt_topic": letter.topic, "payload": kept,
            "received_at": moment(letter.received_us), "gateway": letter.gateway, "attempt": 0, "partition": 0,
            "offset": DeltaTable(f"{self.root}/dead_letters").version(), "source_topic": DEAD_LETTERS,
            "gateway_epoch": letter.epoch, "message_number": letter.number, "partial": letter.partial,
            "payload_bytes": letter.payload_bytes, "landed_at": LANDED, "date": moment(letter.received_us).date(),
            "message_id": letter.message_id, "retain": letter.retain,
            "may_have_waited": letter.waited_since_us is not None,
            "waited_since": moment(letter.waited_since_us) if letter.waited_since_us else None,
        }  # fmt: skip
        self._append("dead_letters", [row])

    def land_readings(self, record: Any) -> None:
        at = moment(record.received_us)
        rows = [
            {
                "device": record.device, "metric": r.metric, "value": r.value, "event_time": at, "time_source": "gateway",
                "received_at": at, "kafka_time": at, "landed_at": LANDED, "message_id": r.message_id or record.message_id,
                "index": r.index, "partition": 0, "offset": 0, "gateway": record.gateway, "gateway_epoch": record.epoch,
                "message_number": record.number, "date": at.date(),
            }
            for r in record.readings
        ]  # fmt: skip
        self._append("readings", rows)

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        schema = pa.schema(DeltaTable(f"{self.root}/{name}").schema().to_arrow())
        full = [{column: row.get(column) for column in schema.names} for row in rows]
        write_deltalake(f"{self.root}/{name}", pa.Table.from_pylist(full, schema=schema), mode="append")

    def redrive(self, *filters: str, where: str | None = None, run: int = 1, **more: Any) -> RedriveReport:
        again, dry = more.pop("again", False), more.pop("dry", False)
        gate = more.pop("gate", None)
        gate = gate or MessageProcessor(compile_routes(tuple(RouteSettings(filter=text) for text in filters)), LIMITS)
        letters = [letter for page in find_dead_letters(self.root, where, None, again=again) for letter in page]
        if dry:
            return RedriveRun(self.root, gate, run=run).run(letters, rate=1e6, stop=threading.Event())
        journal = RedriveJournal(self.root, run)
        try:
            made = RedriveRun(self.root, gate, run=run, writer=self.log.writer(), journal=journal)
            return made.run(letters, rate=more.get("rate", 1e6), stop=threading.Event())
        finally:
            journal.close()

    def records(self) -> list[Any]:
        found = [decode_record(record.value or b"") for record in self.log.records(READINGS)]
        return sorted(found, key=lambda record: (record.epoch, record.number))


def moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)
