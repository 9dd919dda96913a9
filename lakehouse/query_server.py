"""Serve the tables read-only to notebooks and to programs with JDBC or ODBC, by Spark's own servers: Connect and Thrift.

Both servers run the code of their clients: functions in Python, `reflect`, jars. No check of statements could keep such clients
from writing, so the kernel does it (`lakehouse/confine.py`). The JVM can read the tables, write into a folder for
temporary files, and connect to nothing but itself. A DELETE fails with the kernel's "Permission denied".
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import ConfigError, FatalError, UnavailableError
from lakehouse.catalog import table_names
from lakehouse.confine import NEEDED_VERSION, Confinement, confinement_version
from lakehouse.jvm import JvmOptions
from lakehouse.paths import is_local, table_uri, to_path
from lakehouse.query import SPARK_CONF, innermost_message, present_tables
from lakehouse.session import LakeSession, open_session
from lakehouse.views import View

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["QueryServer", "ServerOptions", "serve_queries"]

_DATABASE: Final = "default"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Addresses and login of the servers.

    Args:
        host: address to listen on.
        connect_port: TCP port of Spark Connect.
        thrift_port: TCP port of Thrift, which has no login; None does not start it.
        token: what clients of Spark Connect must send; None lets everybody in who reaches the port.
        confined: let the kernel keep the JVM from writing. Without it, a client can do all that this user can.
    """

    host: str = "127.0.0.1"
    connect_port: int = 15002
    thrift_port: int | None = 10000
    token: "SecretStr | None" = None
    confined: bool = True


class QueryServer:
    """The running servers and the tables and views that they show."""

    def __init__(self, session: LakeSession, root: str, views: Sequence[View]) -> None:
        self._session, self._root, self._views = session, root, views
        self._shown: set[str] = set()
        self.tables: tuple[str, ...] = ()
        self.views: tuple[str, ...] = ()

    def refresh(self) -> None:
        """Show the tables that are there now: those of SQL streams come and go. Rows are new at each query anyway.

        Raises:
            FatalError: the JVM has ended.
        """
        if (code := self._session.jvm.process.poll()) is not None:
            message = f"Spark's JVM ended with code {code}; see {self._session.jvm.log}. Start the server again."
            raise FatalError(message)
        spark, names = self._session.spark, table_names(self._root)
        known = {found.name for found in spark.catalog.listTables(_DATABASE)}
        for name in names:
            # A client may have dropped it: that removes the name, not the table.
            if name.lower() not in known:
                spark.catalog.createTable(f"`{name}`", path=table_uri(self._root, name), source="delta")
        for name in self._shown.difference(names):
            spark.sql(f"DROP TABLE IF EXISTS `{name}`")
        self._shown = set(names)
        self.tables = tuple(names)
        self.views = tuple(view.name for view in self._views if self._show_view(view, known))

    def _show_view(self, view: View, known: set[str]) -> bool:
        """Define a view; not while a table of it is missing."""
        from pyspark.errors import AnalysisException

        if view.name.lower() in known:
            return True
        with suppress(AnalysisException):
            self._session.spark.sql(f"CREATE VIEW `{view.name}` AS {view.spark or view.sql}")
            return True
        return False


