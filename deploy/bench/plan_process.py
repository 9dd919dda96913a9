"""Process of a benchmark that gets its plan, runs to its end, and prints its result."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from ingest.contract.errors import FatalError

__all__ = ["run_child"]


def run_child(module: str, plan: Mapping[str, Any], otherwise: str) -> list[str]:
    """Run a module with a plan; the lines that it writes.

    The plan goes through its input: it may hold a password, which has no place on a command line.

    Raises:
        FatalError: it failed, and its words are on stderr; the text begins with `otherwise`.
    """
    command = [sys.executable, "-P", "-m", module]
    # A publisher waits for a second line before it begins.
    said = subprocess.run(command, input=json.dumps(plan) + "\n\n", stdout=subprocess.PIPE, text=True, check=False)
    if said.returncode != 0:
        message = f"{otherwise}; see its output above"
        raise FatalError(message)
    return said.stdout.splitlines()
