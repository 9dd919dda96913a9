"""Build the properties of each node from the description of a test bed: pure."""

from pathlib import Path
from typing import Final

from deploy.local.kafka import KafkaProfile
from deploy.testbed.cluster_layout import HOST, ClusterLayout
from deploy.testbed.cluster_security import ADMIN, AUTHORITY_FILE, GUEST, tls_properties, user_properties

__all__ = ["node_profile"]

KRAFT_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
ZOOKEEPER_SESSION_MS: Final = 6000
"""Time for which a killed broker counts as alive, and cannot be started again; Kafka's own default is 18 s."""


def node_profile(layout: ClusterLayout, node_id: int, folder: Path) -> KafkaProfile:
    """The profile of one node.

    Args:
        layout: of the whole test bed.
        node_id: 1 to the number of brokers.
        folder: of the certificates.
    """
    wish = layout.wish
    return KafkaProfile(
        properties={
            **_copies(layout),
            **_listeners(layout, node_id, folder),
            **(_kraft(layout, node_id) if wish.mode == "kraft" else _zookeeper(layout, node_id)),
            **wish.properties,
        },
        jars="kafka" if wish.mode == "kraft" else "zookeeper",
        cluster_id=layout.cluster_id,
        users={name: layout.passwords[name] for name in (ADMIN, GUEST)} if wish.has_users else {},
        authority=folder / AUTHORITY_FILE if wish.encrypts else None,
        java_options=wish.java_options,
    )


def _copies(layout: ClusterLayout) -> dict[str, str | int | None]:
    copies, in_sync = layout.wish.replication, layout.wish.min_in_sync
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _listeners(layout: ClusterLayout, node_id: int, folder: Path) -> dict[str, str | int | None]:
    ports, wish = layout.ports[str(node_id)], layout.wish
    inner = "SSL" if wish.encrypts else "PLAINTEXT"
    names = {"CLIENT": wish.security.upper(), **({"INTERNAL": inner} if wish.encrypts else {})}
    advertised = ",".join(f"{name}://{HOST}:{ports[name.lower()]}" for name in names)
    controller = f",CONTROLLER://{HOST}:{ports['controller']}" if wish.mode == "kraft" else ""
    if wish.mode == "kraft":
        names["CONTROLLER"] = inner
    store = layout.passwords.get("store", "")
    authorizer = KRAFT_AUTHORIZER if wish.mode == "kraft" else ZOOKEEPER_AUTHORIZER
    return {
        "listeners": advertised + controller,
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": "INTERNAL" if wish.encrypts else "CLIENT",
        **(tls_properties(folder, store) if wish.encrypts else {}),
        **(user_properties(authorizer) if wish.has_users else {}),
    }


def _kraft(layout: ClusterLayout, node_id: int) -> dict[str, str | int | None]:
    voters = [f"{number}@{HOST}:{ports['controller']}" for number, ports in layout.ports.items()]
    return {"node.id": node_id, "controller.quorum.voters": ",".join(voters)}


def _zookeeper(layout: ClusterLayout, node_id: int) -> dict[str, str | int | None]:
    only_of_kraft = ("process.roles", "node.id", "controller.listener.names", "controller.quorum.voters")
    return {
        **dict.fromkeys(only_of_kraft),
        "broker.id": node_id,
        "zookeeper.connect": layout.zookeeper_connect,
        "zookeeper.session.timeout.ms": ZOOKEEPER_SESSION_MS,
    }
