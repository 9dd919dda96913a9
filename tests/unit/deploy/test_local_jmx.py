"""When a JVM is told to load its agent, and with what."""

import socket
from pathlib import Path

import pytest

from deploy.local import artifacts, jmx


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    artifacts.jmx_agent(tmp_path).touch()
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_sparks_driver_names_its_metrics_alike_at_each_start(cache: Path, port: int) -> None:
    agent, *settings = jmx.spark_flags("127.0.0.1", port, cache=cache)
    assert agent == f"-javaagent:{artifacts.jmx_agent(cache)}=127.0.0.1:{port}:{jmx.SPARK_RULES}"
    assert "-Dspark.metrics.namespace=tidegate" in settings
    assert all(setting.startswith("-Dspark.") for setting in settings)


def test_without_a_port_spark_pays_for_no_metrics(cache: Path) -> None:
    assert jmx.spark_flags("127.0.0.1", 0, cache=cache) == []


def test_without_its_agent_spark_pays_for_no_metrics(
    tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert jmx.spark_flags("127.0.0.1", port, cache=tmp_path) == []
    assert "Spark starts without metrics of its JVM: jmx_prometheus_javaagent" in caplog.text


def test_a_port_that_is_taken_is_said_and_left(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert jmx.spark_flags("127.0.0.1", port, cache=cache) == []
    assert f"Spark starts without metrics of its JVM: port {port} on 127.0.0.1 is taken" in caplog.text


def test_the_rules_are_there() -> None:
    assert jmx.KAFKA_RULES.is_file()
    assert jmx.SPARK_RULES.is_file()


def test_an_address_of_ipv6_is_written_as_the_agent_reads_it(cache: Path) -> None:
    flag = jmx.agent_flag(host="::1", port=9474, rules=jmx.KAFKA_RULES, cache=cache)
    assert flag == f"-javaagent:{artifacts.jmx_agent(cache)}=[::1]:9474:{jmx.KAFKA_RULES}"


def test_an_address_of_another_machine_is_an_obstacle(cache: Path) -> None:
    assert "Use an address of this machine" in str(jmx.agent_obstacle("192.0.2.1", 9474, cache=cache))
