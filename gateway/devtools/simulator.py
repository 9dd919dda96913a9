"""Simulated fleet: a seed decides what it sends, a rate decides when.

Pure: the same seed gives the same devices, values, faults and order. gateway/devtools/fleet_publisher.py publishes it.
"""

import json
import math
import random
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["FaultRates", "FleetMessage", "FleetScript"]

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """Share of messages, 0..1, for each kind of fault."""

    bad_json: float = 0.0
    out_of_order: float = 0.0
    wrong_clock: float = 0.0
    duplicate: float = 0.0

    @classmethod
    def default_mix(cls) -> "FaultRates":
        """Return a little of everything, so that dead letters and flags appear at once."""
        return cls(bad_json=0.004, out_of_order=0.004, wrong_clock=0.002, duplicate=0.004)

    def scaled(self, factor: float) -> "FaultRates":
        """Return the same mixture, `factor` times as frequent."""
        return FaultRates(
            bad_json=self.bad_json * factor,
            out_of_order=self.out_of_order * factor,
            wrong_clock=self.wrong_clock * factor,
            duplicate=self.duplicate * factor,
        )


@dataclass(frozen=True, slots=True)
class FleetMessage:
    """One message to publish. `published_ms` is when it was made; `fault` is None or the kind of its fault."""

    device: str
    boot: int
    seq: int
    topic: str
    payload: bytes
    published_ms: int
    fault: str | None = None


@dataclass(slots=True)
class _Device:
    name: str
    phase: float
    battery: float
    seq: int = 0
    held: FleetMessage | None = None


class FleetScript:
    """Script of a fleet: which device sends what next.

    Args:
        devices: how many.
        seed: same seed, same script.
        boot: the boot count that all devices claim; must differ between runs, as (device, boot, seq) is the identity.
        faults: share of each fault.
        prefix: of the device ids.
        metrics: how many values each message holds, 1 to 4.
    """

    def __init__(
        self,
        devices: int,
        *,
        seed: int,
        boot: int,
        faults: FaultRates | None = None,
        prefix: str = "sim",
        metrics: int = 4,
    ) -> None:
        self._metrics = metrics
        self._random = random.Random(seed)  # noqa: S311 - a simulation must repeat
        self._boot = boot
        self._faults = faults or FaultRates()
        width = len(str(devices))
        self._devices = [
            _Device(f"{prefix}-{number:0{width}d}", self._random.uniform(0, math.tau), self._random.uniform(3.6, 4.2))
            for number in range(1, devices + 1)
        ]
        self._next = 0
        self._queued: deque[FleetMessage] = deque()

    def next_message(self, now_ms: int) -> FleetMessage:
        """Return the next message of the script, stamped with the given time."""
        if self._queued:
            return self._queued.popleft()
        device = self._devices[self._next]
        self._next = (self._next + 1) % len(self._devices)
        return self._with_faults(device, now_ms)

    def _with_faults(self, device: _Device, now_ms: int) -> FleetMessage:
        draw = self._random.random()
        faults = self._faults
        for name, share in (
            ("bad_json", faults.bad_json),
            ("wrong_clock", faults.wrong_clock),
            ("duplicate", faults.duplicate),
            ("out_of_order", faults.out_of_order),
        ):
            if draw < share:
                return self._faulty(device, now_ms, name)
            draw -= share
        return self._message(device, now_ms)

    def _faulty(self, device: _Device, now_ms: int, fault: str) -> FleetMessage:
        if fault == "wrong_clock":
            return self._message(device, now_ms, fault, clock_error_ms=365 * DAY_MS)
        first = self._message(device, now_ms, fault)
        if fault == "bad_json":
            return replace(first, payload=first.payload[:-3])
        if fault == "duplicate":
            self._queued.append(first)
            return first
        self._queued.append(first)
        return self._message(device, now_ms, fault)

    def _message(
        self, device: _Device, now_ms: int, fault: str | None = None, *, clock_error_ms: int = 0
    ) -> FleetMessage:
        device.seq += 1
        payload = {"ts": now_ms + clock_error_ms, "boot": self._boot, "seq": device.seq, "values": self._values(device)}
        topic = f"tidegate/v1/{device.name}/readings"
        encoded = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
        return FleetMessage(device.name, self._boot, device.seq, topic, encoded, now_ms, fault)

    def _values(self, device: _Device) -> dict[str, Any]:
        """Return values of a day's swing around a room's climate, with noise; the battery only falls."""
        swing = math.sin(device.phase + device.seq / 200)
        device.battery = max(3.0, device.battery - 0.00001)
        values = {
            "temperature": {"value": round(21 + 4 * swing + self._random.gauss(0, 0.1), 2), "unit": "°C"},
            "humidity": {"value": round(50 - 15 * swing + self._random.gauss(0, 0.5), 1), "unit": "%"},
            "pressure": {
                "value": round(1013 + 6 * math.cos(device.phase) + self._random.gauss(0, 0.2), 1),
                "unit": "hPa",
            },
            "battery": {"value": round(device.battery, 3), "unit": "V"},
        }
        return dict(list(values.items())[: self._metrics])
