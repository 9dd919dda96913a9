"""Memory of the checks against earlier readings: last values, and data of judged messages. Bounded and exactly undoable.

A message that is not acknowledged when its connection ends comes again, and must then be judged as the first time. So
each change is kept with the previous state until the message is acknowledged; `roll_back` undoes the rest.

A written PUBACK may be lost with its connection. The broker then sends messages again whose effect on the memory of
steps, stuck values and rates stays. Such a copy is recognised and judged with the data of the first delivery, and changes
nothing. MQTT repeats a PUBLISH with its packet identifier and the DUP flag, before all new messages. So a message with
both and the same content is a copy, and after a window of messages since the PUBACK no copy can come.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple, Protocol

from gateway.message import Message

__all__ = ["JudgedMessage", "JudgementCache", "MetricTrack", "ReplayedTracks", "TrackKey", "TrackMemory", "Tracks"]

MAX_TRACKS: Final = 100_000
"""Most tracked metrics of devices; the one that was silent for longest is forgotten first."""
MAX_UNDO: Final = 200_000
"""Most changes of unacknowledged messages that can be undone; a window of messages makes fewer."""
MAX_NOTES: Final = 200_000
"""Most answers and tracks of messages that may come again; a window of messages makes fewer."""
_Name = tuple[int, int]
"""Packet identifier, and hash of topic and payload."""
TrackKey = tuple[str, str]
"""Device and metric."""


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


class JudgedMessage:
    """Data of one message: whether its devices were within their rate, and the tracks compared with its readings.

    Attributes:
        received_us: when it came first.
        is_repeated: whether it comes again now, after it was acknowledged.
    """

    __slots__ = ("acknowledged_at", "before", "counted", "is_repeated", "name", "received_us", "within")

    def __init__(self, name: _Name | None, received_us: int) -> None:
        self.name, self.received_us = name, received_us
        self.within: dict[str, bool] = {}
        self.before: dict[TrackKey, MetricTrack | None] = {}
        self.is_repeated = False
        self.counted = 0
        self.acknowledged_at: int | None = None

    def __len__(self) -> int:
        return len(self.within) + len(self.before)


class JudgementCache:
    """Judged messages, owned by the gateway's one thread. `window_messages`: how many a broker may have sent without PUBACK."""

    def __init__(self, *, window_messages: int = 1000, max_notes: int = MAX_NOTES) -> None:
        self._window, self._max_notes = window_messages, max_notes
        self._kept: OrderedDict[_Name, JudgedMessage] = OrderedDict()
        self._waiting: deque[tuple[int, JudgedMessage]] = deque()
        self._notes = self._received = 0

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, message: Message) -> JudgedMessage:
        """Return the data of a message that comes now: those of its first delivery if it comes again."""
        if message.qos == 0 or not message.mid:
            return JudgedMessage(None, message.received_us)
        self._received += 1
        self._drop_settled()
        name = message.mid, hash((message.topic, message.payload))
        found = self._kept.get(name) if message.dup else None
        if found is None or found.acknowledged_at is None:
            return JudgedMessage(name, message.received_us)
        found.is_repeated, found.acknowledged_at = True, None
        self._kept.move_to_end(name)
        self._waiting.append((message.number, found))
        return found

    def keep(self, number: int, judged: JudgedMessage) -> None:
        """Remember by what message `number` was judged."""
        if judged.name is None or judged.is_repeated or len(judged) == judged.counted:
            return
        if not judged.counted:
            # The same identifier but not a copy: the broker has the PUBACK of the message before.
            self._forget(self._kept.get(judged.name))
            self._kept[judged.name] = judged
            self._waiting.append((number, judged))
        self._notes += len(judged) - judged.counted
        judged.counted = len(judged)
        while self._notes > self._max_notes:
            self._forget(next(iter(self._kept.values())))

    def acknowledged(self, upto: int) -> None:
        """Note that the PUBACKs of messages up to this number are written."""
        while self._waiting and self._waiting[0][0] <= upto:
            self._waiting.popleft()[1].acknowledged_at = self._received

    def roll_back(self) -> None:
        """Note a new connection: unacknowledged messages are undone elsewhere; any other may come again from now on."""
        self._received = 0
        for _number, judged in self._waiting:
            if not judged.is_repeated:
                self._forget(judged)
        self._waiting.clear()
        for judged in self._kept.values():
            judged.acknowledged_at = 0

    def _drop_settled(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.acknowledged_at is None or self._received - oldest.acknowledged_at <= self._window:
                return
            self._forget(oldest)

    def _forget(self, judged: JudgedMessage | None) -> None:
        if judged is not None and judged.name is not None and self._kept.get(judged.name) is judged:
            del self._kept[judged.name]
            self._notes -= judged.counted
            judged.counted = 0


class ReplayedTracks:
    """Tracks as a copy's first delivery found them; the changes of a copy are not kept."""

    def __init__(self, judged: JudgedMessage, tracks: Tracks) -> None:
        self._found: dict[TrackKey, MetricTrack | None] = dict(judged.before)
        self._tracks = tracks

    def get(self, key: TrackKey) -> MetricTrack | None:
        """See Tracks."""
        return self._found[key] if key in self._found else self._tracks.get(key)

    def put(self, number: int, key: TrackKey, track: MetricTrack) -> None:
        """See Tracks."""
        self._found[key] = track
