"""Description of a test bed: its request, its ports and secrets, and its processes.

It is one private file in the test bed's folder, so that a later command finds the servers that an earlier one started.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from deploy.local.kafka import new_cluster_id
from deploy.local.ports import choose_port
from deploy.settings_file import write_private
from deploy.testbed.cluster_security import ADMIN, GUEST
from deploy.testbed.server_process import ProcessIdentity
from ingest.contract.errors import ConfigError, FatalError

__all__ = [
    "HOST",
    "LAYOUT_FILE",
    "ClusterLayout",
    "ClusterRequest",
    "Mode",
    "Security",
    "hold_folder",
    "new_layout",
    "read_layout",
]

Mode = Literal["kraft", "zookeeper"]
Security = Literal["plaintext", "ssl", "sasl_ssl"]
"""Security of the clients: none, TLS, or TLS with a user and a password. With TLS the nodes use it among themselves too."""
HOST: Final = "127.0.0.1"
LAYOUT_FILE: Final = "testbed.json"
MOST_BROKERS: Final = 9
_LISTENERS: Final = ("client", "internal", "controller", "jmx")
ENSEMBLE: Final = 3
"""ZooKeepers of three brokers and more: one may die, also the one that leads."""


@dataclass(frozen=True)
class ClusterRequest:
    """Requested properties of a test bed.

    Raises:
        ConfigError: no cluster can be made of it.
    """

    brokers: int = 1
    mode: Mode = "kraft"
    security: Security = "plaintext"
    heap: str = "384m"
    properties: Mapping[str, str | int] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()
    jmx: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= MOST_BROKERS:
            message = f"A test bed has 1 to {MOST_BROKERS} brokers, not {self.brokers}; give another number."
            raise ConfigError(message)
        if self.mode not in ("kraft", "zookeeper"):
            message = f"Kafka runs in mode kraft or zookeeper, not {self.mode}; give one of the two."
            raise ConfigError(message)
        if self.security not in get_args(Security):
            message = (
                f"Clients of a test bed use {', '.join(get_args(Security))}, not {self.security}; give one of these."
            )
            raise ConfigError(message)
        if not (self.heap[:-1].isdigit() and self.heap[-1:].lower() in ("m", "g") and int(self.heap[:-1])):
            message = f"The heap of a node is {self.heap!r}; wanted a whole number and m or g, such as 384m."
            raise ConfigError(message)

    @property
    def encrypts(self) -> bool:
        """All connections use TLS."""
        return self.security != "plaintext"

    @property
    def has_users(self) -> bool:
        """Clients need a user and a password, and rights."""
        return self.security == "sasl_ssl"

    @property
    def replication(self) -> int:
        """Copies of each partition."""
        return min(3, self.brokers)

    @property
    def min_in_sync(self) -> int:
        """Copies that an acknowledged record has reached: one of three may be away."""
        return max(1, self.replication - 1)

    @property
    def zookeepers(self) -> int:
        """Servers of its ZooKeeper; 0 of a KRaft cluster."""
        if self.mode == "kraft":
            return 0
        return ENSEMBLE if self.brokers >= ENSEMBLE else 1


@dataclass
class ClusterLayout:
    """One test bed as it was last started."""

    wish: ClusterRequest
    cluster_id: str
    ports: dict[str, dict[str, int]]
    """Ports by server (node id, `zookeeper`, or `zookeeper-1` and so on) and listener."""
    passwords: dict[str, str]
    processes: dict[str, ProcessIdentity] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Keep it in the test bed's folder, for its owner only."""
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / LAYOUT_FILE, json.dumps(asdict(self), indent=2) + "\n")

    def choose_ports(self) -> None:
        """Give each listener a port that is free now."""
        self.ports = _choose_ports(self.ports)

    @property
    def zookeepers(self) -> dict[str, dict[str, int]]:
        """Ports of its ZooKeepers by name: of those that it was made with."""
        return {name: ports for name, ports in self.ports.items() if not name.isdigit()}

    @property
    def zookeeper_connect(self) -> str:
        """Address that brokers connect to."""
        return ",".join(f"{HOST}:{ports['client']}" for ports in self.zookeepers.values())


def new_layout(wish: ClusterRequest) -> ClusterLayout:
    """A test bed that has not been started."""
    names = (ADMIN, GUEST) if wish.has_users else ()
    ports = _choose_ports(_listeners(wish))
    return ClusterLayout(wish, new_cluster_id(), ports, {name: secrets.token_hex(12) for name in names})


def read_layout(folder: Path) -> ClusterLayout | None:
    """The test bed of this folder; None where there is none, or no whole description."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads((folder / LAYOUT_FILE).read_text("utf-8"))
        wish = _today(found["wish"]) | {"java_options": tuple(found["wish"]["java_options"])}
        processes = {name: ProcessIdentity(**identity) for name, identity in found["processes"].items()}
        return ClusterLayout(**(found | {"wish": ClusterRequest(**wish), "processes": processes}))
    return None


def _today(wish: dict[str, Any]) -> dict[str, Any]:
    """A description of before `security` had three values says `secure` in its place."""
    if "secure" not in wish:
        return wish
    rest = {name: value for name, value in wish.items() if name != "secure"}
    return rest | {"security": "sasl_ssl" if wish["secure"] else "plaintext"}


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Let no other command change this test bed while the block runs.

    Raises:
        FatalError: another command does.
        ConfigError: it is not a folder, or one of another user.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        message = f"{folder} cannot be the folder of a cluster ({error.strerror}). Name another one with --data."
        raise ConfigError(message) from error
    try:
        if not _locked(handle):
            message = f"Another command is changing the cluster in {folder}. Wait for it, then try again."
            raise FatalError(message)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listeners(wish: ClusterRequest) -> dict[str, tuple[str, ...]]:
    """Return the listeners of each server, by name."""
    nodes = {str(number): _LISTENERS for number in range(1, wish.brokers + 1)}
    if wish.zookeepers == 1:
        return nodes | {"zookeeper": ("client",)}
    return nodes | {f"zookeeper-{number}": ("client", "peer", "election") for number in range(1, wish.zookeepers + 1)}


def _choose_ports(servers: Mapping[str, Iterable[str]]) -> dict[str, dict[str, int]]:
    taken: set[int] = set()

    def chosen() -> int:
        port, _ = choose_port(0, HOST, claim=lambda port: port not in taken)
        taken.add(port)
        return port

    return {server: {name: chosen() for name in listeners} for server, listeners in servers.items()}
