"""JMX agent that serves a JVM's metrics to Prometheus: the option that loads it, and reasons not to use it.

A JVM whose agent cannot start ends. So the option is used only if the agent will start: metrics of the JVMs matter less than
Kafka and Spark.
"""

import logging
from pathlib import Path
from typing import Final

import monitoring
from deploy.local import artifacts
from deploy.local.ports import is_free, owner_of
from ingest.contract.errors import UnavailableError

__all__ = ["KAFKA_RULES", "SPARK_RULES", "agent_flag", "agent_obstacle", "spark_flags"]

logger = logging.getLogger("tidegate.deploy.local.jmx")

_RULES: Final = Path(monitoring.__file__).parent.absolute() / "jmx"
KAFKA_RULES: Final = _RULES / "kafka.yml"
SPARK_RULES: Final = _RULES / "spark.yml"

# As properties of the JVM, so that what `stream.extra` says wins.
_SPARK_METRICS: Final = (
    "-Dspark.metrics.conf.driver.sink.jmx.class=org.apache.spark.metrics.sink.JmxSink",
    # Without it, names begin with the application's id, which is another one at each start.
    "-Dspark.metrics.namespace=tidegate",
    "-Dspark.sql.streaming.metricsEnabled=true",
)


def agent_flag(*, host: str, port: int, rules: Path, cache: Path | None = None) -> str:
    """Return the JVM option that serves `/metrics` at `host:port`, by these rules. One argument, never a shell's."""
    at = f"[{host}]" if ":" in host else host
    return f"-javaagent:{artifacts.jmx_agent(cache)}={at}:{port}:{rules}"


def agent_obstacle(host: str, port: int, *, cache: Path | None = None) -> str | None:
    """Why a JVM that starts now would not get the agent up, for people; None where it will."""
    jar = artifacts.jmx_agent(cache)
    if not jar.is_file():
        return f"{jar.name} is not in {jar.parent}; run `make setup` to fetch it"
    if "=" in str(jar):
        return f"Java cannot load an agent from a folder with `=` in its name ({jar.parent}); set XDG_CACHE_HOME to another"
    try:
        if not is_free(port, host):
            return f"port {port} on {host} is taken ({owner_of(port) or 'another process'})"
    except UnavailableError as error:
        return str(error)
    return None


def spark_flags(host: str, port: int, *, cache: Path | None = None) -> list[str]:
    """Return the options with which Spark's driver serves metrics of its JVM, queries and tasks; empty if `port` is 0."""
    if not port:
        return []
    if obstacle := agent_obstacle(host, port, cache=cache):
        step = "Set monitoring.spark_jmx_port = 0 to run without the agent and without its alerts"
        logger.warning("Spark starts without metrics of its JVM: %s. %s.", obstacle, step)
        return []
    return [agent_flag(host=host, port=port, rules=SPARK_RULES, cache=cache), *_SPARK_METRICS]
