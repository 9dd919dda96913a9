"""Profiles and registered devices from Kafka: all gateways have the same, wherever they run.

`tidegate profile push` and `device push` write a record for each profile file and for each device into
`telemetry.gateway-state` (compacted). A gateway with `gateway.shared_inputs` follows these records, and keeps copies as the files
that its settings name. From there on they are files like any others: read again when they change, each judged by itself. Without
Kafka, a gateway starts with the copies that it has.
"""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from gateway.device_registry import make_entry, read_registry
from gateway.gateway_settings import GatewaySettings
from ingest.contract.errors import ConfigError, FatalError, RetryableError
from ingest.contract.shared_input import DEVICE_INPUT, PROFILE_INPUT, device_key, input_name, profile_key
from ingest.state_follower import StateReader
from monitoring.periodic_query import PeriodicQuery

__all__ = [
    "PushPlan",
    "SharedInputs",
    "device_input",
    "device_inputs",
    "plan_push",
    "profile_inputs",
]

logger = logging.getLogger("tidegate.gateway")

FOLLOW_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.toml")
"""Names of profile files. A name becomes a path on each gateway, so no other is written, nor pushed."""


def profile_inputs(folder: Path) -> dict[str, bytes]:
    """Return the records of a folder's profiles: key to the file's content. The caller has checked the profiles.

    Raises:
        ConfigError: a file has a name that cannot be shared.
        OSError: a file cannot be read.
    """
    found = {}
    for file in sorted(folder.glob("*.toml")):
        if file.name.startswith("."):
            continue
        if not _FILE_NAME.fullmatch(file.name):
            message = (
                f"{file} cannot be shared under this name. Use letters, digits, dots, hyphens and underscores in it."
            )
            raise ConfigError(message)
        found[profile_key(file.name)] = file.read_bytes()
    return found


def device_inputs(registry: Path) -> dict[str, bytes]:
    """Return the records of a registry file: key to the device's line.

    Raises:
        ConfigError: a line is not a device.
        OSError: the file cannot be read.
    """
    found = read_registry(registry)
    return {device_key(device): msgspec.json.encode(entry) for device, entry in found.items()}


