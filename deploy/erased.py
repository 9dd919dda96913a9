"""Which devices were erased by request, from the receipts: what a device sent before that is missing on purpose."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from lakehouse.files import is_local
from streaming.history.receipt import FOLDER

__all__ = ["erased_devices"]


def erased_devices(root: str) -> Iterator[tuple[str, int]]:
    """SHA-256 of each device's id, and when it had been erased, in µs; receipts are kept beside local tables only."""
    if not is_local(root):
        return
    for path in sorted((Path(root.removeprefix("file://")) / FOLDER).glob("*.json")):
        try:
            receipt = json.loads(path.read_text("utf-8"))
            at = datetime.fromisoformat(receipt["at"])
            yield str(receipt["device_sha256"]), int(at.timestamp() * 1e6)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # one that is under way, or no receipt: until it is done, its messages are missing
