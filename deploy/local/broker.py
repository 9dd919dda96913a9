"""The embedded MQTT broker: mosquitto if this machine has it, else iotcore from the Python environment.

Both run as own processes on loopback, require a password, and support MQTT 3.1.1 and 5, QoS 0, 1 and 2, and persistent
sessions. Only mosquitto keeps its queue if the broker itself is killed, has an access list, and may serve other machines.
"""

import json
import os
import pwd
import shutil
import ssl
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from deploy.local.broker_answer import connect_accepted
from deploy.local.broker_rights import ITERATIONS, Rights, find_plugin, password_hash, security_file
from deploy.settings_file import write_private
from ingest.contract.errors import ConfigError, UnavailableError

__all__ = [
    "BrokerKind",
    "BrokerTls",
    "EmbeddedBroker",
    "Iotcore",
    "Mosquitto",
    "NetworkListener",
    "choose_broker",
    "find_broker",
    "find_mosquitto",
    "make_broker",
    "password_line",
]

BrokerKind = Literal["mosquitto", "iotcore"]
MEGABYTE = 1024 * 1024
ANSWER_HOLDS_SECONDS = 15.0
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/opt/homebrew/sbin"
RIGHTS_FILE = "rights.json"


def find_mosquitto() -> Path | None:
    """Return the path of mosquitto; None if it is missing. Debian installs it in /usr/sbin, which not every PATH has."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")
    return Path(found) if found else None


def find_broker() -> BrokerKind:
    """Return the best broker of this machine."""
    return "mosquitto" if find_mosquitto() else "iotcore"


def choose_broker(wish: Literal["auto", "mosquitto", "iotcore"]) -> BrokerKind:
    """Return the broker that a setting asks for.

    Raises:
        UnavailableError: the setting names mosquitto, and this machine does not have it.
    """
    if wish == "mosquitto" and not find_mosquitto():
        message = (
            "embedded.broker is mosquitto, but mosquitto is not on PATH. Install it or set embedded.broker to auto."
        )
        raise UnavailableError(message)
    return find_broker() if wish == "auto" else wish


@dataclass(frozen=True)
class NetworkListener:
    """A listener for other machines.

    Attributes:
        host: address to listen on.
        port: its port.
        files: PEM files of certificate and key; None serves plain connections.
        clients: PEM file with the authorities of clients' certificates; None asks for none.
        revoked: PEM file with the revoked ones of these.
    """

    host: str
    port: int
    files: tuple[str, str] | None = None
    clients: str | None = None
    revoked: str | None = None


@dataclass(frozen=True)
class BrokerTls:
    """TLS of the broker's own listener: the PEM files of certificate and key, and that of the authority that signed it."""

    certificate: str
    key: str
    authority: str


class EmbeddedBroker(ABC):
    """One broker with its own folder.

    Attributes:
        port: port of MQTT 3.1.1.
        port_v5: port of MQTT 5; the same as `port` if one listener serves both.
        durable: True if accepted messages survive a kill of the broker.
    """

    kind: ClassVar[BrokerKind]
    durable: ClassVar[bool]

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        users: Mapping[str, str],
        rights: Mapping[str, Rights] | None = None,
        port_v5: int | None = None,
        host: str = "127.0.0.1",
        network: NetworkListener | None = None,
        tls: BrokerTls | None = None,
        window: int = 1000,
        max_packet_bytes: int = MEGABYTE,
        max_queued_messages: int = 1_000_000,
        max_queued_bytes: int = 256 * MEGABYTE,
    ) -> None:
        """Take the limits; `prepare` writes the files.

        Args:
            folder: folder for configuration, password file and queue.
            port: port of MQTT 3.1.1, and of MQTT 5 if the broker has one listener for both.
            users: password of each user; all other users are rejected.
            rights: topics of each user; None lets each of them publish and read everything.
            port_v5: port of MQTT 5 for a broker that needs a second listener.
            host: the address to listen on.
            network: one more listener for other machines, on a broker that can have it.
            tls: TLS of the listener on `port`, on a broker that can have it; None serves plain connections.
            window: most messages in flight to one client; at least the gateway's window, which could not fill otherwise.
            max_packet_bytes: largest packet; the broker disconnects a client that sends a larger one.
            max_queued_messages: most messages kept per session whose client is away; the broker drops more.
            max_queued_bytes: the same limit in bytes.
        """
        for name, password in users.items():
            _check_user(name, password)
        self.folder = folder.resolve()
        self.host, self.port, self.port_v5 = host, port, self._second_port(port, port_v5)
        self._users, self._rights, self._network, self._tls = dict(users), rights, network, tls
        self._window, self._max_packet_bytes = window, max_packet_bytes
        self._max_queued_messages, self._max_queued_bytes = max_queued_messages, max_queued_bytes
        self._answered = 0.0

    def prepare(self) -> None:
        """Write the broker's files, which only this user can read. Call it before each start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._answered = 0.0
        for name, text in self._files().items():
            write_private(self.folder / name, text)

    @property
    def has_access_list(self) -> bool:
        """Return whether `rights` apply. Without an access list each user may publish and read everything."""
        return False

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """Sentences that `status` shows while this broker runs."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts the broker, after `prepare`. Its log goes to standard error."""

    def env(self) -> dict[str, str]:
        """Return the environment that the process needs besides the caller's: nothing."""
        return {}

    def ready(self, timeout: float = 1.0) -> bool:
        """Return whether every listener accepts a user. True is kept for 15 s: each look adds lines to the broker's log."""
        if time.monotonic() - self._answered < ANSWER_HOLDS_SECONDS and self._answered:
            return True
        name, password = next(iter(self._users.items()))
        levels = {(self.port, 4), (self.port_v5, 5)}
        if all(
            connect_accepted(
                self.host, port, level=level, name=name, password=password, timeout=timeout, context=self._context()
            )
            for port, level in levels
        ):
            self._answered = time.monotonic()
            return True
        return False

    def wait_ready(self, process: "subprocess.Popen[bytes]", seconds: float = 30.0) -> None:
        """Wait until the started `process` answers.

        Raises:
            UnavailableError: it ended or took too long.
        """
        deadline = time.monotonic() + seconds
        while not self.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                how = f"ended with code {process.returncode}" if process.returncode is not None else "does not answer"
                message = f"The embedded MQTT broker {self.kind} {how}; see its log with `tidegate logs broker`."
                raise UnavailableError(message)
            time.sleep(0.02)

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context with which a client checks the broker's certificate; None without TLS."""
        return None if self._tls is None else ssl.create_default_context(cafile=self._tls.authority)

    @abstractmethod
    def _files(self) -> dict[str, str]: ...

    def _second_port(self, port: int, port_v5: int | None) -> int:
        del port_v5
        return port


