"""Process of one member of a consumer group: it writes each record and each assignment with its time.

It reads a line of JSON, prints `ready`, joins at the next line, and leaves the group at the line after that or at the end of
its input. Its journal has a line per event: `r PARTITION NUMBER MICROSECONDS` for a record, `a MICROSECONDS PARTITIONS` for its
partitions after a change, with commas between them, and `m ID` for its name in the group.
"""

import select
import sys
import time
from typing import Any, Final, TextIO

from confluent_kafka import Consumer, TopicPartition

from deploy.bench.kafka_load.worker import READY, send_line, take_plan
from deploy.bench.kafka_load.workload import due_us

__all__ = ["main"]

_TAKE: Final = 100
_WAIT_SECONDS: Final = 0.01


class _Member:
    def __init__(self, topic: str, conf: dict[str, Any], journal: TextIO, *, incremental: bool) -> None:
        self._topic, self._journal, self._incremental = topic, journal, incremental
        self._has: set[int] = set()
        self._consumer = Consumer({**conf, "error_cb": lambda _error: None, "log_level": 0})

    def join(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def read(self) -> None:
        """Read the records that have come; the first one is not held back for a full batch."""
        found = self._consumer.consume(1, _WAIT_SECONDS)
        now = time.time_ns() // 1000
        for message in found + (self._consumer.consume(_TAKE, 0) if found else []):
            value = message.value()
            if message.error() is None and value is not None:
                self._journal.write(f"r {message.partition()} {due_us(value)} {now}\n")
        self._journal.flush()

    def leave(self) -> None:
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        (consumer.incremental_assign if self._incremental else consumer.assign)(partitions)
        self._journal.write(f"m {consumer.memberid()}\n")
        self._note(self._has | {one.partition for one in partitions})

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        self._note(self._has - {one.partition for one in partitions})

    def _note(self, has: set[int]) -> None:
        self._has = has
        self._journal.write(f"a {time.time_ns() // 1000} {','.join(map(str, sorted(has)))}\n")
        self._journal.flush()


def main() -> None:
    """One member from the command line."""
    plan = take_plan()
    with open(plan["journal"], "a", encoding="utf-8") as journal:
        member = _Member(plan["topic"], plan["conf"], journal, incremental=plan["incremental"])
        send_line(READY)
        if not sys.stdin.readline():
            return
        member.join()
        while not select.select([sys.stdin], [], [], 0)[0]:
            member.read()
        member.leave()


if __name__ == "__main__":
    main()
