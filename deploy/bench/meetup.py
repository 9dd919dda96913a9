"""Events of the paper on event processing with SQL streams (meetup events), and a process that publishes them over MQTT.

Event n is the same in every run except for its time: a nested JSON object of a fixed size. A share of the events is of one
country, and a share of these of one city, whose name has two spellings. Both are spread evenly over the run. The process reads
a plan as one line of JSON, publishes, and prints the result as JSON.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Final, overload

from deploy.bench.load_publisher import LoadPlan, Payload, publish_packet, run_load
from ingest.contract.errors import TidegateError
from ingest.contract.topics import READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.offsets import end_offsets

__all__ = ["CITIES", "COUNTRY", "ExpectedEvent", "MeetupEvents", "follow_kafka", "packets_of", "payload_of"]

COUNTRY: Final = "in"
CITIES: Final = ("Bangalore", "Bengaluru")
TOTAL_BYTES: Final = 450_000_000
"""Bytes of all events of the paper; the next two are those of the streams of the country and of the city."""
COUNTRY_BYTES: Final = 3_840_000
CITY_BYTES: Final = 545_000

_COUNTRIES: Final = ("us", "gb", "de", "fr", "au", "ca", "br", "jp", "nl", "es")
_OTHER_CITIES: Final = ("Mumbai", "Pune", "Chennai", "Hyderabad", "Delhi")
_FOREIGN_CITIES: Final = ("New York", "London", "Berlin", "Paris", "Sydney", "Bangalore", "Tokyo", "Bengaluru")
"""Two of them are called as the city, elsewhere: the city's stream must read the country's, not all events."""
_WORDS: Final = b"streams of events come in by the second and each of them tells a story that somebody wants to read "
_TEXT: Final = (_WORDS * 80)[: 8 * 1024]
_MOST_AHEAD_BYTES: Final = 48_000_000
"""Sent and not yet in Kafka. From 64 MB on the embedded broker's saves delay PUBACKs; at 256 MB it drops messages."""
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class ExpectedEvent:
    """Expected record of one event in a derived stream."""

    number: int
    event: str
    city: str


@dataclass(frozen=True, slots=True)
class MeetupEvents:
    """The events of one run: `count` of `event_bytes` each, whose ids begin with `run`."""

    count: int
    event_bytes: int
    run: str

    def event_id(self, number: int) -> str:
        """Return the id of one event: also its device and its key in Kafka."""
        return f"{self.run}-{number:07d}"

    def number(self, event_id: str) -> int | None:
        """The event of this id; None of another run."""
        run, _, number = event_id.rpartition("-")
        return int(number) if run == self.run and number.isdigit() else None

    def payload(self, number: int, at_ms: int) -> bytes:
        """The JSON of one event, `event_bytes` long.

        Raises:
            ValueError: so few bytes do not hold the fields.
        """
        country, city = self.place(number)
        group = f'"group":{{"id":{number % 977},"name":"Group {number % 977}","country":"{country}","city":"{city}"}}'
        head = (
            f'{{"event_id":"{self.event_id(number)}","event_name":"{_name(number)}","time":{at_ms},{group},'
            f'"yes_rsvp_count":{number % 200},"description":"'
        ).encode()
        left = self.event_bytes - len(head) - 2
        if not 0 <= left <= len(_TEXT) // 2:
            message = (
                f"an event has {len(head) + 2} to {len(head) + 2 + len(_TEXT) // 2} bytes, wanted {self.event_bytes}"
            )
            raise ValueError(message)
        begin = number * 61 % (len(_TEXT) // 2)
        return b'%s%s"}' % (head, _TEXT[begin : begin + left])

    def place(self, number: int) -> tuple[str, str]:
        """Country and city of one event."""
        rank = _rank(number, self.count, COUNTRY_BYTES)
        if rank is None:
            return _COUNTRIES[number % 10], _FOREIGN_CITIES[number // 10 % 8]
        of_city = _rank(rank, self.country_count, CITY_BYTES * TOTAL_BYTES // COUNTRY_BYTES)
        return COUNTRY, _OTHER_CITIES[rank % 5] if of_city is None else CITIES[of_city % 2]

    @property
    def country_count(self) -> int:
        """Events of the country."""
        return self.count * COUNTRY_BYTES // TOTAL_BYTES

    def of_country(self) -> Iterator[ExpectedEvent]:
        """Return the expected records of the country's stream."""
        for number in range(self.count):
            country, city = self.place(number)
            if country == COUNTRY:
                yield ExpectedEvent(number, _name(number), city)

    def of_city(self) -> Iterator[ExpectedEvent]:
        """Return the expected records of the city's stream."""
        return (one for one in self.of_country() if one.city in CITIES)


def _rank(number: int, count: int, share_bytes: int) -> int | None:
    """The how many-th of its share a number is; None where it is not of it."""
    before, after = number * share_bytes // TOTAL_BYTES, (number + 1) * share_bytes // TOTAL_BYTES
    return before if after > before else None


def _name(number: int) -> str:
    return f"Evening {number % 311} of topic {number % 53}"


class _Packets(Sequence[bytes]):
    """The packets of one connection, each encoded when it is sent: 450 MB need not lie in memory."""

    def __init__(self, plan: LoadPlan, payload: Payload, connection: int) -> None:
        self._numbers = range(connection, plan.messages, plan.connections)
        self._payload = payload

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self._packet(one) for one in range(*at.indices(len(self)))]
        return self._packet(range(len(self))[at])

    def _packet(self, at: int) -> bytes:
        return publish_packet(*self._payload(self._numbers[at], 1), mid=at % 65535 + 1)


def packets_of(plan: LoadPlan, payload: Payload) -> list[Sequence[bytes]]:
    """Return the packets of each connection of a plan."""
    return [_Packets(plan, payload, connection) for connection in range(plan.connections)]


def payload_of(meetup: MeetupEvents, plan: LoadPlan) -> Payload:
    """Topic and event of each message: its `time` is when it is due; at no rate, when its packet is made."""

    def make(device: int, _seq: int) -> tuple[str, bytes]:
        at = plan.due_at(device) if plan.rate else time.time()
        return f"meetup/events/{device % 100}", meetup.payload(device, int(at * 1000))

    return make


@contextmanager
def follow_kafka(count: Callable[[], int], ahead: int) -> Iterator[Callable[[], int]]:
    """Return how many messages may be sent: the growth of `count()` since now plus `ahead`; a thread asks for the count."""
    first, ended = count(), threading.Event()
    most = [ahead]

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            with suppress(TidegateError):
                most[0] = count() - first + ahead

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    try:
        yield lambda: most[0]
    finally:
        ended.set()
        asking.join()


def main() -> None:
    """One plan from stdin."""
    told = json.loads(sys.stdin.readline())
    plan = LoadPlan(**told["load"])
    meetup = MeetupEvents(plan.messages, told["event_bytes"], told["run"])
    kafka = KafkaSettings(bootstrap_servers=told["bootstrap_servers"])
    if plan.rate:
        result = run_load(plan, payload_of(meetup, plan), encode=packets_of)
    else:
        ahead = _MOST_AHEAD_BYTES // meetup.event_bytes
        with follow_kafka(lambda: sum(end_offsets(kafka, READINGS).values()), ahead) as most_sent:
            result = run_load(plan, payload_of(meetup, plan), encode=packets_of, most_sent=most_sent)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