class Mosquitto(EmbeddedBroker):
    """mosquitto, which saves its queues every two seconds: a kill loses at most the messages of the last 2.5 s."""

    kind = "mosquitto"
    durable = True

    @cached_property
    def _plugin(self) -> Path | None:
        executable = find_mosquitto() if self._rights is not None else None
        return None if executable is None else find_plugin(executable)

    @property
    def has_access_list(self) -> bool:
        """See `EmbeddedBroker.has_access_list`."""
        return self._plugin is not None

    @property
    def warnings(self) -> list[str]:
        """See `EmbeddedBroker.warnings`."""
        if self._rights is None or self.has_access_list:
            return []
        return [
            "This mosquitto has no plugin mosquitto_dynamic_security, so there is no access list: each user may publish and "
            "read everything, also receipts of other devices. Install a mosquitto with this plugin."
        ]

    def command(self) -> list[str]:
        """See `EmbeddedBroker.command`."""
        executable = find_mosquitto()
        if executable is None:
            message = "mosquitto is no longer on this machine. Install it or set embedded.broker to auto."
            raise UnavailableError(message)
        return [str(executable), "-c", str(self.folder / "mosquitto.conf")]

    @property
    def database(self) -> Path:
        """File with sessions, queues and retained messages."""
        return self.folder / "mosquitto.db"

    def _files(self) -> dict[str, str]:
        files = {"mosquitto.conf": self._configuration()}
        if self._rights is not None and self.has_access_list:
            # The plugin writes its file too: it holds the logins of devices, which stay.
            file = self.folder / RIGHTS_FILE
            earlier = file.read_text("utf-8", "replace") if file.exists() else ""
            return {**files, RIGHTS_FILE: security_file(self._users, self._rights, earlier)}
        return {**files, "passwords": "".join(password_line(name, secret) for name, secret in self._users.items())}

    def _entrance(self) -> list[str]:
        """Return the configuration's lines for the listeners and their users."""
        network, tls, lines = self._network, self._tls, [f"listener {self.port} {self.host}"]
        if tls is not None:
            lines += _tls_lines(tls.certificate, tls.key)
        if network is not None:
            lines.append(f"listener {network.port} {network.host}")
            if network.files is not None:
                lines += _tls_lines(*network.files)
            if network.clients is not None:
                lines += [f"cafile {network.clients}", "require_certificate true"]
            if network.revoked is not None:
                lines.append(f"crlfile {network.revoked}")
        lines.append("allow_anonymous false")
        if self.has_access_list:
            return [*lines, f"plugin {self._plugin}", f"plugin_opt_config_file {self.folder}/{RIGHTS_FILE}"]
        return [*lines, f"password_file {self.folder}/passwords"]

    def _configuration(self) -> str:
        # Limits are explicit and never 0: 0 means "no limit" for some of them and the small default for others.
        lines = [
            *self._entrance(),
            "persistence true",
            f"persistence_location {self.folder}/",
            # mosquitto compares whole seconds: it saves once more than one has passed.
            "autosave_interval 1",
            # Publish the figures under $SYS as often as the monitor looks; mosquitto sends only those that changed.
            "sys_interval 2",
            f"max_inflight_messages {min(self._window, 65535)}",
            f"max_queued_messages {self._max_queued_messages}",
            f"max_queued_bytes {self._max_queued_bytes}",
            f"max_packet_size {self._max_packet_bytes}",
            # Longer than the gateway's own session expiry, so that the broker never forgets first.
            "persistent_client_expiration 30d",
            "set_tcp_nodelay true",
            "log_dest stderr",
            *(f"log_type {kind}" for kind in ("error", "warning", "notice")),
            "log_timestamp_format %Y-%m-%dT%H:%M:%S",
        ]
        if os.geteuid() == 0:
            # Otherwise mosquitto started as root changes to a user that may not read this folder.
            lines.append(f"user {pwd.getpwuid(0).pw_name}")
        return "\n".join(lines) + "\n"


