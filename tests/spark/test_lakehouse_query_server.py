"""`tidegate tables serve`: notebooks and JDBC read the tables, and nothing that a client does changes anything."""

import hashlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyspark
import pytest
from deltalake import DeltaTable

from deploy.local.ports import choose_port
from lakehouse.append import Appender
from lakehouse.confine import NEEDED_VERSION, confinement_version
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.jvm import JvmOptions
from lakehouse.session import LakeSession
from lakehouse.tables import READINGS

pytestmark = pytest.mark.skipif(
    confinement_version() < NEEDED_VERSION,
    reason=f"this kernel has Landlock version {confinement_version()}, not {NEEDED_VERSION}",
)
CLIENT = """\
import json, os, signal, socket, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

url, tables, secret, listener, other, statements = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(url).getOrCreate()

def attempt(do):
    try:
        return json.loads(json.dumps(do(), default=str))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def rows(statement):
    return attempt(lambda: [row.asDict() for row in spark.sql(statement).collect()])

def inside(code):
    # Code that the server runs for its client.
    def call(_):
        import os, signal, socket
        try:
            return repr(eval(code))
        except Exception as error:
            return type(error).__name__
    return attempt(lambda: spark.range(1).select(udf(call, "string")("id")).first()[0])

print(json.dumps({
    "statements": {statement: rows(statement) for statement in statements},
    "write": inside("open(%r, 'w')" % (tables + "/readings/x")),
    "temporary": inside("__import__('tempfile').TemporaryFile().write(b'1')"),
    "secret": inside("open(%r).read()" % secret),
    "secret by Spark": attempt(lambda: spark.read.text(secret).collect()),
    "connect": inside(f"socket.create_connection(('127.0.0.1', {listener}), 5)"),
    "kill": inside(f"os.kill({other}, signal.SIGKILL)"),
    "environment": inside("[name for name in os.environ if 'TIDEGATE' in name]"),
    "parquet": attempt(lambda: spark.range(3).write.parquet(f"{tables}/mine")),
}))
"""
WRITES = (
    "delete from readings",
    "update readings set value = 0",
    "insert into readings select * from readings",
    "optimize readings",
    "vacuum readings retain 0 hours",
    "alter table readings add columns (more int)",
    "create table mine using delta location '{root}/mine' as select 1 as x",
)


@pytest.fixture(scope="module")
def root(lake: LakeSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`readings` of three devices; the other tables are empty."""
    root = tmp_path_factory.mktemp("serve me 'ü'") / "tables"
    ensure_tables(str(root), ALL_TABLES.values(), log_retention_hours=24)
    values = {
        "device": "concat('d', id)", "metric": "'t'", "value": "id", "partition": "0", "offset": "id", "index": "0",
        "time_source": "'device'", "flags": "array()", "date": "current_date()",
        **dict.fromkeys(("event_time", "received_at", "kafka_time", "landed_at"), "now()"),
    }  # fmt: skip
    columns = ", ".join(
        f"CAST({values.get(column.name, 'NULL')} AS {column.type}) AS `{column.name}`" for column in READINGS.columns
    )
    with Appender(lake.spark, str(root), READINGS).begin() as append:
        append.write(lake.spark.sql(f"SELECT {columns} FROM range(3)").coalesce(1))
        append.commit("{}")
    return root


def digest(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _pass_on(output: IO[str], lines: "queue.Queue[str]") -> None:
    for line in output:
        lines.put(line)


@contextmanager
def serving(root: Path, folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the server, and yield it with the lines that it printed when it was ready."""
    settings = folder / "tidegate.toml"
    settings.write_text(f"[lake]\nroot = {json.dumps(str(root))}\n")
    command = [sys.executable, "-P", "-m", "deploy.cli", "tables", "serve", "--config", str(settings), *arguments]
    environment = {**os.environ, "TIDEGATE_KAFKA__SASL_PASSWORD": "secret-of-mine"}
    with (folder / "serve.err").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
    try:
        ready = [lines.get(timeout=240) for _ in range(2 if "--token-file" in arguments else 3)]
        yield process, ready
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "serve.err").read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ports() -> tuple[str, str]:
    return str(choose_port(0)[0]), str(choose_port(0)[0])


