"""Process in which one decoder of a folder runs: `python -m gateway.decoders.python_worker FD FILE SECONDS`.

It may hang or die: the gateway then ends it, and only the message that it read is rejected. Frames on the socket FD:
in `topic length, payload length, topic, payload`; out `kind, length, content` with the kinds of `python_file`. The output
of a decoder goes to the log of the gateway. Standard library only: a start costs little.
"""

import ctypes
import json
import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["ERROR", "MOST_BYTES", "NOTHING", "READY", "REQUEST", "RESPONSE", "VALUE", "run"]

REQUEST, RESPONSE = struct.Struct("!II"), struct.Struct("!cI")
READY, VALUE, NOTHING, ERROR = b"R", b"V", b"N", b"E"
MOST_BYTES = 8 * 1024 * 1024
"""Most bytes of one answer; a longer one is rejected."""
_MOST_MEMORY_BYTES = 1024**3
_PR_SET_PDEATHSIG = 1
_MOST_TEXT = 400


def run(channel: socket.socket, file: Path, seconds: float) -> None:
    """Answer requests until the other end closes."""
    try:
        decode = _load(file)
    except BaseException as error:
        _answer(channel, ERROR, _say(error, file).encode())
        return
    _answer(channel, READY, b"")
    stream = channel.makefile("rb")
    while len(head := stream.read(REQUEST.size)) == REQUEST.size:
        topic_length, payload_length = REQUEST.unpack(head)
        topic, payload = stream.read(topic_length), stream.read(payload_length)
        if len(payload) < payload_length:
            return
        # Ends this process if the gateway is gone and nothing else ends it.
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 5)
        _answer(channel, *_decode(decode, file, topic.decode(), payload))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _load(file: Path) -> Callable[[str, bytes], Any]:
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102 - it is the user's own decoder
    decode: Callable[[str, bytes], Any] = module.__dict__["decode"]
    if not callable(decode):
        message = "`decode` is not a function"
        raise TypeError(message)
    return decode


def _decode(decode: Callable[[str, bytes], Any], file: Path, topic: str, payload: bytes) -> tuple[bytes, bytes]:
    try:
        found = decode(topic, payload)
        if found is None:
            return NOTHING, b""
        content = json.dumps(found, default=_plain).encode()
    except Exception as error:
        return ERROR, _say(error, file).encode()
    if len(content) > MOST_BYTES:
        return ERROR, f"an answer of {len(content)} bytes, more than {MOST_BYTES}".encode()
    return VALUE, content


def _plain(value: Any) -> Any:
    """Return times as ISO 8601, numbers of other libraries as numbers."""
    for name in ("isoformat", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    message = f"the answer holds a {type(value).__name__}, which is not JSON"
    raise TypeError(message)


def _say(error: BaseException, file: Path) -> str:
    """Return an error in one line, with the line of the decoder that raised it."""
    if isinstance(error, KeyError) and error.args == ("decode",) and error.__traceback__ is not None:
        return f"{file.name} has no function decode(topic, payload)"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = f" ({file.name} line {line})" if line else f" ({file.name})"
    return f"{type(error).__name__}: {error}"[:_MOST_TEXT].encode("utf-8", "replace").decode() + where


def _answer(channel: socket.socket, kind: bytes, content: bytes) -> None:
    channel.sendall(RESPONSE.pack(kind, len(content)) + content)


def _main(arguments: list[str]) -> None:
    # If the gateway is killed, so is this process.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True
    sys.stdout = sys.stderr
    run(socket.socket(fileno=int(arguments[0])), Path(arguments[1]), float(arguments[2]))


if __name__ == "__main__":
    _main(sys.argv[1:])
