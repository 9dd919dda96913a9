"""Processes of gateways with leases on one log in memory, under a clock that a test moves.

`from tests.support.leases import World`.
"""

from collections.abc import Callable
from typing import Any

from gateway.lease.gateway_lease import GatewayLease
from gateway.lease.lease_record import LeaseRecord, decode_lease, is_lease
from ingest.contract.errors import FatalError
from ingest.contract.topics import GATEWAY_STATE
from ingest.memory import MemoryFollower, MemoryLog


class FakeTimer:
    """A kernel timer under the world's clock."""

    available = True

    def __init__(self) -> None:
        self.at: float | None = None

    def arm(self, at: float) -> None:
        self.at = at

    def disarm(self) -> None:
        self.at = None


class Writer:
    """A writer of the log that waits for nothing: time passes only where a test moves the clock."""

    def __init__(self, log: MemoryLog) -> None:
        self._log, self._writer = log, log.writer()
        self.in_flight = 0

    def produce(self, topic: str, key: bytes, value: bytes, done: Callable[[Any], None]) -> None:
        def reported(error: Any) -> None:
            self.in_flight -= 1
            done(error)

        self.in_flight += 1
        self._writer.produce(topic, key, value, reported)

    def flush(self, _seconds: float) -> int:
        self._writer.poll(0.0)
        return self.in_flight


class Process:
    """One process of a gateway. It acts only when a test lets it; the kernel's timer kills it meanwhile."""

    def __init__(
        self, world: "World", name: str, *, has_timer: bool = True, conflicts: Any = "reject", **record: Any
    ) -> None:
        self.world, self.timer, self.alive = world, FakeTimer(), True
        self.connected, self.unreachable, self.epoch = True, "", 0
        self.before_look: Callable[[], None] | None = None
        self._follower = MemoryFollower(world.log, is_lease)
        values = {
            "gateway": "gw-1", "process": f"{name}/1/a", "machine": f"machine of {name}", "client_id": "gate",
            "broker": "b:1883", "filters": ("site/#",), "seconds": 20.0, **record,
        }  # fmt: skip
        self.lease = GatewayLease(
            LeaseRecord(**values), self, conflicts=conflicts, reach=lambda: self.unreachable, clock=lambda: world.now,
            timer=self.timer if has_timer else None, runs=lambda pid: pid in world.pids,  # type: ignore[arg-type]
        )  # fmt: skip
        self.writer: Any = Writer(world.log)
        world.processes.append(self)

    def catch_up(self) -> list[tuple[str, bytes]]:
        hook, self.before_look = self.before_look, None
        if hook is not None:
            hook()
        return self._follower.catch_up()

    def state(self) -> list[tuple[str, bytes]]:
        return self._follower.state()

    def forget(self) -> None:
        self._follower.forget()

    @property
    def holds(self) -> bool:
        """Whether it may still send."""
        return self.alive and self.lease.held

    def step(self) -> str:
        return self.lease.step(self.writer)

    def keep(self) -> bool:
        kept = self.lease.keep(self.writer, epoch=self.epoch, connected=self.connected)
        self.writer.flush(0)
        return kept

    def act(self) -> None:
        """One pass of its loop; it ends as the gateway does."""
        if not self.alive:
            return
        if not self.lease.held:
            self.step()
            return
        try:
            self.keep()
        except FatalError:
            self.alive = False


class World:
    """The log, the clock and all processes."""

    def __init__(self) -> None:
        self.log, self.now = MemoryLog(), 1000.0
        self.processes: list[Process] = []
        self.pids: set[int] = set()

    def process(self, name: str, **more: Any) -> Process:
        return Process(self, name, **more)

    def pass_time(self, seconds: float, *acting: Process) -> None:
        """Move the clock in steps of half a second; these processes act at each of them."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.5)
            for process in self.processes:
                if process.timer.at is not None and self.now >= process.timer.at:
                    process.alive = False
            for process in acting:
                process.act()

    def records(self) -> list[LeaseRecord]:
        found = [decode_lease(record.value or b"") for record in self.log.records(GATEWAY_STATE)]
        return [record for record in found if record is not None]
