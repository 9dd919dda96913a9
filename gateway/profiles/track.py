"""Last values of each device's metrics: memory of the checks against earlier readings, bounded and exactly undoable.

A message that is not acknowledged when its connection ends comes again, and must then be judged as the first time. So
each change is kept with the previous state until the message is acknowledged; `roll_back` undoes the rest. A message
whose PUBACK was written may come again too: see `judged`.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple, Protocol

__all__ = ["MetricTrack", "TrackKey", "TrackMemory", "Tracks"]

MAX_TRACKS: Final = 100_000
"""Most tracked metrics of devices; the one that was silent for longest is forgotten first."""
MAX_UNDO: Final = 200_000
"""Most changes of unacknowledged messages that can be undone; a window of messages makes fewer."""


class MetricTrack(NamedTuple):
    """State of one metric of one device. Times are in epoch µs."""

    seen: float | None
    """Value of the newest reading, whether stored or not; None for text."""
    seen_us: int
    """Time of the newest reading: the device's, else the receive time."""
    received_us: int
    good: float | None
    """Value of the newest reading that passed."""
    good_us: int
    equal: float | str | None
    """Value that repeats, how often so far, and since when."""
    equal_count: int
    equal_since_us: int


TrackKey = tuple[str, str]
"""Device and metric."""


class Tracks(Protocol):
    """Tracks that the checks against earlier readings read and write."""

    def get(self, key: TrackKey) -> MetricTrack | None:
        """Return the track of a metric; None if it is unknown."""

    def put(self, number: int, key: TrackKey, track: MetricTrack) -> None:
        """Remember a track, because of message `number`."""


class TrackMemory:
    """Tracks by (device, metric), least recently seen first.

    Attributes:
        noted: gets each replaced track, as it was before this message; None if not needed.
    """

    def __init__(self, *, max_tracks: int = MAX_TRACKS, max_undo: int = MAX_UNDO) -> None:
        self._tracks: OrderedDict[TrackKey, MetricTrack] = OrderedDict()
        self._undo: deque[tuple[int, TrackKey, MetricTrack | None]] = deque(maxlen=max_undo)
        self._max_tracks = max_tracks
        self.noted: dict[TrackKey, MetricTrack | None] | None = None

    def __len__(self) -> int:
        return len(self._tracks)

    @property
    def fill(self) -> float:
        """Share of the memory in use. At 1 each new metric replaces the one that was silent for longest."""
        return len(self._tracks) / self._max_tracks

    def get(self, key: TrackKey) -> MetricTrack | None:
        """See Tracks."""
        return self._tracks.get(key)

    def put(self, number: int, key: TrackKey, track: MetricTrack) -> None:
        """See Tracks."""
        before = self._tracks.get(key)
        if self.noted is not None:
            self.noted.setdefault(key, before)
        self._undo.append((number, key, before))
        self._tracks[key] = track
        self._tracks.move_to_end(key)
        while len(self._tracks) > self._max_tracks:
            self._tracks.popitem(last=False)

    def acknowledged(self, upto: int) -> None:
        """Note that messages up to this number will not come again."""
        undo = self._undo
        while undo and undo[0][0] <= upto:
            undo.popleft()

    def roll_back(self) -> None:
        """Undo the changes of unacknowledged messages, newest first."""
        while self._undo:
            _number, key, before = self._undo.pop()
            if before is None:
                self._tracks.pop(key, None)
            else:
                self._tracks[key] = before
