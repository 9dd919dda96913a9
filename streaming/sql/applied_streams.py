"""The applied streams: one file per stream under `<root>/_streams`, replaced by one rename, so that a restart finds them."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import FatalError
from lakehouse.atomic_file import write_json
from lakehouse.paths import is_local, to_path
from streaming.landing_offsets import Offsets, parse_offsets
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.header import StreamDefinition, parse_definition

__all__ = [
    "AppliedStream",
    "ShadowStream",
    "applied_names",
    "load_applied",
    "load_shadow",
    "new_incarnation",
    "read_json",
    "remove_file",
    "streams_folder",
]

FOLDER: Final = "_streams"


@dataclass(frozen=True, slots=True)
class AppliedStream:
    """One stream as it runs.

    `incarnation` names its checkpoint and is in each commit; a new one begins with a new checkpoint. `start` is where
    that begins in Kafka. `schema` is the output as Spark's JSON. `floor`: output before this time (ISO) is left out,
    because a stateful stream that was rewound knows the windows before it only in part. `history`: what Kafka no longer has
    is written from the table `readings` before its first batch.
    """

    name: str
    text: str
    incarnation: str
    schema: str
    shape: CheckpointShape
    start: Offsets
    applied_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    author: str = ""
    floor: str | None = None
    history: bool = False

    @property
    def definition(self) -> StreamDefinition:
        """The parsed definition."""
        return parse_definition(self.name, self.text)

    def save(self, root: str) -> None:
        """Write its file."""
        definition = {slot: getattr(self, slot) for slot in self.__slots__} | {"shape": self.shape.to_dict()}
        write_json(streams_folder(root) / f"{self.name}.json", {**definition, "sha256": self.definition.sha256})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AppliedStream":
        """Read a stream from JSON."""
        known = {key: value for key, value in data.items() if key in cls.__slots__}
        start = parse_offsets(data["start"])
        return cls(**{**known, "shape": CheckpointShape.from_dict(data["shape"]), "start": start})


@dataclass(frozen=True, slots=True)
class ShadowStream:
    """A rewound copy that waits for its swap: what it would become, since when, and how far it read of Kafka."""

    applied: AppliedStream
    since: str
    ends: Offsets
    time_column: str

    def save(self, root: str) -> None:
        """Write its file."""
        applied = {slot: getattr(self.applied, slot) for slot in AppliedStream.__slots__}
        applied["shape"] = self.applied.shape.to_dict()
        content = {"applied": applied, "since": self.since, "ends": self.ends, "time_column": self.time_column}
        write_json(streams_folder(root) / f"{self.applied.name}.shadow", content)


def streams_folder(root: str) -> Path:
    """Return the folder of the applied streams.

    Raises:
        FatalError: the tables are in an object store.
    """
    if not is_local(root):
        message = (
            f"The tables are at {root}, but SQL streams need local tables: their definitions are kept next to them."
        )
        raise FatalError(message)
    return to_path(root) / FOLDER


def load_applied(root: str) -> dict[str, AppliedStream]:
    """Return every applied stream by name; a file that is not one is named in the error.

    Raises:
        FatalError: a file is damaged.
    """
    found = {}
    for path in _files(root):
        try:
            found[path.stem] = AppliedStream.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path} is not an applied stream ({error!r}). Move it away, then run `tidegate streams apply {path.stem}`."
            raise FatalError(message) from error
    return found


def applied_names(root: str) -> list[str]:
    """Return the names of the applied streams, also of one with a damaged file."""
    return [path.stem for path in _files(root)]


def _files(root: str) -> list[Path]:
    if not is_local(root):
        return []
    found = sorted(streams_folder(root).glob("*.json"))
    return [path for path in found if not path.name.startswith(".") and path.name != "status.json"]


def load_shadow(root: str, name: str) -> ShadowStream | None:
    """The shadow of a stream, where it has one."""
    data = read_json(streams_folder(root) / f"{name}.shadow")
    if data is None:
        return None
    ends = parse_offsets(data["ends"])
    return ShadowStream(AppliedStream.from_dict(data["applied"]), data["since"], ends, data["time_column"])


def new_incarnation() -> str:
    """A name that no checkpoint has; ascends with time."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


def read_json(path: Path) -> dict[str, Any] | None:
    """Read the file's content; None if there is no file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return None


def remove_file(path: Path) -> None:
    """Remove the file if it exists."""
    path.unlink(missing_ok=True)
