"""Disk space of an embedded Kafka's topics."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["topic_bytes"]


def topic_bytes(records: Path) -> dict[str, int]:
    """Topic -> bytes on the disk, of all its partitions: also segments that Kafka gave up and deletes a minute later."""
    found: dict[str, int] = {}
    for folder in _folders(records):
        topic, _, partition = folder.name.rpartition("-")
        if topic and partition.isdecimal():
            found[topic] = found.get(topic, 0) + sum(map(_size, _files(folder)))
    return found


def _folders(records: Path) -> Iterable[Path]:
    return [entry for entry in records.iterdir() if entry.is_dir()] if records.is_dir() else []


def _files(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the partition was deleted in between
        return []


def _size(file: Path) -> int:
    """Blocks, not length: Kafka makes the files of its indexes longer than what they hold."""
    try:
        return os.stat(file).st_blocks * 512
    except OSError:  # deleted in between
        return 0