def device_input(device: str, profile: str | None, tags: Mapping[str, str]) -> dict[str, bytes]:
    """Return the record of one device.

    Raises:
        ConfigError: the id or a tag is wrong.
    """
    entry = make_entry(device, profile, tags)
    return {device_key(device): msgspec.json.encode(entry)}


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push changes: new values by key, keys to remove, and the number of keys that stay as they are."""

    changed: dict[str, bytes]
    removed: tuple[str, ...]
    unchanged: int

    def summary(self, *, dry_run: bool) -> dict[str, object]:
        """Return names and numbers for programs."""
        return {
            "dry_run": dry_run,
            "changed": [input_name(key) for key in self.changed],
            "removed": [input_name(key) for key in self.removed],
            "unchanged": self.unchanged,
        }

    def sentence(self, kind: str, *, dry_run: bool) -> str:
        """Return the same for people; `kind` is what a record holds."""
        counts = f"{len(self.changed)} new or changed, {len(self.removed)} removed, {self.unchanged} as before"
        names = ", ".join(map(input_name, (*self.changed, *self.removed)[:10]))
        return (
            f"{kind.capitalize()}s in Kafka{' would be' if dry_run else ''}: {counts}{f' ({names})' if names else ''}."
        )

    @property
    def records(self) -> list[tuple[str, bytes | None]]:
        """Records to send; a value of None removes the key."""
        return [*self.changed.items(), *((key, None) for key in self.removed)]


def plan_push(held: Iterable[tuple[str, bytes]], wanted: Mapping[str, bytes], *, profiles: bool) -> PushPlan:
    """Compare what Kafka holds with what it shall hold of one kind.

    Args:
        held: newest value of each key that is a shared input.
        wanted: of `profile_inputs` or `device_inputs`.
        profiles: True for profiles, False for devices: the other kind stays.
    """
    prefix = PROFILE_INPUT if profiles else DEVICE_INPUT
    before = {key: value for key, value in held if key.startswith(prefix)}
    changed = {key: value for key, value in wanted.items() if before.get(key) != value}
    return PushPlan(changed, tuple(sorted(before.keys() - wanted.keys())), len(wanted) - len(changed))


class SharedInputs:
    """Copies of the shared inputs on this machine.

    Files that were here before are not lost: a profile of another origin stays and applies, and a file that is
    replaced by a shared one of its name is kept as NAME.local.
    """

    def __init__(self, state: StateReader, settings: GatewaySettings) -> None:
        """Follow `state`, which holds shared inputs only, for the folder and the file that the settings name."""
        self._state = state
        self._profiles = _Copies(Path(settings.profiles), "profiles") if settings.profiles is not None else None
        self._registry = Path(settings.device_registry) if settings.device_registry is not None else None
        self._registered = _Copies(self._registry.parent, "devices") if self._registry is not None else None
        self._seen: dict[str, bytes] | None = None

    def refresh(self) -> None:
        """Take what Kafka has now into the files.

        Raises:
            RetryableError: Kafka does not answer.
            FatalError: this user may not read the topic, the topic does not exist, or a file cannot be written.
        """
        self._state.catch_up()
        now = dict(self._state.state())
        if now == self._seen:
            return
        try:
            # Profiles first: a device that names a profile that is not there is rejected.
            self._write_profiles(now)
            self._write_devices(now)
        except OSError as error:
            message = (
                f"A shared input cannot be written to {error.filename} ({error.strerror}). Check gateway.profiles and "
                "gateway.device_registry."
            )
            raise FatalError(message) from error
        self._seen = now

    def _write_profiles(self, now: Mapping[str, bytes]) -> None:
        if self._profiles is None:
            return
        found = {input_name(key): value for key, value in now.items() if key.startswith(PROFILE_INPUT)}
        for name in sorted(name for name in found if not _FILE_NAME.fullmatch(name)):
            logger.error("A shared profile has the name %r, which is not that of a profile file: it is left out.", name)
            del found[name]
        if found:
            self._profiles.take(found)
        else:
            self._say_none("profile", copies=self._profiles.known)

    def _write_devices(self, now: Mapping[str, bytes]) -> None:
        if self._registered is None or self._registry is None:
            return
        lines = [value for key, value in sorted(now.items()) if key.startswith(DEVICE_INPUT)]
        name = self._registry.name
        if lines:
            # Written also when only a profile has changed: the registry is judged again then.
            self._registered.take({name: b"".join(line + b"\n" for line in lines)}, again=self._seen is not None)
        else:
            self._say_none("device", copies=self._registered.owns(name))

    def _say_none(self, kind: str, *, copies: bool) -> None:
        """Keep the copies: a push never leaves a kind empty, so the topic is new, or was deleted and recreated."""
        stay = "The copies of before stay in use" if copies else "The files of this machine apply until then"
        logger.warning("Kafka holds no shared %s. Run `tidegate %s push`. %s.", kind, kind, stay)

    def make_missing(self) -> None:
        """Make the folder of profiles and the registry file where they are missing, empty.

        Raises:
            OSError: they cannot be made.
        """
        if self._profiles is not None:
            self._profiles.folder.mkdir(parents=True, exist_ok=True)
        if self._registry is not None and not self._registry.exists():
            self._registry.parent.mkdir(parents=True, exist_ok=True)
            self._registry.touch()

    def has_copies(self) -> bool:
        """Return whether an earlier process has taken all of them, so that a gateway can start without Kafka."""
        registered = self._registered is None or self._registry is None or self._registered.owns(self._registry.name)
        return registered and (self._profiles is None or self._profiles.known)

    @contextmanager
    def following(self, stop: threading.Event, *, tell: Callable[[str], None] = logger.warning) -> Iterator[None]:
        """Take the inputs, and follow them while the block runs. Waits for Kafka until `stop`, unless there are copies."""
        said = ""
        while not stop.is_set():
            try:
                self.refresh()
                break
            except RetryableError as error:
                if self.has_copies():
                    tell(f"{error}. The gateway starts with its copies of the shared profiles and devices.")
                    break
                if str(error) != said:
                    said = str(error)
                    tell(f"{error}. The gateway waits for the shared profiles and devices.")
                stop.wait(RETRY_SECONDS)
            except FatalError as error:
                tell(f"{error}. The gateway starts without new profiles and devices from Kafka.")
                break
        self.make_missing()
        poll: PeriodicQuery[None] = PeriodicQuery("shared inputs", FOLLOW_SECONDS, self.refresh, default=None)
        poll.start()
        try:
            yield
        finally:
            poll.stop()
            poll.join(RETRY_SECONDS)


class _Copies:
    """Files of one folder that this gateway keeps for Kafka. A list of their names next to them outlasts the process."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self._list = folder / f".tidegate-shared-{kind}.json"

    @property
    def known(self) -> bool:
        return self._list.exists()

    def owns(self, name: str) -> bool:
        return name in self._owned()

    def take(self, files: Mapping[str, bytes], *, again: bool = False) -> None:
        """Write these files, remove those of before that are not among them, and leave files of another origin.

        `again` writes a file also if its content is the same.
        """
        owned = self._owned()
        self.folder.mkdir(parents=True, exist_ok=True)
        # Before the list: after a crash in between, a file that the list names is taken for a copy of this class.
        for name in sorted(files.keys() - owned):
            self._keep_former(name, files[name])
        # Before the files: a crash in between must not make a shared file look like one of another origin.
        self._write(self._list.name, json.dumps(sorted({*owned, *files})).encode())
        for name, content in files.items():
            path = self.folder / name
            if again or not path.exists() or path.read_bytes() != content:
                self._write(name, content)
        for name in owned - files.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._write(self._list.name, json.dumps(sorted(files)).encode())

    def _keep_former(self, name: str, content: bytes) -> None:
        """Copy a file of another origin to NAME.local. It stays in place until it is replaced: a reader always finds one."""
        path = self.folder / name
        former = path.read_bytes() if path.exists() else b""
        if former.strip() and former != content:
            self._write(f"{name}.local", former)
            logger.warning("%s is replaced by the shared one from Kafka; the former file is %s.local.", path, name)

    def _owned(self) -> set[str]:
        try:
            return {name for name in json.loads(self._list.read_bytes()) if isinstance(name, str) and "/" not in name}
        except (OSError, ValueError, TypeError):
            return set()

    def _write(self, name: str, content: bytes) -> None:
        fresh = self.folder / f".{name}.{os.getpid()}"
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / name)