class Iotcore(EmbeddedBroker):
    """Broker from PyPI, which needs no system package; MQTT 5 has its own listener."""

    kind = "iotcore"
    durable = False
    # rumqttd keeps a log per subscription filter, in segments, and drops whole segments, the oldest first.
    _SEGMENT_BYTES: ClassVar[int] = 8 * MEGABYTE

    @property
    def warnings(self) -> list[str]:
        """See `EmbeddedBroker.warnings`."""
        queue = (
            "The broker iotcore keeps its queue in memory. If the broker is killed while the gateway is away, the waiting "
            "messages are lost. Install mosquitto to keep them."
        )
        access = (
            "The broker iotcore has no access list: each user may publish and read everything, also receipts of other devices. "
            "Install mosquitto for an access list."
        )
        return [queue] if self._rights is None else [queue, access]

    def command(self) -> list[str]:
        """See `EmbeddedBroker.command`."""
        # Its log has an error line per packet, good or bad.
        arguments = ["-m", "iotcore", "--config", str(self.folder / "rumqttd.toml"), "--log-level", "CRITICAL"]
        return [sys.executable, "-P", *arguments]

    def _second_port(self, port: int, port_v5: int | None) -> int:
        if port_v5 is None or port_v5 == port:
            message = "The broker iotcore needs a second port for MQTT 5."
            raise ConfigError(message)
        return port_v5

    def _files(self) -> dict[str, str]:
        segments = max(2, self._max_queued_bytes // self._SEGMENT_BYTES)
        head = (
            "id = 0\n[router]\nid = 0\nmax_connections = 10010\nmax_outgoing_packet_count = 200\n"
            f"max_segment_size = {self._SEGMENT_BYTES}\nmax_segment_count = {segments}\n"
        )
        return {"rumqttd.toml": head + self._listener("v4", self.port) + self._listener("v5", self.port_v5)}

    def _listener(self, version: str, port: int) -> str:
        # A JSON string is also a TOML basic string, for all characters that a password may have here.
        users = "".join(f"{json.dumps(name)} = {json.dumps(password)}\n" for name, password in self._users.items())
        return (
            f'[{version}.1]\nname = "{version}"\nlisten = "{self.host}:{port}"\nnext_connection_delay_ms = 1\n'
            f"[{version}.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = {self._max_packet_bytes}\n"
            f"max_inflight_count = {self._window}\ndynamic_filters = true\n[{version}.1.connections.auth]\n{users}"
        )


def make_broker(
    kind: BrokerKind,
    folder: Path,
    port: int,
    *,
    users: Mapping[str, str],
    rights: Mapping[str, Rights] | None = None,
    port_v5: int | None = None,
    host: str = "127.0.0.1",
    network: NetworkListener | None = None,
    tls: BrokerTls | None = None,
    **limits: int,
) -> EmbeddedBroker:
    """Make a broker of that kind; `limits` are those of `EmbeddedBroker`.

    Raises:
        ConfigError: the broker iotcore cannot use TLS.
    """
    if kind == "iotcore" and tls is not None:
        message = "The broker iotcore has no TLS. Install mosquitto, and set embedded.broker to mosquitto or auto."
        raise ConfigError(message)
    made: type[EmbeddedBroker] = Mosquitto if kind == "mosquitto" else Iotcore
    return made(
        folder, port, users=users, rights=rights, port_v5=port_v5, host=host, network=network, tls=tls, **limits
    )


def _tls_lines(certificate: str, key: str) -> list[str]:
    return [f"certfile {certificate}", f"keyfile {key}", "tls_version tlsv1.2"]


def _check_user(name: str, password: str) -> None:
    """Check that a password file and a CONNECT packet can hold name and password.

    Raises:
        ConfigError: a character is not possible; the text names it.
    """
    bad = next((letter for letter in name if letter in ":\n\r\0"), None)
    if not name or bad is not None:
        message = f"The MQTT user name {name!r} is empty or holds {bad!r}; use letters, digits, '.', '_' and '-'."
        raise ConfigError(message)
    if not password or any(letter in "\n\r\0" for letter in password):
        message = f"The password of the MQTT user {name!r} is empty or holds a line break; choose another."
        raise ConfigError(message)


def password_line(name: str, password: str) -> str:
    """Return one line of mosquitto's password file: PBKDF2 with SHA-512."""
    salt, hashed = password_hash(password)
    return f"{name}:$7${ITERATIONS}${salt}${hashed}\n"