def ask(url: str, root: Path, secret: Path, listener: int, other: int, *statements: str) -> dict[str, Any]:
    """Run the client of Spark Connect in a process of its own: this one has a classic Spark."""
    given = json.dumps([url, str(root), str(secret), listener, other, statements])
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, given]
    environment = {**os.environ, "SPARK_CONNECT_MODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def jdbc(java: Path, url: str, folder: Path, *statements: str) -> str:
    """What Hive's command line for JDBC prints."""
    script = folder / "statements.sql"
    script.write_text("".join(f"{statement}\n" for statement in statements))
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    options = ["-u", url, "--outputformat=csv2", "--showHeader=false", "--force=true", "-f", str(script)]
    command = [
        str(java / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars,
        "org.apache.hive.beeline.BeeLine",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    return done.stdout + done.stderr


@pytest.mark.chaos  # five JVMs: two minutes
def test_clients_read_everything_and_change_nothing(
    root: Path, jvm_options: JvmOptions, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    before = digest(root)
    secret = tmp_path / "password"
    secret.write_text("secret-of-mine")
    port, thrift = ports()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        serving(root, tmp_path, "--port", port, "--thrift-port", thrift) as (process, ready),
    ):
        assert ready[0] == f"Serving {len(ALL_TABLES)} tables and 1 view; the kernel denies all writes.\n"
        assert f"sc://127.0.0.1:{port}" in ready[1]
        assert f"jdbc:hive2://127.0.0.1:{thrift}/default" in ready[2]
        reads = ("select device, value from readings order by device", "select count(*) as n from counter_deltas")
        writes = tuple(statement.format(root=root) for statement in WRITES)
        found = ask(
            f"sc://127.0.0.1:{port}",
            root,
            secret,
            listener.getsockname()[1],
            os.getpid(),
            *reads,
            *writes,
            "drop table latest",
        )
        answers = found["statements"]
        assert answers[reads[0]] == [{"device": f"d{i}", "value": float(i)} for i in range(3)]
        assert answers[reads[1]] == [{"n": 3}]
        for statement in writes[:-4]:
            assert "ermission denied" in str(answers[statement]), (statement, answers[statement])
        assert (found["write"], found["secret"], found["connect"]) == ("PermissionError",) * 3
        assert found["kill"] == ("PermissionError" if confinement_version() >= 6 else "None")
        assert found["temporary"] == "1"
        assert "ermission denied" in found["secret by Spark"]
        assert "secret-of-mine" not in json.dumps(found)
        assert found["environment"] == "[]"
        assert found["parquet"].startswith("SparkException"), "it cannot even make the folder"
        assert digest(root) == before
        # A dropped name comes back, and a new table appears.
        DeltaTable.create(str(root / "streamed"), DeltaTable(str(root / "readings")).schema())
        url = f"jdbc:hive2://127.0.0.1:{thrift}/default"
        shown = jdbc(
            jvm_options.java_home, url, tmp_path,
            "select count(*), sum(value) from readings;", "!columns devices", "describe latest;", "delete from readings;",
        )  # fmt: skip
        assert "3,3.0" in shown
        assert "ermission denied" in shown
        assert "first_seen" in shown, "tools ask for the columns by the protocol"
        assert "stale_since,timestamp" in shown
        names = wait_until(
            lambda: "streamed" in (tables := jdbc(jvm_options.java_home, url, tmp_path, "show tables;")) and tables,
            what="a table that was made later",
        )
        assert "latest" in names
        assert process.poll() is None
    assert DeltaTable(str(root / "readings")).version() == 1


@pytest.mark.chaos  # a second JVM, for what is Spark's own
def test_a_token_is_asked_for(root: Path, tmp_path: Path) -> None:
    token, port = tmp_path / "token", ports()[0]
    token.write_text("T0KEN-of-mine\n")
    token.chmod(0o600)
    with serving(root, tmp_path, "--port", port, "--token-file", str(token)) as (process, ready):
        assert f"sc://localhost:{port}/;token=TOKEN" in ready[1]
        for given, wanted in (
            ("", "UNAUTHENTICATED"),
            ("/;token=wrong", "UNAUTHENTICATED"),
            ("/;token=T0KEN-of-mine", "3"),
        ):
            command = [
                sys.executable, "-W", "ignore", "-c",
                "import sys\nfrom pyspark.sql import SparkSession\n"
                "spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()\n"
                "print(spark.table('readings').count())",
                f"sc://localhost:{port}{given}",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert wanted in done.stdout + done.stderr
            assert (done.returncode == 0) == (wanted == "3")
        for file in Path(f"/proc/{process.pid}/task/{process.pid}").glob("children"):
            children = file.read_text().split()
            assert all(b"T0KEN" not in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
