"""Brings mosquitto to a machine where this is possible without asking: for tests, which also need a durable broker."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local.environment import Progress

__all__ = ["provide_mosquitto"]

HEARTBEAT_SECONDS = 1.5


def provide_mosquitto(find: Callable[[], Path | None]) -> int:
    """Install mosquitto by apt when it is missing; where that is impossible say why, and that tests use iotcore.

    Always 0: the product and most tests work without it.
    """
    if find():
        return 0
    why = _obstacle() or _install()
    if why or not find():
        sys.stderr.write(f"mosquitto is not here and {why or 'apt brought none'}; tests that need it are skipped.\n")
    return 0


def _obstacle() -> str:
    if os.geteuid() != 0:
        return "only root may install it (Debian and Ubuntu: apt-get install mosquitto)"
    return "" if shutil.which("apt-get") else "there is no apt-get to install it with"


def _install() -> str:
    """Empty when apt did it, else its last words."""
    shown = Progress()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=120"]
    words = ""
    # No recommended packages; the service that the package would start is not wanted here.
    for step in (["update"], ["install", "--no-install-recommends", "mosquitto"]):
        with subprocess.Popen(
            [*apt, *step],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        ) as process:
            words = _last_line(process, f"apt-get {step[0]} for mosquitto", shown)
        if step[0] == "install" and process.returncode:
            return f"apt-get failed ({words})"
    return ""


def _last_line(process: "subprocess.Popen[str]", doing: str, shown: Progress) -> str:
    told, last = 0.0, ""
    for line in process.stdout or ():
        last = line.strip() or last
        if time.monotonic() - told > HEARTBEAT_SECONDS:
            shown.show(doing)
            told = time.monotonic()
    return last
