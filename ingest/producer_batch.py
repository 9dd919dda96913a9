"""Flights: batches taken from a caller and sent, and the result of each record."""

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message

from ingest.log import BatchDone, DeliveryError, Failure

__all__ = ["ProducerBatch"]


class ProducerBatch:
    """One batch of records for one topic. The client reports failures to `failed`; no report means success.

    `due` is set when the writer has failed: the caller must then get this batch's result before those of its flight.
    """

    __slots__ = ("_classify", "_places", "done", "due", "failures", "keys", "size_bytes", "topic", "values")

    def __init__(
        self,
        topic: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        done: BatchDone,
        classify: Callable[[KafkaError, str, int], DeliveryError],
    ) -> None:
        self.topic, self.keys, self.values, self.done = topic, keys, values, done
        self._classify = classify
        self.size_bytes = sum(map(len, values)) + sum(map(len, keys))
        self.failures: list[Failure] = []
        self.due = False
        self._places: dict[tuple[object, object], list[int]] | None = None

    @property
    def settled(self) -> bool:
        """Return whether its result is known before that of its flight: the writer has failed, or all of it was rejected."""
        return self.due or len(self.failures) == len(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def failed(self, error: KafkaError | None, message: Message) -> None:
        """Take the client's report of a failed record; called from within its poll."""
        if error is None:
            return
        key, value = message.key(), message.value()
        fault: DeliveryError = self._classify(error, self.topic, len(key or b"") + len(value or b""))
        if self.due and fault.kind != "fatal":
            # The caller gets the first one, and must restart with the whole batch.
            return
        self.failures.append((self._place(key, value), fault))
        self.due = self.due or fault.kind != "record"

    def refuse(self, fault: DeliveryError) -> None:
        """Note that the client did not take the whole batch. The writer is unusable: later records may be in the log."""
        self.failures.append((0, fault if fault.kind != "record" else DeliveryError("retriable", fault.text)))
        self.due = True

    def _place(self, key: object, value: object) -> int:
        """Return which record a report is about: reports carry content, not places. Equal records are interchangeable."""
        if self._places is None:
            self._places = self._find_places()
        places = self._places.get((key or None, value or None))
        return places.pop() if places else 0

    def _find_places(self) -> dict[tuple[object, object], list[int]]:
        """Return places by content, the last first. Built once: if a whole batch fails, each record is looked up.

        The client reports an empty key or value as None.
        """
        found: dict[tuple[object, object], list[int]] = {}
        for place, content in enumerate(zip(self.keys, self.values, strict=True)):
            found.setdefault((content[0] or None, content[1] or None), []).append(place)
        for places in found.values():
            places.reverse()
        return found
