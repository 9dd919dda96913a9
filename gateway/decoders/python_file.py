"""Decoders that are one Python file in a folder: `NAME.py` with `decode(topic, payload)`, named by a route's `decoder`.

`decode` returns what the native format says, or an array of such: `{"values": {metric: value}, "ts": …, "device": …,
"id": …}`, all but `values` optional; None for a message that is no reading. A value may be `{"value": …, "unit": …}`.

Each decoder runs in a process of its own, for threads cannot be ended: an exception, an end of the process, or more
than `decoder_seconds` costs the message that it read, which becomes a dead letter. A changed file is loaded within a
second; where it cannot be loaded, the one before stays.
"""

import logging
import os
import re
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Final

from gateway.decoders.mapping import CompiledMapping
from gateway.decoders.mapping_settings import MappingSettings
from gateway.decoders.python_worker import MOST_BYTES, NOTHING, READY, REQUEST, RESPONSE, VALUE
from gateway.decoders.shape import Decoding, Ignored, RouteMatch
from gateway.json_text import Document, parse_json
from gateway.settings import GatewaySettings
from gateway.show import show
from gateway.watch import Stamp, stamp_of
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["NAME", "PythonFileDecoder", "find_files"]

logger = logging.getLogger("tidegate.gateway")
NAME: Final = re.compile(r"(?!test_)[a-z][a-z0-9_]{0,40}")
START_SECONDS: Final = 10.0
"""Until a file must be loaded; then the gateway goes on without it."""
LOOK_SECONDS: Final = 1.0
_OVERRUNS: Final = 3
_PAUSE_SECONDS: Final = 30.0
"""After so many overruns one after another a decoder gets no message for so long, unless its file changes."""
_MAPPING: Final = MappingSettings.model_validate(
    {
        "items": ["answer[]"],
        "device": ["{.device}", "{device}"],
        "time": ["ts"],
        "values": ["values"],
        "message_id": ["{.id}"],
    }
)


def find_files(folder: str | None) -> dict[str, Path]:
    """The decoders of a folder by their name; none where there is no folder."""
    if folder is None or not Path(folder).is_dir():
        return {}
    return {file.stem: file for file in sorted(Path(folder).glob("*.py")) if NAME.fullmatch(file.stem)}


class _Failed(Exception):
    """The process did not answer; the text says how."""


