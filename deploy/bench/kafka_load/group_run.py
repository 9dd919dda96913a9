"""A consumer group during an event: the partitions of each member, and how long each member pauses."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal

from deploy.bench.kafka_load.feed import RecordFeed, SteadyLoad, count_backwards, longest_pause_ms
from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.worker import LoadWorker, open_worker
from deploy.bench.temporary import signed_folder
from deploy.bench.waiting import await_condition
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.security import client_conf

__all__ = ["Event", "GroupRun", "MemberJournal", "Protocol", "figures_of", "range_shares", "run_group"]

Event = Literal["none", "leave", "join", "die", "leader_killed"]
Protocol = Literal["range", "cooperative", "consumer"]
"""Protocol of the members: `range` stops all of them at a change, `cooperative` only those that move (both classic);
`consumer`: KIP-848.
"""

_SETTLE_SECONDS: Final = 60.0
_STEADY_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05
SESSION_MS: Final = 6000
"""Time without a heartbeat after which a member counts as dead; Kafka's default is 45 s, its minimum 6 s."""


@dataclass(frozen=True, kw_only=True)
class GroupRun(SteadyLoad):
    """A group, and the load that it reads while something happens to it.

    Attributes:
        members: at the start.
        event: `none`; a member leaves, joins, dies by SIGKILL; or the leader of partition 0 is killed by the caller.
        protocol: of the members.
    """

    members: int
    event: Event = "none"
    protocol: Protocol = "range"


@dataclass
class MemberJournal:
    """Notes of one member: records as (partition, number, microseconds), assignments as (microseconds, partitions)."""

    records: list[tuple[int, int, int]] = field(default_factory=list)
    assignments: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    read_at: dict[int, int] = field(default_factory=dict)
    """Time at which each partition's last record was read."""
    member_id: str = ""
    """Member id in the group; the range assignment sorts members by it."""

    @classmethod
    def read(cls, text: str) -> "MemberJournal":
        """Read the lines of a file; a line that a kill truncated is left out."""
        found = cls()
        found.add(text)
        return found

    def add(self, text: str) -> None:
        """Add further lines."""
        for line in text.splitlines(keepends=True):
            kind, _, rest = line.rstrip("\n").partition(" ")
            if not line.endswith("\n"):
                continue
            if kind == "r":
                partition, number, at = map(int, rest.split(" "))
                self.records.append((partition, number, at))
                self.read_at[partition] = at
            elif kind == "m":
                self.member_id = rest
            else:
                at_text, _, has = rest.partition(" ")
                self.assignments.append((int(at_text), frozenset(map(int, filter(None, has.split(","))))))

    @property
    def has(self) -> frozenset[int]:
        """The partitions that the member had last."""
        return self.assignments[-1][1] if self.assignments else frozenset()


def run_group(
    run: GroupRun, kafka: KafkaSettings, *, kill_leader: Callable[[str], object] | None = None
) -> dict[str, float]:
    """Start a group on a topic with a steady feed, let the event happen, wait until all partitions are read again.

    Args:
        run: what happens.
        kafka: the cluster.
        kill_leader: ends the broker that leads partition 0 of the topic, for `leader_killed`.

    Returns:
        `idle_members`, members without a partition; `most_partitions`, `least_partitions` of one member; `unread_partitions`;
        `pause_ms`, the longest time without a record of a member that stays, after the event; `partition_pause_ms`, the
        longest of a partition; `unacknowledged_ms`, the longest time of a partition without an acknowledgement; `lost`,
        records that were acknowledged and not read; `again`, read more than once; `out_of_order`, read by a member after a later
        one of the same partition; `failed`, rejected by Kafka. With protocol `range` also `off_range_members`, those of the group
        after the event whose partitions are not the contiguous range that belongs to their place among the sorted members.

    Raises:
        UnavailableError: a member ended early, or the group did not settle within a minute.
    """
    with temporary_topic(run, kafka):
        return _Course(run, kafka).figures(kill_leader)


