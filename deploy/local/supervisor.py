"""Supervisor of the embedded run: starts the parts in order, keeps their state on disk, and stops them in order.

It also reports faults that the monitor cannot see, or not while the monitor is down: a part that restarts again and again or
is no longer ready, a disk that fills up, and clients that mosquitto's log names.
"""

import json
import logging
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from deploy.local.guard import Guard
from deploy.local.logs import last_lines, rotate
from deploy.local.part import Part, PartSpec
from deploy.local.runfile import RunFile
from deploy.settings import child_environment
from deploy.settings_file import write_private
from gateway.mqtt.session_text import shown_client_id
from gateway.safe_text import show_text

__all__ = ["Supervisor", "broker_alerts", "part_alerts"]

logger = logging.getLogger("tidegate.deploy.supervisor")

LOOK_SECONDS: Final = 2.0
LOW_DISK_BYTES: Final = 1024**3
BROKER_LINES: Final = 1000
RECENT_SECONDS: Final = 600.0
CONTENDED_TIMES: Final = 6
"""Takeovers of one client id in mosquitto's log that mean two clients. A client with a bad link also takes over its own session,
but less often."""
_SHOWN_CLIENTS: Final = 5
_BROKER_LINE: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d): Client (.+?) (?:"
    r"(disconnected due to oversize packet)|(already connected, closing old connection))\.",
)