class _Worker:
    """One process with one loaded file."""

    def __init__(self, file: Path, seconds: float) -> None:
        """Start it.

        Raises:
            _Failed: the file cannot be loaded.
        """
        self._channel, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "gateway.decoders.python_worker",
            str(theirs.fileno()),
            str(file),
            str(seconds),
        ]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                # Ctrl-C is for the gateway, which still needs its decoders to drain.
                start_new_session=True,
            )
        self.end = weakref.finalize(self, _end, self._process, self._channel)
        try:
            kind, content = self._hear(time.monotonic() + START_SECONDS)
        except (OSError, _Failed) as error:
            self.end()
            raise _Failed(str(error) or f"it was not loaded within {START_SECONDS:g} s") from error
        if kind != READY:
            self.end()
            raise _Failed(content.decode("utf-8", "replace"))

    def ask(self, topic: bytes, payload: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Kind and content of the answer.

        Raises:
            TimeoutError: there is none in time. _Failed: the process ended. After both it is of no use.
        """
        until = time.monotonic() + seconds
        self._channel.settimeout(seconds)
        try:
            self._channel.sendall(REQUEST.pack(len(topic), len(payload)) + topic + payload)
            return self._hear(until)
        except TimeoutError:
            raise
        except OSError as error:
            raise _Failed(str(error)) from error

    def _hear(self, until: float) -> tuple[bytes, bytes]:
        taken = bytearray()
        wanted, kind = RESPONSE.size, b""
        while len(taken) < wanted or not kind:
            self._channel.settimeout(max(0.0001, until - time.monotonic()))
            piece = self._channel.recv(65536)
            if not piece:
                message = f"its process ended (code {self._process.wait()})"
                raise _Failed(message)
            taken += piece
            if not kind and len(taken) >= RESPONSE.size:
                kind, length = RESPONSE.unpack_from(taken)
                if length > MOST_BYTES:
                    message = f"it answers {length} bytes, more than {MOST_BYTES}"
                    raise _Failed(message)
                wanted = RESPONSE.size + length
        return kind, bytes(taken[RESPONSE.size : wanted])


def _end(process: "subprocess.Popen[bytes]", channel: socket.socket) -> None:
    process.kill()
    process.wait()
    channel.close()


class PythonFileDecoder:
    """A `Decoder` that asks a process of its own. It is the one decoder that waits, at most `decoder_seconds`."""

    def __init__(self, file: Path) -> None:
        """The process starts with the first message."""
        self._file = file
        self._worker: _Worker | None = None
        self._mapping = CompiledMapping(_MAPPING)
        self._stamp: Stamp | None = None
        self._refusal: str | None = None
        self._looked_at = float("-inf")
        self._overruns, self._paused_until = 0, 0.0

    def __call__(self, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
        """Decode one message; see `Decoder`."""
        self._look(limits.decoder_seconds)
        if time.monotonic() < self._paused_until:
            return self._refuse(f"{_OVERRUNS} messages in a row took too long; it rests for {_PAUSE_SECONDS:g} s")
        answer = self._ask(match.topic.encode("utf-8", "replace"), payload, limits.decoder_seconds)
        if isinstance(answer, Reject):
            return answer
        kind, content = answer
        if kind == VALUE:
            return self._read(content, payload, match, limits, received_us)
        return Ignored(IgnoredReason.NO_VALUE) if kind == NOTHING else self._refuse(content.decode("utf-8", "replace"))

    def _ask(self, topic: bytes, payload: bytes, seconds: float) -> tuple[bytes, bytes] | Reject:
        try:
            if self._worker is None:
                self._start(seconds)
            if self._worker is None:
                return self._refuse(self._refusal or "it is not loaded")
            answer = self._worker.ask(topic, payload, seconds)
        except TimeoutError:
            return self._overrun(seconds)
        except _Failed as error:
            self._stop()
            return self._refuse(str(error))
        self._overruns = 0
        return answer

    def _read(
        self, content: bytes, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int
    ) -> Decoding:
        document = parse_json(content, max_bytes=MOST_BYTES, max_depth=limits.max_json_depth)
        if isinstance(document, Reject):
            return self._refuse(f"its answer cannot be read: {document.got}")
        items = document.value if isinstance(document.value, list) else [document.value]
        if not all(isinstance(item, dict) and isinstance(item.get("values"), dict) for item in items):
            return self._refuse('its answer is neither {"values": {…}}, an array of such, nor None')
        answer = Document({"answer": items}, document.flags)
        return self._mapping.read(answer, payload, match, limits, received_us)

    def _look(self, seconds: float) -> None:
        """Load the file anew where it changed; at most once a second."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            stamp: Stamp | None = stamp_of(os.stat(self._file))
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return
        is_first, self._stamp = self._stamp is None, stamp
        if not is_first and stamp is not None:
            self._paused_until, self._overruns = 0.0, 0
            self._start(seconds)

    def _start(self, seconds: float) -> None:
        """A process with the file as it is; where that fails the present one stays."""
        try:
            worker = _Worker(self._file, seconds)
        except (OSError, _Failed) as error:
            self._refusal = f"it cannot be loaded: {error}"
            logger.warning("decoder %s cannot be loaded (%s); correct the file, it is read again", self._file, error)
            return
        self._stop()
        self._worker, self._refusal = worker, None
        logger.info("decoder %s is loaded", self._file)

    def _overrun(self, seconds: float) -> Reject:
        self._stop()
        self._overruns += 1
        if self._overruns >= _OVERRUNS:
            self._paused_until, self._overruns = time.monotonic() + _PAUSE_SECONDS, 0
            logger.warning("decoder %s took more than %g s %d times in a row; it rests", self._file, seconds, _OVERRUNS)
        return self._refuse(f"it took more than {seconds:g} s (gateway.decoder_seconds) and was ended")

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _refuse(self, why: str) -> Reject:
        wanted = f"a decoder that reads this message: correct {self._file.name}, then redrive"
        return Reject(Reason.UNDECODED, None, show(f"decoder {self._file.stem}: {why}"), show(wanted))
