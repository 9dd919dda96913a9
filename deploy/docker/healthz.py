"""Health check of a container: asks `/healthz` of the part that runs in it. It needs only the standard library, so it is cheap.

`python -m deploy.docker.healthz [PART [PORT]]`: without a part, it asks the one that the container's first process runs.
"""

import http.client
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["PORTS", "main"]

PORTS: Final = {"monitor": 9470, "gateway": 9471, "stream": 9472, "canary": 9473}
"""Part -> default of its port in `[monitoring]`."""
SECONDS: Final = 3.0
_OK: Final = 200
_FIRST_PROCESS: Final = Path("/proc/1/cmdline")


def main(arguments: Sequence[str] | None = None, *, first_process: Path = _FIRST_PROCESS) -> int:
    """Return 0 if the part is healthy, or if this container runs no part; else 1. The answer goes to stdout, for `inspect`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    part = given[0] if given else _running(first_process)
    if part is None:
        sys.stdout.write("This container runs no part.\n")
        return 0
    try:
        port = int(given[1]) if len(given) > 1 else PORTS[part]
    except (KeyError, ValueError):
        sys.stdout.write(f"Unknown part or port: {' '.join(given)}. Name one of {', '.join(PORTS)}, and a number.\n")
        return 2
    healthy, answer = _ask(port)
    sys.stdout.write(f"{answer}\n")
    return 0 if healthy else 1


def _running(first_process: Path) -> str | None:
    """Return the part of `tidegate PART …`, also behind an init process."""
    words = first_process.read_bytes().decode("utf-8", "replace").split("\0")
    return next((word for word in words if word in PORTS), None)


def _ask(port: int) -> tuple[bool, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status == _OK, response.read(1000).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"No answer on port {port}: {error}."
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