@contextmanager
def serve_queries(
    jvm: JvmOptions, root: str, views: Sequence[View], options: ServerOptions, *, own_port: int
) -> Iterator[QueryServer]:
    """Run the servers while the block runs.

    Args:
        jvm: Java, jars, heap and log folder.
        root: local path of the tables.
        views: queries that clients see as views.
        options: addresses and login.
        own_port: a free port for Spark itself, the only one that the confined JVM connects to.

    Raises:
        ConfigError: the tables are not on a local disk.
        UnavailableError: the root has no table yet, the kernel cannot confine the JVM, a port is taken, or this PySpark is
            without Connect or Thrift.
        FatalError: the JVM ended while starting.
    """
    if not is_local(root):
        message = (
            f"The tables are at {root}, but `tables serve` only serves tables on a local disk. Connect your tools to the object "
            "store with a login that can only read."
        )
        raise ConfigError(message)
    present_tables(root)
    if options.confined:
        _check_kernel()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-serve-"))
    try:
        session = open_session(
            _confined(jvm, root, folder, own_port) if options.confined else replace(jvm, temp_dir=folder),
            master="local[*]",
            app_name="tidegate-serve",
            extra=_server_conf(options, folder, own_port),
        )
        try:
            server = QueryServer(session, root, views)
            server.refresh()
            with _listening(session, options):
                yield server
        finally:
            session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_kernel() -> None:
    version = confinement_version()
    if version < NEEDED_VERSION:
        found = f"has Landlock version {version}" if version else "has no Landlock"
        message = (
            f"This kernel {found}, and `tables serve` needs version {NEEDED_VERSION} (Linux 6.7) to keep its clients from "
            "writing. Run it on a newer kernel. Or run it with --unconfined as a user that can only read the tables."
        )
        raise UnavailableError(message)


def _confined(jvm: JvmOptions, root: str, folder: Path, own_port: int) -> JvmOptions:
    tables = str(to_path(root).resolve())
    # Java's performance data would go to a file in the system's folder.
    flags = (*jvm.flags, "-XX:-UsePerfData")
    return replace(
        jvm, flags=flags, temp_dir=folder, confinement=Confinement(read=(tables,), write=(), connect=(own_port,))
    )


def _server_conf(options: ServerOptions, folder: Path, own_port: int) -> dict[str, str]:
    hive = {
        "exec.scratchdir": folder / "hive",
        "exec.local.scratchdir": folder / "hive-local",
        "downloaded.resources.dir": folder / "hive-resources",
        "querylog.location": folder / "hive-log",
        "server2.logging.operation.log.location": folder / "hive-operations",
        "server2.thrift.bind.host": options.host,
        "server2.thrift.port": options.thrift_port or 0,
    }
    return {
        **SPARK_CONF,
        # The one port that the confined JVM may connect to: executors fetch files of clients from the driver.
        "spark.driver.port": str(own_port),
        # Python functions of clients: their processes are reached through a file, because the JVM may not connect to other ports.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
        # Tools ask for columns in the catalog, which has none of a Delta table otherwise.
        "spark.databricks.delta.catalog.update.enabled": "true",
        # Results go to the client in parts, so that a large one does not fill the heap.
        "spark.sql.thriftServer.incrementalCollect": "true",
        "spark.sql.variable.substitute": "false",
        "spark.connect.grpc.binding.address": options.host,
        "spark.connect.grpc.binding.port": str(options.connect_port),
        **({} if options.token is None else {"spark.connect.authenticate.token": options.token.get_secret_value()}),
        **{f"spark.hadoop.hive.{name}": str(value) for name, value in hive.items()},
    }


@contextmanager
def _listening(session: LakeSession, options: ServerOptions) -> Iterator[None]:
    spark: Any = session.spark
    sql: Any = spark._jvm.org.apache.spark.sql
    with _explained("Spark Connect", options.host, options.connect_port):
        sql.connect.service.SparkConnectService.start(spark._jsc.sc())
    if options.thrift_port is not None:
        with _explained("Thrift", options.host, options.thrift_port):
            sql.hive.thriftserver.HiveThriftServer2.startWithSparkSession(spark._jsparkSession, False)
    yield


@contextmanager
def _explained(server: str, host: str, port: int) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except TypeError as error:  # py4j takes a class that is not there for a package
        message = (
            f"This PySpark is without {server}: the slim image leaves it out. Build the image with "
            "`--build-arg SLIM=no`, or start the server outside of it."
        )
        raise UnavailableError(message) from error
    except Py4JJavaError as error:
        message = f"{server} cannot listen on {host}:{port}: {innermost_message(error.java_exception)}."
        raise UnavailableError(message) from error
