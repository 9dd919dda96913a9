"""`tidegate cluster up | status | kill | restart | down`: Kafka clusters on this machine, for tests."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.command_line import command_name
from deploy.commands.options import Json, show_json

if TYPE_CHECKING:
    from deploy.testbed.cluster import KafkaCluster

__all__ = ["cluster_state", "register", "started_lines", "status_lines"]

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

    mode: Any = "zookeeper" if zookeeper else "kraft"
    security: Any = "sasl_ssl" if secure else "plaintext"
    with hold_folder(data):
        cluster = KafkaCluster(data, brokers=brokers, mode=mode, security=security, heap=heap, notify=_tell)
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

    cluster = KafkaCluster.attach(data, notify=_tell)
    if not cluster.started:
        message = f"No server of the cluster in {data} runs. Start it with `tidegate cluster up{_named(data)}` and its options."
        raise UnavailableError(message)
    return cluster


def _named(data: Path) -> str:
    return "" if data == DEFAULT else f" --data {shlex.quote(str(data))}"


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def cluster_state(cluster: "KafkaCluster") -> dict[str, Any]:
    """Return the state of the cluster now."""
    nodes = [
        {
            "node_id": node.node_id,
            "address": node.address,
            "pid": node.pid,
            "alive": node.alive,
            "answers": node.alive and node.part.ready(),
            "resident_mb": round(node.process.resident_mb),
            "jmx_url": node.jmx_url,
            "log_file": str(node.log_file),
        }
        for node in cluster.nodes
    ]
    keepers = [
        {
            "server_id": keeper.server_id,
            "address": keeper.address,
            "pid": keeper.process.pid,
            "alive": keeper.alive,
            "role": (role := keeper.role() if keeper.alive else ""),
            "answers": bool(role),
            "resident_mb": round(keeper.process.resident_mb),
            "log_file": str(keeper.log_file),
        }
        for keeper in cluster.zookeepers
    ]
    return {
        "folder": str(cluster.folder),
        "mode": cluster.wish.mode,
        "secure": cluster.wish.encrypts,
        "security": cluster.wish.security,
        "ready": all(server["answers"] for server in [*nodes, *keepers]),
        "bootstrap_servers": cluster.bootstrap_servers,
        "settings_file": str(cluster.settings_file),
        "client_properties": str(cluster.client_properties) if cluster.client_properties else None,
        "nodes": nodes,
        "zookeepers": keepers,
    }


def started_lines(cluster: "KafkaCluster", named: str | None = None) -> list[str]:
    """Return the lines for a person after the start. `named` is the option that names the folder, empty for the default."""
    state, name = cluster_state(cluster), command_name()
    named = f" --data {shlex.quote(state['folder'])}" if named is None else named
    lines = [
        *status_lines(state),
        "",
        f"bootstrap servers  {state['bootstrap_servers']}",
        f"Tidegate settings  {state['settings_file']}"
        + ("  (holds a password)" if state["security"] == "sasl_ssl" else ""),
    ]
    if state["client_properties"]:
        password = "; holds a password" if state["security"] == "sasl_ssl" else ""
        lines.append(f"client properties  {state['client_properties']}  (for Kafka's own tools{password})")
    return [
        *lines,
        "",
        f"{name} topics ls --all -F {shlex.quote(_from_here(cluster.settings_file))}",
        f"{name} cluster kill 1{named}",
        f"{name} cluster restart 1{named}",
        f"{name} cluster down{named}",
    ]


def _from_here(file: Path) -> str:
    """Return the path, relative if it is below the working directory."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def status_lines(state: Mapping[str, Any]) -> list[str]:
    """Return one line per server."""
    kind = [state["mode"], *([state["security"]] if state["secure"] else [])]
    lines = [f"{', '.join(kind)}, {'ready' if state['ready'] else 'not ready'}"]
    keepers = [(keeper["server_id"], keeper) for keeper in state["zookeepers"]]
    for name, server in [*keepers, *((f"node {node['node_id']}", node) for node in state["nodes"])]:
        how = "down" if not server["alive"] else "answers" if server["answers"] else "does not answer yet"
        role = f" as {server['role']}" if server.get("role") else ""
        process = f"pid {server['pid']}, {server['resident_mb']} MB" if server["alive"] else f"see {server['log_file']}"
        lines.append(f"  {name:<11} {server['address']:<16} {how}{role}, {process}")
    return lines
