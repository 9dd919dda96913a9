"""The receipt of an erasure: what was removed from each place, and when each place with remaining data forgets it.

It names the device by a hash, so that it may be kept. It is written after every table, so that an erasure that was killed
continues where it was.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ingest.contract.errors import TidegateError
from ingest.contract.topics import GATEWAY_STATE, OUTCOMES, stream_topic
from ingest.kafka_settings import KafkaSettings
from ingest.topics.describe import TopicState, describe_topics, topic_names
from lakehouse.catalog import open_table
from lakehouse.paths import is_local, to_path
from lakehouse.tables import TABLES
from streaming.maintain.retention_holds import LONGEST_SECONDS

__all__ = ["FOLDER", "ErasureReceipt", "erased_devices", "kafka_forgets", "remarks", "table_forgets", "topic_forgets"]

FOLDER: Final = "_erasures"
_DAY_MS: Final = 24 * 3600 * 1000
_YEAR_MS: Final = 365 * _DAY_MS
_FOREVER_MS: Final = 2**63 - 1
_LOOK_MS: Final = 5 * 60 * 1000
"""Interval at which a Kafka broker looks for expired records (log.retention.check.interval.ms)."""
SPARE_SECONDS: Final = 4 * 3600.0
"""An hour each between two looks of maintenance, for a reader of a snapshot, for whole hours of a vacuum, for one long write."""
_KEPT: Final = re.compile(r"interval (\d+) (\w+?)s?")
_HOURS: Final = {"hour": 1, "day": 24, "week": 168}


class ErasureReceipt:
    """The file `<root>/_erasures/<id>.json`; a dict that is saved whole."""

    def __init__(self, root: str, request_id: str) -> None:
        self.path = to_path(root) / FOLDER / f"{request_id}.json"
        self.content: dict[str, Any] = {}
        try:
            self.content = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self.content = {}

    @property
    def tables(self) -> dict[str, Any]:
        """Result per table."""
        found: dict[str, Any] = self.content.setdefault("tables", {})
        return found

    def save(self, **more: Any) -> None:
        """Add to it and put it on the disk."""
        self.content |= more
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(self.content, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def erased_devices(root: str, *, since_us: float = 0) -> Iterator[tuple[str, int]]:
    """Return SHA-256 of each erased device's id and the time of its erasure in µs; only local tables have receipts.

    `since_us`: erasures that were done before are of no interest, and their receipts are not opened.
    """
    if not is_local(root):
        return
    for path in sorted((to_path(root) / FOLDER).glob("*.json")):
        try:
            if path.stat().st_mtime * 1e6 < since_us:
                continue
            receipt = json.loads(path.read_text("utf-8"))
            at = datetime.fromisoformat(receipt["at"])
            yield str(receipt["device_sha256"]), int(at.timestamp() * 1e6)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # one that is under way, or no receipt: until it is done, its messages are missing


def table_forgets(root: str, name: str, now: datetime) -> str:
    """Return the latest time at which no file or log of a table holds the removed rows, while the writer runs.

    What others are derived from is kept for those of them that are behind, up to `LONGEST_SECONDS`.
    """
    kept = open_table(root, name).metadata().configuration
    names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    defaults = (7 * 24, 30 * 24)
    hours = max(_hours(kept.get(key), usual) for key, usual in zip(names, defaults, strict=True))
    held = LONGEST_SECONDS if name in TABLES else 0.0
    return _stamp(now + timedelta(seconds=max(hours * 3600.0, held) + SPARE_SECONDS))


def kafka_forgets(settings: KafkaSettings, landed: Iterable[str], now: datetime) -> dict[str, Any]:
    """Return `forgotten_at` (None if time does not tell) and `why` per topic; a topic that cannot be asked says so.

    Args:
        settings: the cluster.
        landed: the topics that are landed; other topics are found.
        now: until when the device may have sent.
    """
    try:
        ours = {*landed, OUTCOMES, GATEWAY_STATE}
        names = [name for name in topic_names(settings) if name in ours or name.startswith(stream_topic(""))]
        return {name: topic_forgets(state, now) for name, state in describe_topics(settings, names).items()}
    except TidegateError as error:
        why = (
            f"unknown: {error} According to the settings, the topic keeps records for {settings.retention_hours} hours."
        )
        return {name: {"forgotten_at": None, "why": why} for name in landed}


def topic_forgets(state: TopicState, now: datetime) -> dict[str, Any]:
    """`forgotten_at` and `why` of one topic, for what was written up to now."""
    config = state.config
    if not config:
        return {"forgotten_at": None, "why": "this Kafka user may not read how long the topic keeps its records"}
    if "delete" not in config.get("cleanup.policy", "delete"):
        return _compaction_forgets(config, now)
    kept, segment = int(config.get("retention.ms", "-1")), int(config.get("segment.ms", str(7 * _DAY_MS)))
    if kept < 0:
        return {"forgotten_at": None, "why": "the topic keeps its records for ever (retention.ms = -1)"}
    at = now + timedelta(milliseconds=kept + segment + _LOOK_MS)
    why = f"at the latest: retention.ms {_words(kept)} after the end of its segment, at most segment.ms {_words(segment)} long"
    return {"forgotten_at": _stamp(at), "why": why}


def _compaction_forgets(config: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Dates of the topic in which gateways keep a device's last numbers and the state of Sparkplug or Homie devices."""
    why = "compacted: records with the device's name were replaced (`gateway_state`); Kafka drops the older ones when it compacts"
    lag, tombstone = (
        int(config.get("max.compaction.lag.ms", _FOREVER_MS)),
        int(config.get("delete.retention.ms", _DAY_MS)),
    )
    if lag > _YEAR_MS:
        return {"forgotten_at": None, "why": f"{why}; set the topic's max.compaction.lag.ms (1 day) for a date"}
    at = now + timedelta(milliseconds=2 * lag + tombstone + _LOOK_MS)
    return {"forgotten_at": _stamp(at), "why": f"{why}, at the latest after max.compaction.lag.ms while a gateway runs"}


