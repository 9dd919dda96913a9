"""A test bed in words and as data."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.command_line import command_name
from deploy.testbed.cluster import KafkaCluster

__all__ = ["cluster_state", "started_lines", "status_lines"]


def cluster_state(cluster: KafkaCluster) -> dict[str, Any]:
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


def started_lines(cluster: KafkaCluster, named: str | None = None) -> list[str]:
    """Return what a person needs after the start; `named` is the option that names the folder, empty if it is the default one."""
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
    """Return the path, short if it is below this folder."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def status_lines(state: Mapping[str, Any]) -> list[str]:
    """A line for each server."""
    kind = [state["mode"], *([state["security"]] if state["secure"] else [])]
    lines = [f"{', '.join(kind)}, {'ready' if state['ready'] else 'not ready'}"]
    keepers = [(keeper["server_id"], keeper) for keeper in state["zookeepers"]]
    for name, server in [*keepers, *((f"node {node['node_id']}", node) for node in state["nodes"])]:
        how = "down" if not server["alive"] else "answers" if server["answers"] else "does not answer yet"
        role = f" as {server['role']}" if server.get("role") else ""
        process = f"pid {server['pid']}, {server['resident_mb']} MB" if server["alive"] else f"see {server['log_file']}"
        lines.append(f"  {name:<11} {server['address']:<16} {how}{role}, {process}")
    return lines
