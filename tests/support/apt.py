"""Brings what only tests need to a machine where this is possible without asking: servers and a browser, by apt.

The product works without them: it takes mosquitto, Prometheus and Alertmanager where they are, and does without where
they are not.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.environment import ProgressLine

__all__ = ["PACKAGES", "install_missing"]

HEARTBEAT_SECONDS: Final = 1.5
PACKAGES: Final[Mapping[str, str]] = {
    "mosquitto": "mosquitto",
    "mosquitto-clients": "mosquitto_pub",
    "prometheus": "promtool",
    "prometheus-alertmanager": "amtool",
    "chromium": "chromium",
    "docker-compose": "docker-compose",
}
"""Debian's package -> a program by which it is known to be here."""
POLICY: Final = Path("/usr/sbin/policy-rc.d")
"""Script that Debian's packages ask before they start their services."""


def install_missing(packages: Iterable[str] = PACKAGES) -> int:
    """Install what is missing; where that is impossible say why, and that tests do without.

    Always 0: the product and most tests work without it. Quick where everything is here.
    """
    missing = [package for package in packages if not _is_here(package)]
    if not missing:
        return 0
    why = dict.fromkeys(missing, obstacle) if (obstacle := _obstacle(missing)) else _install(missing)
    for package in missing:
        if not _is_here(package):
            words = why.get(package) or "apt did not install it"
            sys.stderr.write(f"{package} is not installed: {words}. Tests that need it are skipped.\n")
    return 0


def _is_here(package: str) -> bool:
    # Debian puts servers into /usr/sbin, which is not on every user's PATH.
    return shutil.which(PACKAGES[package], path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


def _obstacle(missing: Iterable[str]) -> str:
    if os.geteuid() != 0:
        return f"only root can install it (Debian and Ubuntu: apt-get install {' '.join(missing)})"
    return "" if shutil.which("apt-get") else "this system has no apt-get"


def _install(missing: Iterable[str]) -> dict[str, str]:
    """Last words of apt per package that it refused. One by one: another one's fault must not take all."""
    _apt("update", doing="apt-get update")
    failed: dict[str, str] = {}
    with _no_services():
        for package in missing:
            code, words = _apt("install", "--no-install-recommends", package, doing=f"apt-get install {package}")
            if code:
                failed[package] = f"apt-get failed ({words})"
    return failed


@contextmanager
def _no_services() -> Iterator[None]:
    """While the block runs no package starts its service: ours have their own ports, folders and ends.

    A policy that exists already is the machine's own. This one refuses nothing once this process is gone, so that even a
    kill leaves no machine whose services do not start.
    """
    if POLICY.exists() or not POLICY.parent.is_dir():
        yield
        return
    POLICY.write_text(f"#!/bin/sh\nkill -0 {os.getpid()} 2>/dev/null && exit 101\nexit 0\n", encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _apt(*arguments: str, doing: str) -> tuple[int, str]:
    """Exit code and last words."""
    shown, told, last = ProgressLine(), 0.0, ""
    with subprocess.Popen(
        ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=120", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, text=True,
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            last = line.strip() or last
            if time.monotonic() - told > HEARTBEAT_SECONDS:
                shown.show(doing)
                told = time.monotonic()
    return process.returncode, last


if __name__ == "__main__":
    sys.exit(install_missing(sys.argv[1:] or PACKAGES))