def _hours(text: str | None, usual: int) -> int:
    found = _KEPT.fullmatch(text or "")
    return int(found[1]) * _HOURS.get(found[2], usual) if found else usual


def _words(milliseconds: int) -> str:
    hours = milliseconds / 3_600_000
    return f"{hours:g} h" if hours < 72 else f"{hours / 24:g} d"


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def remarks(
    kafka: Mapping[str, Any], not_landed: int | None, streams_behind: Mapping[str, int], stateful: Sequence[str]
) -> list[str]:
    """Return the sentences of a receipt besides its dates, with those that need an action first."""
    dated = [entry["forgotten_at"] for entry in kafka.values() if entry["forgotten_at"]]
    until = f" before {max(dated)}" if dated else ""
    said = []
    if not_landed != 0:
        how_many = "may hold records" if not_landed is None else f"holds {not_landed} records"
        said.append(
            f"Kafka {how_many} that have not landed yet. If they hold the device, it comes back; then erase it again."
        )
    if streams_behind:
        names = ", ".join(f"{name} ({count} records)" for name, count in streams_behind.items())
        said.append(
            f"These streams have not read everything yet and may still write rows of the device: {names}. Then erase it again."
        )
    if stateful:
        said.append(
            "These streams keep rows for windows or joins and may still write rows of the device: "
            f"{', '.join(stateful)}. Erase it again when those windows have closed. The checkpoints keep older snapshots of "
            "these rows for some hundred batches, so no date can be given; `streams rewind` and `--swap` give a stream a new "
            "checkpoint."
        )
    return [
        *said,
        "If the device sends again, its messages are stored again.",
        "A message that was stored before the erasure and is delivered again is stored as a new one.",
        f"`streams rewind` or a rebuild from Kafka{until} brings back the records that Kafka still holds; then erase again.",
        "Each table's `forgotten_at` assumes that the stream runs, because its maintenance deletes older files and log entries. "
        "Until then `sql --at` can read them.",
        "Dead letters of other devices were searched for the device's id; readings of other devices were not.",
        "The erasure does not reach messages that wait in the MQTT broker, retained messages there, the device's entry in a "
        "registry (file or Kafka), log files of the processes (they rotate), copies that readers made, or backups.",
    ]
