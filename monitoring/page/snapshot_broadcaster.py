"""The newest snapshot, encoded once for all viewers, and half an hour of its chart points."""

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["SnapshotBroadcaster", "encode_ascii_json"]

KEPT_SECONDS: Final = 1800.0


def encode_ascii_json(value: object) -> bytes:
    """Encode as ASCII JSON, so that texts from devices are always escaped. A number that JSON cannot express becomes null."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class SnapshotBroadcaster:
    """The newest snapshot; the look's thread writes it, the server's thread reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[tuple[float, Mapping[str, float | None]]] = deque()
        self._listeners: list[Callable[[], None]] = []
        self._encoded: bytes | None = None
        self._event: bytes | None = None

    def publish(self, snapshot: Mapping[str, Any]) -> None:
        """Replace the snapshot and wake its listeners."""
        encoded, at = encode_ascii_json(snapshot), float(snapshot["at"])
        with self._lock:
            self._encoded, self._event = encoded, b"event: snapshot\ndata: " + encoded + b"\n\n"
            self._points.append((at, snapshot["point"]))
            while self._points[0][0] < at - KEPT_SECONDS:
                self._points.popleft()
            listeners = list(self._listeners)
        for wake in listeners:
            wake()

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each snapshot, on the thread that published it."""
        with self._lock:
            self._listeners.append(wake)

    @property
    def encoded(self) -> bytes | None:
        """Newest snapshot as JSON; None before the first look."""
        return self._encoded

    @property
    def event(self) -> bytes | None:
        """Newest snapshot as an event of the stream."""
        return self._event

    def history(self) -> dict[str, Any]:
        """Return the points of the last half hour, one list per figure."""
        with self._lock:
            points = list(self._points)
        names = points[-1][1].keys() if points else ()
        return {
            "at": [at for at, _ in points],
            "series": {name: [point.get(name) for _, point in points] for name in names},
        }
