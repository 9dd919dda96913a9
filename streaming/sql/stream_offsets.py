"""Offsets of a stream: in its Spark checkpoint, which may have several sources, and at its start in Kafka."""

import json
from typing import TYPE_CHECKING, Any

from ingest.contract.errors import FatalError
from streaming.checkpoint import Checkpoint
from streaming.landing_offsets import Offsets, parse_source_offsets

if TYPE_CHECKING:
    pass

__all__ = ["StreamCheckpoint", "behind_count", "checkpoint_path", "end_of", "merge_offsets"]


def checkpoint_path(landing: str, name: str, incarnation: str = "") -> str:
    """Return the path next to the landing's own checkpoint: `<checkpoints>/streams/<name>/<incarnation>`."""
    folder = f"{landing.rstrip('/').rpartition('/')[0] or '.'}/streams/{name}"
    return f"{folder}/{incarnation}" if incarnation else folder


class StreamCheckpoint(Checkpoint):
    """The checkpoint of one incarnation."""

    def ends(self, batch: int) -> Offsets:
        """Return the end of a batch, all sources together.

        Raises:
            FatalError: the file is missing or torn.
        """
        text = self._read(f"offsets/{batch}") or ""
        lines = text.strip().splitlines()
        try:
            if len(lines) < 3 or lines[0] != "v1":
                raise ValueError(lines)
            return merge_offsets([parse_source_offsets(line) for line in lines[2:] if line != "-"])
        except ValueError as error:
            raise FatalError(
                self._broken(f"its file `offsets/{batch}` is {'damaged' if text else 'missing'}")
            ) from error

    def watermark_ms(self) -> int:
        """Return the time up to which the newest finished batch closed windows (epoch ms); 0 if nothing says it."""
        finished = self.finished()
        lines = (self._read(f"offsets/{finished}") or "").splitlines() if finished is not None else []
        try:
            return int(json.loads(lines[1])["batchWatermarkMs"])
        except (IndexError, ValueError, KeyError, TypeError):
            return 0

    def began_ms(self, batch: int) -> int:
        """Return the time at which Spark began a batch, by its log: the value of `current_timestamp()` in it.

        Raises:
            FatalError: the file is missing or torn.
        """
        text = self._read(f"offsets/{batch}") or ""
        try:
            return int(json.loads(text.splitlines()[1])["batchTimestampMs"])
        except (ValueError, LookupError, TypeError) as error:
            raise FatalError(self._broken(f"its file `offsets/{batch}` is damaged")) from error

    def delete(self) -> None:
        """Delete the folder."""
        path = self._jvm.org.apache.hadoop.fs.Path(self.path)
        path.getFileSystem(self._configuration).delete(path, True)

    def _broken(self, what: str) -> str:
        name = self.path.rstrip("/").split("/")[-2]
        return (
            f"The checkpoint {self.path} of stream {name} can't be used: {what}. Move this folder away; a stream without state "
            f"then goes on from the offsets in its table. For a stream with state, run `tidegate streams rewind {name}`."
        )


def merge_offsets(each: list[Offsets]) -> Offsets:
    """Merge the offsets of several sources; if two read one partition, the smaller counts."""
    merged: Offsets = {}
    for offsets in each:
        for topic, parts in offsets.items():
            into = merged.setdefault(topic, {})
            for part, at in parts.items():
                into[part] = min(at, into.get(part, at))
    return merged


def behind_count(report: dict[str, Any]) -> int:
    """Records that Kafka had and a batch of Spark's report did not reach yet."""
    behind = 0
    for source in report.get("sources", []):
        try:
            done, newest = (parse_source_offsets(_text(source[key])) for key in ("endOffset", "latestOffset"))
        except (KeyError, ValueError):
            continue
        behind += sum(
            max(0, end - done.get(topic, {}).get(part, 0))
            for topic, parts in newest.items()
            for part, end in parts.items()
        )
    return behind


def end_of(report: dict[str, Any]) -> Offsets:
    """Return the end in Kafka of a batch in Spark's report."""
    ends = [parse_source_offsets(_text(source["endOffset"])) for source in report["sources"] if source.get("endOffset")]
    return merge_offsets(ends)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
