"""Memory and disk that a test bed needs, compared with the free ones before anything starts."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from deploy.local.budget import available_mb
from deploy.testbed.cluster_layout import MOST_BROKERS, ClusterRequest
from ingest.contract.errors import UnavailableError

__all__ = ["ClusterBudget", "check_budget"]

BEYOND_HEAP_MB: Final = 150
ZOOKEEPER_MB: Final = 150
NODE_DISK_MB: Final = 300


class ClusterBudget:
    """The most that a test bed takes."""

    def __init__(self, wish: ClusterRequest) -> None:
        self._wish = wish
        self.node_mb = _node_memory_mb(wish.heap)

    @property
    def memory_mb(self) -> int:
        """Resident memory of all servers."""
        return self._wish.brokers * self.node_mb + self._wish.zookeepers * ZOOKEEPER_MB

    @property
    def disk_mb(self) -> int:
        """Kafka's own files, before anybody writes a record."""
        return self._wish.brokers * NODE_DISK_MB

    def fits(self, memory_mb: int, disk_mb: int) -> bool:
        """True if this much is enough."""
        return memory_mb >= self.memory_mb and disk_mb >= self.disk_mb

    def fitting(self, memory_mb: int, disk_mb: int) -> int:
        """The brokers that would fit, with their ZooKeepers."""
        counts = range(MOST_BROKERS, 0, -1)
        return next((n for n in counts if ClusterBudget(replace(self._wish, brokers=n)).fits(memory_mb, disk_mb)), 0)


def _node_memory_mb(heap: str) -> int:
    """Resident memory of one node at most."""
    return int(heap[:-1]) * (1024 if heap[-1].lower() == "g" else 1) + BEYOND_HEAP_MB


def _free_disk_mb(folder: Path) -> int:
    """Free space where the folder is, or will be."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free // 1024**2


def check_budget(
    wish: ClusterRequest, folder: Path, *, memory_mb: int | None = None, disk_mb: int | None = None
) -> str:
    """One line about the test bed's needs.

    Args:
        wish: what is asked for.
        folder: where its data will be.
        memory_mb: free memory, where known already.
        disk_mb: free disk, where known already.

    Raises:
        UnavailableError: too little is free; says what would fit.
    """
    budget = ClusterBudget(wish)
    memory = available_mb() if memory_mb is None else memory_mb
    disk = _free_disk_mb(folder) if disk_mb is None else disk_mb
    needs = f"{_count(wish.brokers, 'broker')} of at most {budget.node_mb} MB"
    if wish.zookeepers:
        needs += f" and {_count(wish.zookeepers, 'ZooKeeper')} of at most {ZOOKEEPER_MB} MB"
    if budget.fits(memory, disk):
        return (
            f"{needs}: {budget.memory_mb} MB of memory ({memory} MB are free), "
            f"{budget.disk_mb} MB of disk ({disk} MB are free)"
        )
    missing = (
        f"{budget.memory_mb} MB of memory, but {memory} MB are free"
        if memory < budget.memory_mb
        else f"{budget.disk_mb} MB of disk in {folder}, but {disk} MB are free"
    )
    fitting = budget.fitting(memory, disk)
    fits = f"{_count(fitting, 'broker')} would fit" if fitting else "not even one broker would fit"
    message = f"The test bed ({needs}) needs {missing}; {fits}. Use fewer brokers or a smaller heap, or free some."
    raise UnavailableError(message)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
