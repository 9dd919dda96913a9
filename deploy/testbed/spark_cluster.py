"""A Spark standalone cluster of a test bed: a master and its workers on loopback, which drivers join with a secret from a file.

Driver and workers share this machine's disk, so they see the same tables. Processes end by their ids, executors with their
worker.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil

from deploy.local.java import Java, find_java
from deploy.local.logs import last_lines
from deploy.local.ports import choose_port
from deploy.settings_file import write_private
from deploy.testbed.cluster_layout import HOST
from deploy.testbed.node import POLL_SECONDS, READY_SECONDS, wait_for_server
from deploy.testbed.server_process import ServerProcess
from lakehouse.jvm import JAVA_MODULES, spark_home

__all__ = ["SparkCluster", "SparkServer", "open_spark_cluster"]

SECRET_FILE: Final = "spark-secret"  # noqa: S105 - a name
HEAP: Final = "256m"
STOP_SECONDS: Final = 10.0
SHOWN_LINES: Final = 3
_JOINED: Final = "Successfully registered with master"
"""What a worker logs each time a master has taken it."""


class SparkServer:
    """The master, or one worker; `executors` are the processes that a worker started."""

    def __init__(self, name: str, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self.process = ServerProcess(self.log_file, environment=environment)
        self._command = command

    @property
    def alive(self) -> bool:
        """True if its process runs."""
        return self.process.alive

    @property
    def executors(self) -> list[psutil.Process]:
        """Executors of a worker that run now."""
        with suppress(psutil.Error):
            return psutil.Process(self.process.pid).children() if self.process.pid is not None else []
        return []

    def last_log_lines(self) -> str:
        """Return the last lines of its log."""
        return " ".join(last_lines(self.log_file, SHOWN_LINES))

    def count_in_log(self, words: str) -> int:
        """Return how often its log has these words."""
        return self.process.log().count(words)

    def spawn(self) -> None:
        """Start it, and return before it answers."""
        self.process.spawn(self._command)

    def kill(self) -> None:
        """End it and its executors at once, as when their machine dies."""
        executors = self.executors
        self.process.kill()
        for each in executors:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(executors, READY_SECONDS)

    def end(self, seconds: float) -> None:
        """Ask it to end, and kill what still runs after some seconds."""
        executors = self.executors
        self.process.end(seconds)
        _, alive = psutil.wait_procs(executors, seconds)
        for each in alive:
            with suppress(psutil.Error):
                each.kill()


class SparkCluster:
    """One master and `workers` workers, each with `cores` cores and `memory` for its executors.

    `settings` are those of `[stream]` with which the stream joins it.
    """

    def __init__(
        self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", java: Java | None = None
    ) -> None:
        self.folder = folder
        self.cores, self.memory = cores, memory
        self._java = java or find_java()
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / SECRET_FILE, secrets.token_hex(16) + "\n")
        write_private(folder / "spark.conf", self._properties())
        self._port = choose_port(0, HOST)[0]
        self.url = f"spark://{HOST}:{self._port}"
        self.master = self._server("master", "master.Master", "--port", str(self._port))
        self.workers = [self._worker(number) for number in range(1, workers + 1)]

    @property
    def secret(self) -> str:
        """Secret of all connections."""
        return (self.folder / SECRET_FILE).read_text("ascii").strip()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of `[stream]`: the master, the file of the secret, and a driver that listens on loopback only."""
        return {
            "master": self.url,
            "auth_secret": f"file:{self.folder.absolute() / SECRET_FILE}",
            "extra": {
                "spark.driver.host": HOST,
                "spark.driver.bindAddress": HOST,
                "spark.executor.memory": self.memory,
            },
        }

    def start(self, seconds: float = READY_SECONDS) -> Self:
        """Start what does not run, and wait until the master has all workers.

        Raises:
            UnavailableError: one ended or took too long; ends with its last words.
        """
        if not self.master.alive:
            self.master.spawn()
        deadline = time.monotonic() + seconds
        wait_for_server(self.master, lambda: self.master.count_in_log("Starting Spark master") > 0, deadline)
        for worker in self.workers:
            if not worker.alive:
                self._join(worker, deadline)
        return self

    def _join(self, worker: SparkServer, deadline: float) -> None:
        joined = worker.count_in_log(_JOINED)
        worker.spawn()
        wait_for_server(worker, lambda: worker.count_in_log(_JOINED) > joined, deadline)

    def stop(self) -> None:
        """End all servers and executors."""
        for server in (*self.workers, self.master):
            server.end(STOP_SECONDS)

    def executor_count(self) -> int:
        """Return the number of executors that run now."""
        return sum(len(worker.executors) for worker in self.workers)

    def await_executors(self, count: int, seconds: float = READY_SECONDS) -> None:
        """Wait until so many executors run; a driver must have asked for them.

        Raises:
            TimeoutError: there are fewer.
        """
        deadline = time.monotonic() + seconds
        while self.executor_count() < count:
            if time.monotonic() > deadline:
                message = (
                    f"{self.executor_count()} of {count} executors run at {self.url}; see the logs in {self.folder}."
                )
                raise TimeoutError(message)
            time.sleep(POLL_SECONDS)

    def _worker(self, number: int) -> SparkServer:
        name = f"worker-{number}"
        more = (
            "--port",
            "0",
            "-c",
            str(self.cores),
            "-m",
            self.memory,
            "--work-dir",
            str(self.folder / f"{name}-work"),
        )
        return self._server(name, "worker.Worker", *more, self.url)

    def _server(self, name: str, main: str, *arguments: str) -> SparkServer:
        home = spark_home()
        command = [
            str(self._java.executable), *JAVA_MODULES, *self._java.gc_options, f"-Xmx{HEAP}", "-XX:TieredStopAtLevel=1",
            "-cp", str(home / "jars" / "*"), f"org.apache.spark.deploy.{main}", "--host", HOST, "--webui-port", "0",
            "--properties-file", str(self.folder / "spark.conf"), *arguments,
        ]  # fmt: skip
        # Spark's scripts set the Scala version: without it a worker looks for a source tree and starts no executor.
        own = {"SPARK_HOME": str(home), "JAVA_HOME": str(self._java.home), "SPARK_SCALA_VERSION": "2.13"}
        return SparkServer(name, command, self.folder, {**own, "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1"})

    def _properties(self) -> str:
        return "".join(
            f"{name} {value}\n"
            for name, value in {
                "spark.authenticate": "true",
                "spark.authenticate.secret": self.secret,
                "spark.network.crypto.enabled": "true",
                "spark.network.crypto.cipher": "AES/GCM/NoPadding",
                "spark.ui.killEnabled": "false",
                # A worker that dies is missed after 60 s by default.
                "spark.worker.timeout": "10",
            }.items()
        )


@contextmanager
def open_spark_cluster(folder: Path, **options: Any) -> Iterator[SparkCluster]:
    """A cluster that is ready while the block runs; `options` as of `SparkCluster`."""
    cluster = SparkCluster(folder, **options)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