class Supervisor:
    """One embedded run. The thread that owns it calls `tick` a few times per second.

    Args:
        data: the run's folder; logs go to its `logs/`.
        run: the run file; the supervisor keeps the process ids in it up to date.
        guard: clears up if this process is killed; the supervisor watches it.
        specs: the parts, in the order in which they are shown.
        stop_order: names of parts in the order of a stop; parts that it does not name stop first.
        log_max_bytes: size at which a log is rotated.
        notes: permanent warnings, such as a broker that loses its queue when killed.
    """

    def __init__(
        self,
        data: Path,
        run: RunFile,
        guard: Guard,
        specs: Iterable[PartSpec],
        *,
        stop_order: Sequence[str],
        log_max_bytes: int,
        notes: Sequence[dict[str, str]] = (),
    ) -> None:
        self._data = data
        self._run = run
        self._stop_order = stop_order
        self._log_max_bytes = log_max_bytes
        self._notes = list(notes)
        self._changed = threading.Event()
        self._looked_at = 0.0
        self._guard = guard
        self._faults: dict[str, str] = {}
        environment = child_environment(run.run_id, data)
        self._parts = {
            spec.name: Part(spec, environment=environment, log=data / "logs" / f"{spec.name}.log", cwd=data)
            for spec in specs
        }

    def start(self) -> None:
        """Start all parts, each as soon as the parts that it needs have been ready."""
        for part in self._parts.values():
            part.start(self._parts, self._changed.set)

    @property
    def ready(self) -> bool:
        """True if every required part is ready now, including the canary, which reads rows back.

        Prometheus and Alertmanager are not required: readings and the monitor do not need them, and they may take long to load
        their stored data. If they fail, an alert fires.
        """
        return all(part.state in ("ready", "done") for part in self._parts.values() if not part.spec.optional)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the state of each part, as in `state.json`."""
        return {
            name: {
                "state": part.state,
                "since": part.since,
                "detail": part.detail,
                "seconds": part.first_ready_seconds,
                "pid": part.pid,
                "restarts": part.restarts,
                "last_end": part.last_end,
            }
            for name, part in self._parts.items()
        }

    def tick(self) -> None:
        """Look at the parts if it is time, rotate their logs, and write the state."""
        due = time.monotonic() - self._looked_at >= LOOK_SECONDS
        if due:
            self._looked_at = time.monotonic()
            for act in (self._rotate_logs, self._guard.watch):
                self._survive(act)
        if due or self._changed.is_set():
            self._changed.clear()
            self._survive(self._write)

    def _survive(self, act: Callable[[], None]) -> None:
        """Call `act` and log each kind of error once. No error may end the supervisor, because it has parts to watch."""
        try:
            act()
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            if self._faults.get(act.__name__) != fault:
                logger.warning("a check of the run failed; the next one follows: %s", fault)
            self._faults[act.__name__] = fault
        else:
            self._faults.pop(act.__name__, None)

    def stop(self, notify: Callable[[str], None]) -> None:
        """Stop all parts in order, each within its time; call `notify(name)` before each."""
        for part in self._parts.values():
            if part.state == "waiting":
                part.stop()
        named = [name for name in self._stop_order if name in self._parts]
        for name in [*(name for name in self._parts if name not in named), *named]:
            if self._parts[name].pid is not None:
                notify(name)
            self._stop_one(self._parts[name])

    def _stop_one(self, part: Part) -> None:
        """Stop a part and keep the state on disk up to date, because `down` shows it from there."""
        stopping = threading.Thread(target=part.stop, daemon=True)
        stopping.start()
        while stopping.is_alive():
            stopping.join(0.1)
            if self._changed.is_set():
                self._changed.clear()
                self._survive(self._write)

    def _rotate_logs(self) -> None:
        for part in self._parts.values():
            rotate(part.log, max_bytes=self._log_max_bytes)
        rotate(self._data / "logs" / "supervisor.log", max_bytes=self._log_max_bytes)

    def _write(self) -> None:
        parts = self.parts()
        said = last_lines(self._data / "logs" / "broker.log", BROKER_LINES)
        alerts = [
            *self._notes,
            *part_alerts(parts, disk_free_bytes=self._disk_free()),
            *broker_alerts(said, now=time.time()),
        ]
        state = {
            "run_id": self._run.run_id,
            "ready": self.ready,
            "at": time.time(),
            "parts": parts,
            "alerts": alerts,
        }
        self._run.parts = {name: part["pid"] for name, part in parts.items()}
        # A full disk must not end the supervisor, because it has parts to watch.
        with suppress(OSError):
            self._run.write(self._data)
            write_private(self._data / "state.json", json.dumps(state) + "\n")

    def _disk_free(self) -> int:
        return shutil.disk_usage(self._data).free


def part_alerts(parts: Mapping[str, Mapping[str, Any]], *, disk_free_bytes: int) -> list[dict[str, str]]:
    """Return an alert for each fault of a part or of the disk, with the next step."""
    found = [
        {"part": name, "text": f"{name}: {(part['detail'] or part['state']).rstrip('.')}. See `tidegate logs {name}`."}
        for name, part in parts.items()
        if part["state"] in ("restarting", "failed") or _was_ready(part)
    ]
    if disk_free_bytes < LOW_DISK_BYTES:
        text = f"Only {disk_free_bytes // 1024**2} MB of disk are free. On a full disk the gateway stops accepting messages."
        found.append({"part": "disk", "text": text})
    return found


def _was_ready(part: Mapping[str, Any]) -> bool:
    """Return whether a part has been ready and is not now, although it was not stopped."""
    return part["state"] == "down" or (part["state"] == "starting" and part.get("seconds") is not None)


def broker_alerts(lines: Iterable[str], *, now: float) -> list[dict[str, str]]:
    """Return mosquitto's warnings of the last ten minutes, each with the clients' names and the next step.

    A client sent a packet above the limit, or two clients use the same id. No figure under `$SYS` names a client, and a device
    that keeps its queue sends the same packet again and again.

    Args:
        lines: the last lines of the broker's log.
        now: epoch seconds; the log's times are UTC.
    """
    oversize: Counter[str] = Counter()
    contended: Counter[str] = Counter()
    for line in lines:
        found = _BROKER_LINE.fullmatch(line.strip())
        if found is None or not _is_recent(found[1], now):
            continue
        (oversize if found[3] else contended)[found[2]] += 1
    texts = []
    if oversize:
        texts.append(
            f"In the last 10 minutes the broker refused packets above its limit from {_named(oversize)} and closed the "
            "connections. These packets never arrive, and a device that keeps its queue sends them again without end. Send "
            "smaller packets, or clear the device's queue."
        )
    if fights := Counter({name: times for name, times in contended.items() if times >= CONTENDED_TIMES}):
        texts.append(
            f"Two clients share a client id and took over each other's session in the last 10 minutes: {_named(fights)}. Give "
            "each client its own id."
        )
    return [{"part": "broker", "text": text} for text in texts]


def _is_recent(stamp: str, now: float) -> bool:
    try:
        at = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return False
    return now - RECENT_SECONDS <= at <= now + 60


def _named(clients: Counter[str]) -> str:
    shown = clients.most_common(_SHOWN_CLIENTS)
    names = [f"{show_text(shown_client_id(name))} ({times} times)" for name, times in shown]
    more = len(clients) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
