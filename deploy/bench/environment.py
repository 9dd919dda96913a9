"""Machine and versions of a measurement, without which its figures have no meaning."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.local.java import find_java
from ingest.contract.errors import TidegateError

__all__ = ["hardware", "hardware_line", "versions"]

DISTRIBUTIONS: Final = ("tidegate", "pyspark", "delta-spark", "deltalake", "paho-mqtt", "confluent-kafka")


def hardware() -> dict[str, Any]:
    """Processor, cores, memory, and the load before the run (other work on the machine shows there)."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1024**3, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
    }


def hardware_line(machine: Mapping[str, Any]) -> str:
    """The machine in one line of a result for people."""
    return f"  {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, load {machine['load_1m']}"


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of everything on the measured way."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    with suppress(TidegateError):
        found["java"] = ".".join(map(str, find_java().version))
    return found
