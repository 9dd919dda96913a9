"""Decoders in one Python file of a folder: `NAME.py` with `decode(topic, payload)`, named by a route's `decoder`.

`decode` returns the native format, or an array of such objects: `{"values": {metric: value}, "ts": …, "device": …,
"id": …}`, all but `values` optional; None for a message without readings. A value may be `{"value": …, "unit": …}`.

Each decoder runs in its own process, because threads cannot be ended. If it raises an exception, ends, or takes more than
`decoder_seconds`, the message that it read becomes a dead letter. A changed file is loaded within a second; if it cannot
be loaded, the previous version stays. A decoder that fails repeatedly is paused, so that its failures take a tenth of the
gateway's time at most.

`tidegate route new NAME` writes a first decoder, its test and its route from the texts here.
"""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.decoders.mapping.engine import CompiledMapping
from gateway.decoders.mapping.settings import MappingSettings
from gateway.decoders.python_worker import MOST_BYTES, NOTHING, READY, REQUEST, RESPONSE, VALUE
from gateway.decoders.shape import Decoding, Ignored, RouteMatch
from gateway.file_watch import FileStamp, file_stamp
from gateway.gateway_settings import GatewaySettings
from gateway.json_text import Document, parse_json
from gateway.safe_text import show_text
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import IgnoredReason, Reason

__all__ = ["NAME", "PythonFileDecoder", "decoder_text", "find_files", "route_text", "test_text"]

logger = logging.getLogger("tidegate.gateway")
NAME: Final = re.compile(r"(?!test_)[a-z][a-z0-9_]{0,40}")
START_SECONDS: Final = 10.0
"""Time limit for loading a file; after it the gateway continues without the file."""
LOOK_SECONDS: Final = 1.0
_MOST_FAILURES: Final = 3
"""After this many overruns or process ends in a row a decoder gets no message, unless its file changes."""
_PAUSE_SECONDS: Final = 30.0
"""Least pause after overruns, and after a failed load."""
_PAUSE_FACTOR: Final = 9
"""Least pause as a multiple of the time that the failures took."""
_MAPPING: Final = MappingSettings.model_validate(
    {
        "items": ["answer[]"],
        "device": ["{.device}", "{device}"],
        "time": ["ts"],
        "values": ["values"],
        "message_id": ["{.id}"],
    }
)
_DECODER: Final = '''"""Decoder {name}: bytes to readings. The gateway reloads this file within a second of a change."""


def decode(topic: str, payload: bytes) -> dict | list | None:
    """Return the readings of one message, or None for a message without readings.

    The readings are {{"values": {{metric: value}}}}, or a list of such objects. A value is a number, text, boolean or
    {{"value": …, "unit": …}}.
    Optional next to "values": "ts" (epoch or ISO 8601), "device" (default: the route's) and "id", by which a copy of the
    message is recognised. An exception turns the message into a dead letter with the text of the exception.
    """
    if len(payload) != 4:
        raise ValueError(f"4 bytes wanted, got {{len(payload)}}")
    temperature = int.from_bytes(payload[:2], "big", signed=True) / 10
    humidity = int.from_bytes(payload[2:], "big") / 10
    return {{
        "values": {{
            "temperature": {{"value": temperature, "unit": "°C"}},
            "humidity": {{"value": humidity, "unit": "%"}},
        }}
    }}
'''
_TEST: Final = '''"""Test of the decoder {name}: `python -m pytest {file}`. Put real messages of the device here."""

import pytest
from {name} import decode


def test_a_message() -> None:
    found = decode("site/{name}/device-1", bytes.fromhex("00d7 0190"))
    assert found == {{
        "values": {{"temperature": {{"value": 21.5, "unit": "°C"}}, "humidity": {{"value": 40.0, "unit": "%"}}}}
    }}


def test_a_message_that_is_cut_short() -> None:
    with pytest.raises(ValueError, match="got 1"):
        decode("site/{name}/device-1", b"\\x00")
'''
_ROUTE: Final = """[[routes]]
filter = "site/{name}/{{device}}"
device = "{{device}}"
decoder = "{name}"
"""


def find_files(folder: str | None) -> dict[str, Path]:
    """Return the decoders of a folder by their name; none without a folder."""
    if folder is None or not Path(folder).is_dir():
        return {}
    return {file.stem: file for file in sorted(Path(folder).glob("*.py")) if NAME.fullmatch(file.stem)}


class _Failed(Exception):
    """The process did not answer; the text says how."""


