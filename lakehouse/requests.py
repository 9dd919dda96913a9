"""Requests to the process that writes the tables: one file per request, run between its other work and answered in a file.

One process writes all tables. A command that changes them (correct, erase, maintain, …) writes a request under
`<root>/_requests` and waits for its answer. If no writer runs, the command takes the lock and runs the request itself. A
request is run at least once. The commit's metadata has the request's id, so that a second run finds it done.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import ConfigError, RetryableError, TidegateError, UnavailableError
from lakehouse.atomic_file import write_json, write_text
from lakehouse.paths import to_path

__all__ = ["FOLDER", "Request", "await_answer", "pending_requests", "run_pending", "submit_request"]

FOLDER: Final = "_requests"
DONE: Final = "done"
COUNT: Final = ".tries"
POLL_SECONDS: Final = 0.05
TRIES: Final = 5
ANSWER_DAYS: Final = 7
_REFUSALS: Final[dict[int, type[TidegateError]]] = {
    kind.exit_code: kind for kind in (ConfigError, UnavailableError, TidegateError)
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request: `kind` names the handler; `id` sorts by time; `author` and `reason` are kept with the effect.

    A private one (erase) leaves no trace of its arguments in its answer.
    """

    kind: str
    arguments: dict[str, Any]
    author: str = ""
    reason: str = ""
    id: str = field(default_factory=lambda: f"{time.time_ns()}-{uuid.uuid4().hex[:8]}")
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    private: bool = False

    def mark(self) -> dict[str, Any]:
        """Entry that the commit of its effect carries in its metadata, under the key `request`; a private one names a hash."""
        if not self.private:
            return asdict(self)
        device = str(self.arguments.get("device", ""))
        named = hashlib.sha256(device.encode()).hexdigest()
        reason = self.reason.replace(device, f"sha256:{named[:16]}") if device else self.reason
        return asdict(self) | {"arguments": {"device_sha256": named}, "reason": reason}

    def kept(self) -> dict[str, Any]:
        """Entry that is kept next to its answer."""
        return self.mark() | {"arguments": {}} if self.private else asdict(self)


def submit_request(root: str, request: Request) -> Request:
    """Leave the request for the writer."""
    folder = _folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{request.id}.json", asdict(request))
    return request


def await_answer(
    root: str, request: Request, *, patience_seconds: float, working: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """Wait for what the writer answers.

    Raises:
        TidegateError: the writer refused the request; the text is the writer's.
        UnavailableError: no answer in time, or `working` says that no writer is there any more. The request stays.
    """
    answer = _folder(root) / DONE / f"{request.id}.json"
    deadline = time.monotonic() + patience_seconds
    while not answer.exists():
        if time.monotonic() > deadline or not working():
            message = (
                f"The writer of the tables has not answered yet; the request {request.id} is kept and runs later. "
                f"Its answer will be in {answer}."
            )
            raise UnavailableError(message)
        time.sleep(POLL_SECONDS)
    found = json.loads(answer.read_text(encoding="utf-8"))
    if not found["ok"]:
        raise _REFUSALS.get(found.get("exit_code", 1), TidegateError)(found["error"])
    return dict(found["result"])


def pending_requests(root: str) -> list[Request]:
    """Return the waiting requests, oldest first; `run_pending` answers a file that is not a request as refused."""
    return [request for path in _waiting(root) if (request := _read(path)) is not None]


def run_pending(root: str, run: Callable[[Request], dict[str, Any]], *, weigh: Callable[[], int] = lambda: 1) -> int:
    """Run what waits, oldest first, and answer each; returns how many. A refusal (TidegateError) is an answer too.

    A request that fails unexpectedly does not block others: the next calls try it again, also those of the next processes, and
    it is answered as failed after `TRIES`.

    Args:
        root: place of the tables.
        run: does what a request asks for, and returns the answer.
        weigh: the number of tries that the failure just met counts for. 0 leaves the request, and all others, for the next
            process, whatever was raised: this one cancelled its work because it ends.

    Raises:
        Exception: the first such failure, once the others had their turn.
    """
    done, failed = 0, None
    for path in _waiting(root):
        request = _read(path)
        if request is None:
            _answer(path, {"ok": False, "error": f"{path} is not a request."})
            continue
        try:
            _answer(path, {"ok": True, "result": run(request), "request": request.kept()})
        except Exception as error:
            weight = weigh()
            if not weight:
                break
            if not isinstance(error, TidegateError):
                failed = failed or error
                tries = _tries(path) + weight
                if tries < TRIES:
                    write_text(path.with_suffix(COUNT), str(tries))
                    continue
            _answer(path, _refusal(request, error))
        done += 1
    if failed is not None:
        raise failed
    return done


def _refusal(request: Request, error: Exception) -> dict[str, Any]:
    if isinstance(error, TidegateError):
        # To a command, a fault that may pass means: not available now.
        code = UnavailableError.exit_code if isinstance(error, RetryableError) else error.exit_code
        return {"ok": False, "error": str(error), "exit_code": code, "request": request.kept()}
    what = type(error).__name__
    if not request.private:  # its text may hold the arguments
        what += f": {' '.join(str(error).split())[:300]}"
    said = f"The request failed too often and is not tried again: {what}. See the stream's log."
    return {"ok": False, "error": said, "request": request.kept()}


def _folder(root: str) -> Path:
    return to_path(root) / FOLDER


def _waiting(root: str) -> list[Path]:
    try:
        return sorted(path for path in _folder(root).iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []


def _read(path: Path) -> Request | None:
    try:
        return Request(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _tries(path: Path) -> int:
    with suppress(OSError, ValueError):
        return int(path.with_suffix(COUNT).read_text("ascii"))
    return 0


def _answer(path: Path, answer: dict[str, Any]) -> None:
    """Answer, then take the request away: killed in between, it is run once more and found done."""
    answers = path.parent / DONE
    answers.mkdir(exist_ok=True)
    write_json(answers / path.name, answer)
    path.unlink(missing_ok=True)
    path.with_suffix(COUNT).unlink(missing_ok=True)
    old = time.time() - ANSWER_DAYS * 86_400
    for other in answers.glob("*.json"):
        if other.stat().st_mtime < old:
            other.unlink(missing_ok=True)
