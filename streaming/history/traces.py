"""What names a device beside the tables, and how it is made to forget it: identities, journal, answers of requests."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from lakehouse.files import is_local
from lakehouse.requests import DONE
from lakehouse.requests import FOLDER as REQUESTS
from streaming.dedupe import Seen, points_folder
from streaming.history.journal import Journal
from streaming.writer import Writer

__all__ = ["forget_traces"]

_SNAPSHOT: Final = "_seen.parquet"


def forget_traces(writer: Writer, device: str) -> dict[str, Any]:
    """Take the device out of everything else under the root that this process writes; returns what was found.

    The journal of `tidegate dlq` names letters by Kafka offset, never a device, so there is nothing to take out.
    """
    _forget_identities(writer, device)
    return {
        "identities": "forgotten",
        "corrections_renamed": Journal(writer.root).forget(device),
        "answers_deleted": _forget_answers(writer.root, device),
    }


def _forget_identities(writer: Writer, device: str) -> None:
    if writer.seen is not None:
        writer.seen.forget(device)
        return
    snapshot = Path(writer.root.removeprefix("file://")) / _SNAPSHOT
    if is_local(writer.root) and snapshot.exists():
        held = Seen(snapshot)
        held.load(writer.root, horizon_days=writer.settings.horizon_days)
        held.forget(device)
        held.close()
    elif is_local(writer.root):
        shutil.rmtree(points_folder(snapshot), ignore_errors=True)  # nothing names it: it is read from the table again


def _forget_answers(root: str, device: str) -> int:
    deleted = 0
    for path in (Path(root.removeprefix("file://")) / REQUESTS / DONE).glob("*.json"):
        try:
            request = json.loads(path.read_text(encoding="utf-8")).get("request") or {}
        except (OSError, ValueError):
            continue
        if (request.get("arguments") or {}).get("device") == device:
            path.unlink(missing_ok=True)
            deleted += 1
    return deleted
