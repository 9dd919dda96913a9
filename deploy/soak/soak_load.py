"""Load of a soak: the benchmark's publisher in a new process per minute, so that a broken connection costs a minute at most."""

import json
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Final

from deploy.bench.load_publisher import LoadPlan, broker_fields
from gateway.gateway_settings import MqttSettings

__all__ = ["SoakLoad"]

SLICE_SECONDS: Final = 60.0
START_SECONDS: Final = 5.0
"""Time to start the process and to encode a minute's packets."""
DEVICES: Final = 50
PATIENCE_SECONDS: Final = 90.0


class SoakLoad:
    """Publishes in the background from `start` to `stop`.

    Two fleets take turns, so that the next minute is encoded while this one is sent. A fleet keeps its boot and counts on:
    its identities are one range for each device, as those of real devices are.

    Attributes:
        sent: messages that were handed to the broker.
        acknowledged: those with a PUBACK.
        broken: minutes that ended early, with the broker's connection.
    """

    def __init__(self, mqtt: MqttSettings, *, rate: float, seconds: float) -> None:
        self.sent = self.acknowledged = self.broken = 0
        self._rate, self._seconds = rate, seconds
        name, boot = f"soak-{uuid.uuid4().hex[:6]}", int(time.time() * 1000)
        plan = LoadPlan(
            **broker_fields(mqtt),
            messages=round(rate * SLICE_SECONDS), rate=rate, devices=DEVICES, connections=2, boot=boot, name=name,
        )  # fmt: skip
        self._fleets = [replace(plan, name=f"{name}-{letter}") for letter in "ab"]
        self._stop, self._counting = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def start(self) -> None:
        """Begin; the first message is due in some seconds."""
        self._thread.start()

    def stop(self) -> None:
        """No further minute begins; back when the last one is over."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        begin_at, slices = time.time() + START_SECONDS, []
        end_at, turn = begin_at + self._seconds, 0
        while not self._stop.is_set() and begin_at < end_at - 1:
            fleet = self._fleets[turn % 2]
            messages = round(self._rate * min(SLICE_SECONDS, end_at - begin_at))
            each = threading.Thread(
                target=self._publish, args=(replace(fleet, begin_at=begin_at, messages=messages),), daemon=True
            )
            each.start()
            slices.append(each)
            # A message that was not accepted is not sent again: the device counts on, and the gap is the publisher's.
            self._fleets[turn % 2] = replace(fleet, first_seq=fleet.first_seq + -(-messages // DEVICES))
            begin_at, turn = begin_at + SLICE_SECONDS, turn + 1
            self._stop.wait(max(0.0, begin_at - START_SECONDS - time.time()))
        for each in slices:
            each.join(PATIENCE_SECONDS)

    def _publish(self, plan: LoadPlan) -> None:
        command = [sys.executable, "-P", "-m", "deploy.bench.load_publisher"]
        # The plan holds a password, which has no place on a command line.
        said = subprocess.run(
            command, input=json.dumps(asdict(plan)) + "\n\n", capture_output=True, text=True, check=False
        )
        with self._counting:
            self.broken += said.returncode != 0
            with suppress(ValueError, IndexError, KeyError):
                result = json.loads(said.stdout.splitlines()[-1])
                self.sent += int(result["sent"])
                self.acknowledged += int(result["acknowledged"])
