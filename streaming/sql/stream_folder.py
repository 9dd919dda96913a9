"""The folder of SQL files, one per stream. The shipped examples are added, but a file of the folder with the same name wins."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from ingest.contract.errors import UnavailableError

__all__ = ["StreamFile", "find_stream", "list_streams"]

SHIPPED: Final = "examples"


@dataclass(frozen=True, slots=True)
class StreamFile:
    """One file; `golden` are the lines of `<name>.test.jsonl` next to it, None if there is none."""

    name: str
    where: str
    text: str
    golden: list[str] | None
    shipped: bool


def list_streams(folder: Path) -> dict[str, StreamFile]:
    """Every stream file by name.

    Raises:
        UnavailableError: a file can't be read.
    """
    found = {}
    for place, shipped in ((Path(str(files("streaming.sql") / SHIPPED)), True), (folder, False)):
        for path in sorted(place.glob("*.sql")) if place.is_dir() else []:
            golden = path.with_name(f"{path.stem}.test.jsonl")
            try:
                lines = golden.read_text(encoding="utf-8").splitlines() if golden.exists() else None
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                message = f"{path} can't be read: {error}. A stream's file is text in UTF-8."
                raise UnavailableError(message) from error
            where = f"{path.name} (shipped)" if shipped else str(path)
            found[path.stem] = StreamFile(path.stem, where, text, lines, shipped)
    return found


def find_stream(folder: Path, name: str) -> StreamFile:
    """The file of one stream.

    Raises:
        UnavailableError: there is none; lists those that are there.
    """
    streams = list_streams(folder)
    if name not in streams:
        have = ", ".join(sorted(streams))
        message = (
            f"There is no {folder / name}.sql. The streams here are: {have}. Write the file, or name one of these."
        )
        raise UnavailableError(message)
    return streams[name]
