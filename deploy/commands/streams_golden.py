"""Golden data of stream files, run in a separate Spark without tables and Kafka."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from deploy.local.artifacts import spark_jars
from deploy.local.java import find_java
from ingest.contract.errors import UnavailableError
from lakehouse.jvm import JvmOptions
from lakehouse.session import open_session
from streaming.sql.golden import read_golden, run_golden
from streaming.sql.header import parse_definition
from streaming.sql.stream_folder import StreamFile

__all__ = ["run_files"]


def run_files(chosen: Sequence[StreamFile], streams: Mapping[str, StreamFile]) -> list[dict[str, Any]]:
    """Return the result of each stream; check every file before Spark starts.

    Raises:
        ConfigError: a definition or a line of golden data is wrong.
        UnavailableError: a stream has no golden data.
    """
    for file in chosen:
        if file.golden is None:
            msg = f"There is no {file.name}.test.jsonl next to {file.where}. `tidegate streams test --help` explains its lines."
            raise UnavailableError(msg)
        parse_definition(file.name, file.text, file=file.where)
    golden = {file.name: read_golden(file.golden or [], f"{file.name}.test.jsonl") for file in chosen}
    found = []
    with _spark() as spark:
        for name, lines in golden.items():
            compared = run_golden(spark, name, lines, streams, f"{name}.test.jsonl")
            found.append({"name": name, "same": compared.same, "rows": compared.rows, "missing": compared.missing,
                          "unexpected": compared.unexpected})  # fmt: skip
    return found


@contextmanager
def _spark() -> Iterator[Any]:
    logs = Path(tempfile.mkdtemp(prefix="tidegate-streams-"))
    java = find_java()
    flags = (*java.gc_options, "-XX:TieredStopAtLevel=1")
    typer.echo("Starting Spark; this takes some seconds.", err=True)
    session = open_session(JvmOptions(java.home, tuple(spark_jars()), logs, flags=flags), master="local[1]")
    try:
        yield session.spark
    finally:
        session.close()
        shutil.rmtree(logs, ignore_errors=True)
