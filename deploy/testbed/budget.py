"""Memory and disk that a test bed takes, compared with what is free before anything starts."""

import shutil
from pathlib import Path
from typing import Final

from deploy.local.budget import available_mb
from deploy.testbed.layout import Wish
from ingest.contract.errors import UnavailableError

__all__ = ["Budget", "check_budget", "free_disk_mb", "node_memory_mb"]

BEYOND_HEAP_MB: Final = 150
ZOOKEEPER_MB: Final = 150
NODE_DISK_MB: Final = 300


class Budget:
    """The most that a test bed takes."""

    def __init__(self, wish: Wish) -> None:
        self.brokers = wish.brokers
        self.node_mb = node_memory_mb(wish.heap)
        self.beyond_mb = ZOOKEEPER_MB if wish.mode == "zookeeper" else 0

    @property
    def memory_mb(self) -> int:
        """Resident memory of all servers."""
        return self.brokers * self.node_mb + self.beyond_mb

    @property
    def disk_mb(self) -> int:
        """Kafka's own files, before anybody writes a record."""
        return self.brokers * NODE_DISK_MB

    def fitting(self, memory_mb: int, disk_mb: int) -> int:
        """The brokers that would fit."""
        return max(0, min((memory_mb - self.beyond_mb) // self.node_mb, disk_mb // NODE_DISK_MB))


def node_memory_mb(heap: str) -> int:
    """Resident memory of one node at most."""
    return int(heap[:-1]) * (1024 if heap[-1].lower() == "g" else 1) + BEYOND_HEAP_MB


def free_disk_mb(folder: Path) -> int:
    """Free space where the folder is, or will be."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free // 1024**2


def check_budget(wish: Wish, folder: Path, *, memory_mb: int | None = None, disk_mb: int | None = None) -> str:
    """One line about the test bed's needs.

    Args:
        wish: what is asked for.
        folder: where its data will be.
        memory_mb: free memory, where known already.
        disk_mb: free disk, where known already.

    Raises:
        UnavailableError: too little is free; says what would fit.
    """
    budget = Budget(wish)
    memory = available_mb() if memory_mb is None else memory_mb
    disk = free_disk_mb(folder) if disk_mb is None else disk_mb
    needs = f"{_brokers(wish.brokers)} of at most {budget.node_mb} MB" + (
        " and a ZooKeeper" if budget.beyond_mb else ""
    )
    if memory >= budget.memory_mb and disk >= budget.disk_mb:
        return (
            f"{needs}: {budget.memory_mb} MB of memory ({memory} MB are free), "
            f"{budget.disk_mb} MB of disk ({disk} MB are free)"
        )
    missing = (
        f"{budget.memory_mb} MB of memory, and {memory} MB are free"
        if memory < budget.memory_mb
        else f"{budget.disk_mb} MB of disk in {folder}, and {disk} MB are free"
    )
    fitting = budget.fitting(memory, disk)
    fits = f"{_brokers(fitting)} would fit" if fitting else "not even one broker would fit"
    message = f"The test bed ({needs}) needs {missing}: {fits}. Ask for fewer brokers or a smaller heap, or free some."
    raise UnavailableError(message)


def _brokers(count: int) -> str:
    return f"{count} broker" + ("" if count == 1 else "s")
