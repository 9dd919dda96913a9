"""A standalone cluster that asks for a secret and encrypts: the session joins it with the secret."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest

from deploy.local.ports import choose_port
from lakehouse.jvm import _MODULES, JvmOptions

SPARK_HOME = Path(pyspark.__file__).parent
ASKING = """\
spark.authenticate true
spark.authenticate.secret S3CR3T-of-a-cluster
spark.network.crypto.enabled true
spark.network.crypto.cipher AES/GCM/NoPadding
"""
COUNT = """\
import json, sys
from pathlib import Path
from pydantic import SecretStr
from lakehouse.jvm import JvmOptions
from lakehouse.session import open_session

java, jars, logs, master, secret = json.loads(sys.argv[1])
options = JvmOptions(Path(java), tuple(map(Path, jars)), Path(logs), flags=("-XX:TieredStopAtLevel=1",))
own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
session = open_session(options, master=master, extra=own, secret=SecretStr(secret))
print("counted", session.spark.range(0, 1000, 1, 2).repartition(2).count())
session.close()
"""


class Cluster:
    """Master and worker of Spark, as processes of this test."""

    def __init__(self, java: Path, folder: Path, cleanup: ExitStack) -> None:
        self._java, self._folder, self._cleanup = java, folder, cleanup
        self._asking = folder / "asking.conf"
        self._asking.write_text(ASKING)
        port = choose_port(0)[0]
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--port", str(port))
        more = ("--port", "0", "-c", "1", "-m", "1g", "--work-dir", str(folder / "work"))
        self._start("worker.Worker", *more, self.url)

    def _start(self, name: str, *arguments: str) -> None:
        log = (self._folder / f"{name}.log").open("wb")
        command = [
            str(self._java / "bin" / "java"), *_MODULES, "-Xmx256m", "-XX:TieredStopAtLevel=1",
            "-cp", str(SPARK_HOME / "jars" / "*"), f"org.apache.spark.deploy.{name}",
            "--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(self._asking), *arguments,
        ]  # fmt: skip
        # Spark's shell scripts set the version; without it a worker looks for a source tree and starts no executor.
        own = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(self._java), "SPARK_SCALA_VERSION": "2.13"}
        environment = {**os.environ, **own}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self._folder)
        self._cleanup.callback(log.close)
        self._cleanup.callback(process.wait, 30)
        self._cleanup.callback(process.terminate)

    def has_worker(self) -> bool:
        return "Registering worker" in (self._folder / "master.Master.log").read_text("utf-8", "replace")


@pytest.fixture
def cluster(jvm_options: JvmOptions, tmp_path: Path, wait_until: Callable[..., Any]) -> Iterator[Cluster]:
    with ExitStack() as cleanup:
        found = Cluster(jvm_options.java_home, tmp_path, cleanup)
        wait_until(found.has_worker, seconds=120, what="a worker that the master knows")
        yield found


def test_a_cluster_that_asks_for_a_secret_is_joined_with_it(
    cluster: Cluster, jvm_options: JvmOptions, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    given = [
        str(jvm_options.java_home),
        [str(jar) for jar in jvm_options.jars],
        str(logs),
        cluster.url,
        "S3CR3T-of-a-cluster",
    ]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(given)],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["counted 1000"], done.stderr
    assert (logs / "spark.log").exists()
    texts = [file.read_text("utf-8", "replace") for file in (*tmp_path.glob("*.log"), *logs.iterdir())]
    assert "S3CR3T" not in "".join([*texts, done.stdout, done.stderr])