class _Worker:
    """Process with one loaded file."""

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
                # Ctrl-C is for the gateway, which still needs its decoders while it drains.
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
        """Return kind and content of the answer.

        Raises:
            TimeoutError: no answer in time. _Failed: the process ended. After both the process is unusable.
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
                self._await_exit(until)
                self.end()
                message = f"its process ended (code {self._process.returncode})"
                raise _Failed(message)
            taken += piece
            if not kind and len(taken) >= RESPONSE.size:
                kind, length = RESPONSE.unpack_from(taken)
                if length > MOST_BYTES:
                    message = f"its answer has {length} bytes, more than {MOST_BYTES}"
                    raise _Failed(message)
                wanted = RESPONSE.size + length
        return kind, bytes(taken[RESPONSE.size : wanted])

    def _await_exit(self, until: float) -> None:
        """Wait until the process has ended, but do not reap it: until then its number names its group.

        Raises:
            TimeoutError: it only closed its channel.
        """
        while os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.005)


def _end(process: "subprocess.Popen[bytes]", channel: socket.socket) -> None:
    # Includes everything that the decoder has started.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    channel.close()


class PythonFileDecoder:
    """`Decoder` that asks its own process. It is the only decoder that waits, at most `decoder_seconds`."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the decoder; its process starts with the first message."""
        self._file, self._clock = file, clock
        self._worker: _Worker | None = None
        self._mapping = CompiledMapping(_MAPPING)
        self._stamp: FileStamp | None = None
        self._refusal: str | None = None
        self._looked_at = float("-inf")
        self._failures, self._failed_seconds = 0, 0.0
        self._paused_until, self._pause_because = 0.0, ""

    def __call__(self, payload: bytes, match: RouteMatch, limits: GatewaySettings, received_us: int) -> Decoding:
        """Decode one message; see `Decoder`."""
        self._look(limits.decoder_seconds)
        left = self._paused_until - self._clock()
        if left > 0:
            return self._refuse(f"{self._pause_because}; it is paused for {max(1.0, left):.0f} s")
        answer = self._ask(match.topic.encode("utf-8", "replace"), payload, limits.decoder_seconds)
        if isinstance(answer, Reject):
            return answer
        kind, content = answer
        if kind == VALUE:
            return self._read(content, payload, match, limits, received_us)
        return Ignored(IgnoredReason.NO_VALUE) if kind == NOTHING else self._refuse(content.decode("utf-8", "replace"))

    def _ask(self, topic: bytes, payload: bytes, seconds: float) -> tuple[bytes, bytes] | Reject:
        began = self._clock()
        try:
            if self._worker is None:
                self._start(seconds)
            if self._worker is None:
                self._failures = _MOST_FAILURES
                return self._fail(self._refusal or "it is not loaded", began, _PAUSE_SECONDS)
            answer = self._worker.ask(topic, payload, seconds)
        except TimeoutError:
            took = f"it took more than {seconds:g} s (gateway.decoder_seconds) and was ended"
            return self._fail(took, began, _PAUSE_SECONDS)
        except _Failed as error:
            return self._fail(str(error), began, 0.0)
        self._failures, self._failed_seconds = 0, 0.0
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
        """Load the file again if it changed; at most once a second."""
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            stamp: FileStamp | None = file_stamp(os.stat(self._file))
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return
        is_first, self._stamp = self._stamp is None, stamp
        if not is_first and stamp is not None:
            self._paused_until, self._failures, self._failed_seconds = 0.0, 0, 0.0
            self._start(seconds)

    def _start(self, seconds: float) -> None:
        """Start a process with the current file; if that fails, the present one stays."""
        try:
            worker = _Worker(self._file, seconds)
        except (OSError, _Failed) as error:
            self._refusal = f"it cannot be loaded: {error}"
            logger.warning("Cannot load decoder %s (%s). Correct the file: it is read again.", self._file, error)
            return
        self._stop()
        self._worker, self._refusal = worker, None
        logger.info("Decoder %s is loaded.", self._file)

    def _fail(self, why: str, began: float, pause_seconds: float) -> Reject:
        """End the process; if it fails repeatedly, pause it for a while."""
        self._stop()
        now = self._clock()
        self._failures, self._failed_seconds = self._failures + 1, self._failed_seconds + now - began
        if self._failures >= _MOST_FAILURES:
            pause_seconds = max(pause_seconds, _PAUSE_FACTOR * self._failed_seconds)
            self._paused_until, self._pause_because = now + pause_seconds, why
            self._failures, self._failed_seconds = 0, 0.0
            logger.warning("Decoder %s is paused for %.1f s: %s", self._file, pause_seconds, why)
        return self._refuse(why)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _refuse(self, why: str) -> Reject:
        wanted = f"a decoder that reads this message: correct {self._file.name}, then redrive"
        return Reject(Reason.UNDECODED, None, show_text(f"decoder {self._file.stem}: {why}"), show_text(wanted))


def decoder_text(name: str) -> str:
    """Return the text of a working decoder, to be changed."""
    return _DECODER.format(name=name)


def test_text(name: str, file: str) -> str:
    """Return the text of its test."""
    return _TEST.format(name=name, file=file)


def route_text(name: str) -> str:
    """Return the settings of a route that names it."""
    return _ROUTE.format(name=name)
