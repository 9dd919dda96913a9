"""Journal of corrections (author, time, change, reason): JSON lines next to the tables, which outlive the log of the table.

One line is written before a correction begins and another when it is done. If a request was begun but not done, the table's log
shows whether the correction was made. So no correction is made twice, wherever the writer was killed.
"""

import json
import os
from collections.abc import Callable
from typing import Any, Final

from ingest.contract.forget import device_digest
from lakehouse.paths import to_path

__all__ = ["CorrectionJournal", "device_hash"]

CORRECTIONS: Final = "_corrections.jsonl"


def device_hash(device: str) -> str:
    """Return the name of an erased device that must not be named: SHA-256 of its id."""
    return device_digest(device)


class CorrectionJournal:
    """The entries, oldest first; `state` is `begun` or `done`. One process writes."""

    def __init__(self, root: str) -> None:
        self.path = to_path(root) / CORRECTIONS

    def entries(self) -> list[dict[str, Any]]:
        """All whole entries; a line that a crash tore is passed over."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [entry for line in lines if (entry := _parsed(line)) is not None]

    def find(self, request_id: str, state: str) -> dict[str, Any] | None:
        """The entry of a request in this state."""
        return next((e for e in self.entries() if e.get("id") == request_id and e.get("state") == state), None)

    def add(self, entry: dict[str, Any]) -> None:
        """Append one entry; it is on the disk when this returns."""
        with self.path.open("a+b") as file:
            size = file.tell()
            if size:
                file.seek(size - 1)
            torn = size > 0 and file.read(1) != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, device: str, hidden: Callable[[Any], Any] = lambda entry: entry) -> int:
        """Name a device by its hash from now on; returns how many entries named it. `hidden` does so inside texts."""

        def change(entry: dict[str, Any]) -> dict[str, Any]:
            if entry.get("device") != device:
                return dict(hidden(entry))
            kept = {key: value for key, value in entry.items() if key not in ("device", "example")}
            return {**dict(hidden(kept)), "device_sha256": device_hash(device)}

        return self._change(lambda entry: entry.get("device") == device or hidden(entry) != entry, change)

    def _change(
        self, chosen: Callable[[dict[str, Any]], bool], change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> int:
        entries = self.entries()
        count = sum(map(chosen, entries))
        if count:
            fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            with fresh.open("w", encoding="utf-8") as file:
                for entry in entries:
                    file.write(json.dumps(change(entry) if chosen(entry) else entry, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        return count


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
