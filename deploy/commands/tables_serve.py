"""`tidegate tables serve`: the tables for notebooks (Spark Connect) and for programs with JDBC or ODBC (Thrift), read-only."""

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deploy.commands.options import Data, OptionalConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import SecretStr

    from deploy.settings import Settings
    from lakehouse.query_server import QueryServer, ServerOptions

__all__ = ["serve"]

REFRESH_SECONDS: Final = 10.0
"""How late a new table of a SQL stream is shown."""


def serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Others than this machine's need --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of Spark Connect.")] = 15002,
    thrift_port: Annotated[int, typer.Option("--thrift-port", min=1, max=65535, help="Port of Thrift.")] = 10000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="File with the token that clients of Spark Connect must send. Thrift has no login, so it is off then.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="Java heap, such as 4g.")] = "1g",
    unconfined: Annotated[
        bool,
        typer.Option("--unconfined", help="Start without Landlock: clients can do all that your user can."),
    ] = False,
    config: OptionalConfig = None,
    data: Data = None,
) -> None:
    """Serve the tables read-only to notebooks and BI tools.

    Notebooks use Spark Connect, tools with JDBC or ODBC use Thrift. The kernel keeps the server from writing anything.
    SIGTERM or Ctrl-C stops it.
    """
    from deploy.local.locate_settings import locate_settings
    from deploy.process_signals import configure_logging, stop_on_signals
    from lakehouse.query_server import ServerOptions
    from monitoring.addresses import is_loopback

    token = None if token_file is None else _read_token(token_file)
    if token is None and not is_loopback(host):
        msg = f"{host} is open to other machines, so clients need a token. Write one into a file, and name it by --token-file."
        raise typer.BadParameter(msg)
    settings = locate_settings(config, data, needs_run=False)
    configure_logging()
    options = ServerOptions(host, port, thrift_port if token is None else None, token, not unconfined)
    stop = stop_on_signals()
    typer.echo("Starting Spark; this takes some seconds.", err=True)
    with _server(settings, options, memory) as server:
        typer.echo(_ready(server, options))
        while not stop.wait(REFRESH_SECONDS):
            server.refresh()


def _read_token(file: Path) -> "SecretStr":
    from pydantic import SecretStr

    from ingest.contract.errors import ConfigError
    from ingest.private_file import read_private

    token = read_private(str(file), "--token-file").strip()
    if not token or any(character.isspace() or not character.isprintable() for character in token):
        message = f"--token-file: {file} must hold one line without spaces: the token."
        raise ConfigError(message)
    return SecretStr(token)


@contextmanager
def _server(settings: "Settings", options: "ServerOptions", memory: str) -> "Iterator[QueryServer]":
    import shutil
    import tempfile

    from deploy.lake_views import configured_views
    from deploy.local.artifacts import spark_jars
    from deploy.local.java import find_java
    from deploy.local.ports import choose_port
    from lakehouse.jvm import JvmOptions
    from lakehouse.query_server import serve_queries

    java = find_java()
    # They stay after a failure, which names them.
    logs = Path(tempfile.mkdtemp(prefix="tidegate-serve-logs-"))
    jvm = JvmOptions(java.home, tuple(spark_jars()), logs, memory, tuple(java.gc_options))
    try:
        views = configured_views(settings)
        with serve_queries(jvm, settings.lake.root, views, options, own_port=choose_port(0)[0]) as server:
            yield server
    except BaseException:
        with suppress(OSError):
            logs.rmdir()  # empty if Spark was not started
        raise
    shutil.rmtree(logs, ignore_errors=True)


def _ready(server: "QueryServer", options: "ServerOptions") -> str:
    """Return what a user needs to connect, a line each."""
    from monitoring.addresses import reached_at

    counts = {"table": len(server.tables), "view": len(server.views)}
    shown = " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())
    rights = "the kernel denies all writes" if options.confined else "clients can do all that this user can"
    place = reached_at(options.host, options.connect_port)
    if options.token is not None:
        # The client sends a token without TLS to this name only.
        place = f"{f'localhost:{options.connect_port}' if options.host == '127.0.0.1' else place}/;token=TOKEN"
    lines = [f"Serving {shown}; {rights}.", f'Notebook: SparkSession.builder.remote("sc://{place}").getOrCreate()']
    if options.thrift_port is not None:
        lines.append(f"JDBC: jdbc:hive2://{reached_at(options.host, options.thrift_port)}/default")
    return "\n".join(lines)
