"""A plugin with which the tests of the landing run on a Spark standalone cluster: `pytest -p tests.support.on_standalone`.

The session of such a run has one master and two workers of one core, and executors look for copies. With the variable KILLS,
an executor is killed in each batch with copies, between the look-up and the commits.
"""

import atexit
import os
import tempfile
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import lakehouse.session
from deploy.testbed.spark_cluster import SparkCluster
from lakehouse.jvm import JvmOptions
from lakehouse.session import LakeSession
from streaming.executors.executor_check import ExecutorBatch
from streaming.stream_settings import StreamSettings

__all__ = ["KILLS"]

KILLS = "TIDEGATE_TEST_KILLS"
"""Variable of the environment that lets executors be killed."""

_open, _refusals, _turn = lakehouse.session.open_session, ExecutorBatch.refusals, count()


def _open_on_cluster(options: JvmOptions) -> LakeSession:
    cluster = SparkCluster(Path(tempfile.mkdtemp(prefix="tidegate-standalone-")), memory="768m")
    atexit.register(cluster.stop)
    cluster.start()
    session = _open(options, master=cluster.url, extra=cluster.settings["extra"], secret=SecretStr(cluster.secret))
    cluster.await_executors(2)
    if os.environ.get(KILLS):
        ExecutorBatch.refusals = _killing(cluster)  # type: ignore[method-assign]
    return session


def _killing(cluster: SparkCluster) -> Any:
    def refusals(batch: ExecutorBatch) -> Any:
        cluster.await_executors(2)
        worker = cluster.workers[next(_turn) % 2]
        for executor in worker.executors:
            executor.kill()
        print(f"killed an executor of {worker.name}")  # noqa: T201 - the test that runs this counts the lines
        return _refusals(batch)

    return refusals


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None]:
    """Take the place of the local session, before conftest.py imports it."""
    lakehouse.session.open_session = _open_on_cluster  # type: ignore[assignment]
    StreamSettings.checks_on_executors = property(lambda self: True)  # type: ignore[method-assign,assignment]
    return (yield)
