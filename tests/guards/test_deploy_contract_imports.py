"""Executors load the contract without MQTT, Kafka or a JVM; `--help` answers at once."""

import subprocess
import sys

import pytest


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["reading", "dead_letter", "outcome", "topics", "reasons", "errors"])
def test_the_contract_loads_without_vendor_libraries(module: str) -> None:
    loaded = _loaded_by(f"import ingest.contract.{module}")
    assert not loaded & {"paho", "confluent_kafka", "pyspark", "delta", "deltalake", "prometheus_client", "py4j"}


HEAVY = {
    "paho",
    "confluent_kafka",
    "cryptography",
    "pyspark",
    "delta",
    "deltalake",
    "pyarrow",
    "duckdb",
    "prometheus_client",
    "psutil",
    "pydantic",
}


def test_help_imports_nothing_heavy() -> None:
    loaded = _loaded_by(
        "from deploy.cli import run\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()): run(['--help'])"
    )
    assert not loaded & HEAVY
