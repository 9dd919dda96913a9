"""`tidegate cluster up | status | kill | restart | down`: Kafka clusters on this machine, for tests."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Json, show_json

if TYPE_CHECKING:
    from deploy.testbed.cluster import KafkaCluster

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Kafka clusters on this machine, for tests.\n\n"
    "With several brokers, ZooKeeper mode or security. `tidegate up` does not need one: it starts its own Kafka.",
)

Folder = Annotated[Path, typer.Option("--data", help="Folder of the cluster.")]
Server = Annotated[
    str,
    typer.Argument(help="Number of a node, or name of a ZooKeeper, as in `cluster status`: 2, zookeeper-2."),
]
DEFAULT = Path("tidegate-cluster")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="cluster")


@app.command()
def up(
    brokers: Annotated[int, typer.Option("--brokers", help="Number of brokers, 1 to 9.")] = 3,
    zookeeper: Annotated[
        bool,
        typer.Option(
            "--zookeeper",
            help="Use Kafka 3.9 in ZooKeeper mode, with 3 ZooKeepers from 3 brokers on. The first start downloads its jars.",
        ),
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Use SASL_SSL with SCRAM-SHA-512 for clients, TLS between nodes, and ACLs.")
    ] = False,
    heap: Annotated[str, typer.Option("--heap", help="Heap of each node, such as 384m or 1g.")] = "384m",
    data: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Start a cluster in the background, and wait until it is ready.

    The folder keeps the cluster's records. After `cluster down`, the same command starts the cluster with them again.
    """
    from deploy.testbed.cluster import KafkaCluster
    from deploy.testbed.cluster_layout import hold_folder
    from deploy.testbed.report import cluster_state, started_lines

    mode: Any = "zookeeper" if zookeeper else "kraft"
    security: Any = "sasl_ssl" if secure else "plaintext"
    with hold_folder(data):
        cluster = KafkaCluster(data, brokers=brokers, mode=mode, security=security, heap=heap, told=_tell)
        cluster.start()
    if as_json:
        show_json(cluster_state(cluster))
    else:
        typer.echo("\n".join(started_lines(cluster, _named(data))))


@app.command()
def status(data: Folder = DEFAULT, as_json: Json = False) -> None:
    """Show each server: address, process, memory, answer.

    Exit 1 while a server does not answer, 69 when nothing runs.
    """
    from deploy.testbed.report import cluster_state, status_lines

    found = cluster_state(_running(data))
    if as_json:
        show_json(found)
    else:
        typer.echo("\n".join(status_lines(found)))
    raise typer.Exit(0 if found["ready"] else 1)


@app.command()
def kill(server: Server, data: Folder = DEFAULT) -> None:
    """Kill one server with SIGKILL, as in a crash."""
    with _held(data) as cluster:
        name, pid = cluster.server(server).name, cluster.kill(server)
    _tell(f"{name} (pid {pid}) was killed. Start it again with `tidegate cluster restart {server}{_named(data)}`.")


@app.command()
def restart(server: Server, data: Folder = DEFAULT) -> None:
    """Restart one server with its data, or start it if it is stopped."""
    with _held(data) as cluster:
        cluster.restart(server)
        found = cluster.server(server)
    _tell(f"{found.name} answers again (pid {found.process.pid}).")


@app.command()
def down(
    data: Folder = DEFAULT,
    remove: Annotated[bool, typer.Option("--remove", help="Also delete its records, users and certificates.")] = False,
) -> None:
    """Stop all servers of the cluster and keep its data."""
    with _held(data, must_run=not remove) as cluster:
        cluster.stop()
        if remove:
            cluster.remove()
    _tell(f"Stopped. Its data was removed from {data}." if remove else f"Stopped. Its data stays in {data}.")


@contextmanager
def _held(data: Path, *, must_run: bool = True) -> Iterator["KafkaCluster"]:
    from deploy.testbed.cluster import KafkaCluster
    from deploy.testbed.cluster_layout import hold_folder

    KafkaCluster.attach(data)  # do not create or lock a folder without a cluster
    with hold_folder(data):
        yield _running(data) if must_run else KafkaCluster.attach(data)


def _running(data: Path) -> "KafkaCluster":
    from deploy.testbed.cluster import KafkaCluster
    from ingest.contract.errors import UnavailableError

    cluster = KafkaCluster.attach(data, told=_tell)
    if not cluster.started:
        message = f"No server of the cluster in {data} runs. Start it with `tidegate cluster up{_named(data)}` and its options."
        raise UnavailableError(message)
    return cluster


def _named(data: Path) -> str:
    return "" if data == DEFAULT else f" --data {shlex.quote(str(data))}"


def _tell(line: str) -> None:
    typer.echo(line, err=True)
