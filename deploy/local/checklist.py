"""The live checklist of `tidegate up` on stderr: each part with its seconds, and an update at least every 2 s.

On a terminal the block is drawn again in place. Elsewhere each change is one line, and "still …" lines show that it is alive.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

__all__ = ["Checklist"]

SILENCE_SECONDS: Final = 1.8
SPINNER: Final = "|/-\\"
SETTLED: Final = ("ready", "done")


class Checklist:
    """Shows snapshots of the parts: `{name: {state, since, detail, seconds, last_end}}`.

    Without a terminal it prints each end of a part, also one whose restart began and ended between two snapshots.
    """

    def __init__(self, stream: IO[str], *, tty: bool | None = None, silence_seconds: float = SILENCE_SECONDS) -> None:
        self._silence_seconds = silence_seconds
        self._stream = stream
        self._tty = stream.isatty() if tty is None else tty
        self._drawn = 0
        self._spin = 0
        self._seen: dict[str, str] = {}
        self._ends: dict[str, Any] = {}
        self._spoke_at = 0.0

    def show(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Show how the parts stand now."""
        if self._tty:
            self._redraw(parts)
        else:
            self._append(parts)

    def skip(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take note of how the parts stand without showing it: only changes from here on are news."""
        self._seen = {name: part["state"] for name, part in parts.items()}
        self._ends = {name: part.get("last_end") for name, part in parts.items()}

    def _append(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        for name, part in parts.items():
            state, end = part["state"], part.get("last_end")
            if end is not None and end != self._ends.get(name):
                self._say(_line(name, {**part, "state": "restarting", "detail": end[1]}, "!!"))
                self._ends[name], self._seen[name] = end, "restarting"
            if state != self._seen.get(name) and state not in ("waiting", "starting", "stopping", "restarting"):
                self._say(_line(name, part, _mark(part, "")))
            self._seen[name] = state
        open_parts = [_still(name, part) for name, part in parts.items() if part["state"] == "starting"]
        if open_parts and time.monotonic() - self._spoke_at >= self._silence_seconds:
            self._say(f"  ..  still starting: {', '.join(open_parts)}")

    def _say(self, line: str) -> None:
        self._put(f"{line}\n")
        self._spoke_at = time.monotonic()

    def _put(self, text: str) -> None:
        # A terminal that is gone must not end the run, whose parts have to be stopped in order.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _redraw(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        self._spin += 1
        spinner = SPINNER[self._spin % len(SPINNER)]
        columns = shutil.get_terminal_size().columns
        lines: Sequence[str] = [_line(name, part, _mark(part, spinner))[: columns - 1] for name, part in parts.items()]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._put(up + "".join(f"\r\x1b[K{line}\n" for line in lines))
        self._drawn = len(lines)


def _still(name: str, part: Mapping[str, Any]) -> str:
    detail = f": {part['detail']}" if part["detail"] else ""
    return f"{name} ({_age(part):.0f} s{detail})"


def _mark(part: Mapping[str, Any], spinner: str) -> str:
    if part["state"] in SETTLED:
        return "ok"
    if part["state"] in ("restarting", "failed", "down"):
        return "!!"
    return spinner if part["state"] in ("starting", "stopping") and spinner else ".."


def _line(name: str, part: Mapping[str, Any], mark: str) -> str:
    seconds = part.get("seconds")
    shown = seconds if seconds is not None else _age(part)
    clock = "" if part["state"] in ("waiting", "stopped", "down") else f"{shown:5.1f} s"
    detail = part["detail"] or ("" if part["state"] in SETTLED else part["state"])
    return f"  {mark:<2}  {name:<12} {clock:>7}  {detail}".rstrip()


def _age(part: Mapping[str, Any]) -> float:
    return max(0.0, time.time() - float(part["since"]))
