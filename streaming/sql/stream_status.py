"""State of each stream in one file next to the applied ones, so that `tidegate streams ls` needs no Spark."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from lakehouse.atomic_file import write_json
from streaming.sql.applied_streams import read_json, streams_folder

__all__ = ["StreamStatus", "read_status", "write_status"]

NAME: Final = "status.json"


@dataclass(slots=True)
class StreamStatus:
    """`state`: running, waiting (a passing fault; tried again), failed (a person must act) or starting."""

    name: str
    state: str = "starting"
    detail: str = ""
    since: float = field(default_factory=time.time)
    batch: int = -1
    rows: int = 0
    late: int = 0
    errors: int = 0
    behind: int = 0
    watermark: str | None = None
    committed_at: float | None = None

    def set(self, state: str, detail: str = "") -> None:
        """Replace the state; `since` stays where nothing changed."""
        if (state, detail) != (self.state, self.detail):
            self.state, self.detail, self.since = state, detail, time.time()


def write_status(root: str, streams: list[StreamStatus]) -> None:
    """Write the state of all streams."""
    content = {"at": time.time(), "streams": [asdict(stream) for stream in streams]}
    write_json(streams_folder(root) / NAME, content)


def read_status(root: str) -> tuple[float, dict[str, dict[str, Any]]]:
    """Return the time of the write (0 for never), and each stream's fields."""
    content = read_json(streams_folder(root) / NAME) or {"at": 0.0, "streams": []}
    return float(content["at"]), {stream["name"]: stream for stream in content["streams"]}
