"""A standalone cluster that asks for a secret and encrypts: the session joins it with the secret."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.testbed.spark_cluster import SparkCluster, open_spark_cluster
from lakehouse.jvm import JvmOptions

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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with open_spark_cluster(tmp_path / "cluster", workers=1) as found:
        yield found


def test_a_cluster_that_asks_for_a_secret_is_joined_with_it(
    cluster: SparkCluster, jvm_options: JvmOptions, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    given = [
        str(jvm_options.java_home),
        [str(jar) for jar in jvm_options.jars],
        str(logs),
        cluster.url,
        cluster.secret,
    ]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(given)],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["counted 1000"], done.stderr
    assert (logs / "spark.log").exists()
    texts = [file.read_text("utf-8", "replace") for file in (*cluster.folder.glob("*.log"), *logs.iterdir())]
    assert cluster.secret not in "".join([*texts, done.stdout, done.stderr])