class _Course:
    def __init__(self, run: GroupRun, kafka: KafkaSettings) -> None:
        self._run, self._conf = run, client_conf(kafka, client_id="tidegate-bench")
        self._members: list[_Member] = []
        self._parts = ExitStack()

    def figures(self, kill_leader: Callable[[str], object] | None) -> dict[str, float]:
        run = self._run
        with self._parts:
            folder = self._parts.enter_context(signed_folder())
            feed = RecordFeed(run, self._conf)
            feed.start()
            self._parts.callback(feed.stop)
            self._add(folder, run.members)
            self._await_all_read(self._members, since_us=0)
            time.sleep(_STEADY_SECONDS)
            at_us = time.time_ns() // 1000
            stay = self._happen(folder, kill_leader)
            self._await_all_read(stay, since_us=at_us)
            time.sleep(_STEADY_SECONDS)
            feed.stop()
            self._await_numbers(feed)
            journals = {member.name: member.journal() for member in self._members}
            return figures_of(run, journals, [member.name for member in stay], feed.acknowledged, at_us) | {
                "failed": feed.failed
            }

    def _happen(self, folder: Path, kill_leader: Callable[[str], object] | None) -> list["_Member"]:
        """The event; returns the members that are in the group after it."""
        match self._run.event:
            case "leave":
                self._members[0].leave()
            case "die":
                self._members[0].worker.kill()
            case "join":
                self._add(folder, 1)
            case "leader_killed":
                if kill_leader is None:
                    message = "the brokers of this cluster cannot be killed from here. Leave `leader_killed` out for it"
                    raise UnavailableError(message)
                kill_leader(self._run.topic)
        return self._members[1:] if self._run.event in ("leave", "die") else list(self._members)

    def _add(self, folder: Path, count: int) -> None:
        """Members that join together, once all are there."""
        fresh = []
        for _ in range(count):
            name = f"member-{len(self._members)}"
            fresh.append(self._parts.enter_context(_member(name, self._plan(folder / name))))
            self._members.append(fresh[-1])
        for member in fresh:
            member.worker.say("join")

    def _plan(self, journal: Path) -> dict[str, Any]:
        protocol = self._run.protocol
        conf = {
            **self._conf, "group.id": self._run.topic, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500,
            "fetch.wait.max.ms": 20,
        }  # fmt: skip
        if protocol == "consumer":
            conf["group.protocol"] = "consumer"
        else:
            conf |= {
                "partition.assignment.strategy": "cooperative-sticky" if protocol == "cooperative" else "range",
                "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1000,
            }  # fmt: skip
        return {"topic": self._run.topic, "conf": conf, "journal": str(journal), "incremental": protocol != "range"}

    def _await_all_read(self, members: Sequence["_Member"], *, since_us: int) -> None:
        """Wait until each partition gave a record after this time, and members have equal shares, one apart at most."""
        wanted = set(range(self._run.partitions))

        def settled() -> bool:
            journals = [member.journal() for member in members]
            read = {partition for one in journals for partition, at in one.read_at.items() if at > since_us}
            owners = Counter(partition for one in journals for partition in one.has)
            sizes = [len(one.has) for one in journals]
            return read == wanted and owners == Counter(wanted) and max(sizes) - min(sizes) <= 1

        otherwise = f"the group of {len(members)} members on {self._run.partitions} partitions did not settle"
        await_condition(settled, otherwise, seconds=_SETTLE_SECONDS, look_seconds=_POLL_SECONDS)

    def _await_numbers(self, feed: RecordFeed) -> None:
        """Wait until all acknowledged records are read, or no more come."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < deadline:
            read = {number for member in self._members for _, number, _ in member.journal().records}
            if feed.acknowledged.keys() <= read:
                return
            time.sleep(_POLL_SECONDS * 4)


@dataclass
class _Member:
    name: str
    worker: LoadWorker
    file: Path
    _journal: MemberJournal = field(default_factory=MemberJournal)
    _read_bytes: int = 0

    def leave(self) -> None:
        """Leave the group like a consumer that is closed; returns at once."""
        self.worker.say("leave")

    def journal(self) -> MemberJournal:
        """All that it wrote down until now; only what is new since the last call is read."""
        if self.file.exists():
            with self.file.open("rb") as file:
                file.seek(self._read_bytes)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._read_bytes += len(whole)
            self._journal.add(whole.decode())
        return self._journal


@contextmanager
def _member(name: str, plan: Mapping[str, Any]) -> Iterator[_Member]:
    with open_worker("member", plan) as worker:
        worker.await_ready()
        yield _Member(name, worker, Path(plan["journal"]))


def figures_of(
    run: GroupRun,
    journals: Mapping[str, MemberJournal],
    stay: Sequence[str],
    acknowledged: Mapping[int, int],
    at_us: int,
) -> dict[str, float]:
    """The figures of `run_group` from what members and producer wrote down.

    Args:
        run: what happened.
        journals: by member.
        stay: members of the group after the event.
        acknowledged: number to time in microseconds.
        at_us: when the event happened.
    """
    owned = Counter(partition for name in stay for partition in journals[name].has)
    sizes = [len(journals[name].has) for name in stay]
    reads = [record for one in journals.values() for record in one.records]
    seen = Counter(number for _, number, _ in reads)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, _, at in reads:
        by_partition[partition].append(at)
    served_before = [
        name for name in stay
        if journals[name].has and any(at <= at_us for _, _, at in journals[name].records)
    ]  # fmt: skip
    return {
        "idle_members": sum(size == 0 for size in sizes),
        "most_partitions": max(sizes),
        "least_partitions": min(sizes),
        "unread_partitions": run.partitions - sum(count == 1 for count in owned.values()),
        "pause_ms": max(
            (longest_pause_ms([at for _, _, at in journals[name].records], at_us) for name in served_before),
            default=0.0,
        ),
        "partition_pause_ms": max(longest_pause_ms(times, at_us) for times in by_partition.values()),
        "unacknowledged_ms": _unacknowledged_ms(run.partitions, acknowledged, at_us),
        "lost": sum(number not in seen for number in acknowledged),
        "again": sum(count - 1 for count in seen.values()),
        "out_of_order": sum(count_backwards(one.records) for one in journals.values()),
        **(
            {"off_range_members": _off_range(run, [journals[name] for name in stay])} if run.protocol == "range" else {}
        ),
    }


def _unacknowledged_ms(partitions: int, acknowledged: Mapping[int, int], at_us: int) -> float:
    """Return the wait of the partition that waited longest; a silent one waits until the last acknowledgement of any."""
    last, times = max(acknowledged.values(), default=at_us), defaultdict[int, list[int]](list)
    for number, at in acknowledged.items():
        times[number % partitions].append(at)
    return max(longest_pause_ms([*(times[one] or [at_us]), last], at_us) for one in range(partitions))


def _off_range(run: GroupRun, journals: Sequence[MemberJournal]) -> int:
    """Members that have other partitions than the range assignment gives to them; one without a name among those."""
    shares = range_shares([one.member_id for one in journals], run.partitions)
    return sum(not one.member_id or one.has != shares[one.member_id] for one in journals)


def range_shares(members: Sequence[str], partitions: int) -> dict[str, frozenset[int]]:
    """Kafka's range assignment of one topic: members and partitions sorted, contiguous ranges, the first ones longer by one."""
    whole, rest = divmod(partitions, len(members))
    ends = list(accumulate(whole + (number < rest) for number in range(len(members))))
    starts = [0, *ends[:-1]]
    return {
        member: frozenset(range(start, end)) for member, start, end in zip(sorted(members), starts, ends, strict=True)
    }
