"""Memory that the embedded run needs, part by part, so that it is reported before anything starts."""

from typing import Final

import psutil

from deploy.settings import Settings

__all__ = ["available_mb", "describe_memory_budget", "memory_budget_mb", "spark_jvm_mb"]

# Resident memory beyond the heap (metaspace, code, threads, direct buffers) and of the Python processes, as a soak of two hours
# at 200 messages/s measured it.
KAFKA_BEYOND_HEAP_MB: Final = 250
SPARK_BEYOND_HEAP_MB: Final = 800
SMALL_MB: Final = {"broker": 50, "gateway": 120, "stream": 420, "fleet": 60, "canary": 180, "supervisor": 90}
HOPS: Final = ("gateway", "stream", "monitor", "canary")
"""Parts that also run in production."""
WATCHERS_MB: Final = {"monitor": 280, "prometheus": 100, "alertmanager": 50}


def memory_budget_mb(settings: Settings) -> dict[str, int]:
    """The most that each part takes, in MB."""
    budget = {**SMALL_MB, **WATCHERS_MB}
    budget["kafka"] = _megabytes(settings.embedded.kafka_heap) + KAFKA_BEYOND_HEAP_MB
    budget["stream"] += spark_jvm_mb(settings)
    return budget


def spark_jvm_mb(settings: Settings) -> int:
    """The most that the stream's JVM takes of it, in MB."""
    return _megabytes(settings.stream.driver_memory) + SPARK_BEYOND_HEAP_MB


def _megabytes(size: str) -> int:
    number, unit = int(size[:-1]), size[-1].lower()
    return max(1, int(number * {"k": 1 / 1024, "m": 1, "g": 1024}[unit]))


def available_mb() -> int:
    """Memory that can be had without swapping."""
    return int(psutil.virtual_memory().available) // 1024**2


def describe_memory_budget(settings: Settings, *, embedded: bool = True) -> tuple[bool, str]:
    """Return whether the budget fits, in words: of an embedded run, or of the hops in production on one machine."""
    budget = memory_budget_mb(settings)
    if not embedded:
        budget = {name: size for name, size in budget.items() if name in HOPS}
    total, free = sum(budget.values()), available_mb()
    shown = ", ".join(f"{name} {size}" for name, size in sorted(budget.items(), key=lambda item: -item[1])[:3])
    text = f"needs up to {total / 1024:.1f} GB ({shown} MB, …), {free / 1024:.1f} GB are free"
    return free >= total, text
