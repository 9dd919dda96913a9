"""Registry of known devices: a file of JSON lines, one device per line, read again when it changes.

    {"device": "pump-1", "profile": "pump", "tags": {"site": "berlin"}}

Lines are only added (`tidegate device add`); the last line of a device counts. A line that cannot be read rejects the
whole file, and the previous content stays in use.
"""

import logging
import os
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

import msgspec

from gateway.file_watch import FolderWatch, file_stamp
from gateway.safe_text import show_text
from gateway.topic_filters import id_fault
from ingest.contract.dead_letter import Reject
from ingest.contract.errors import ConfigError
from ingest.contract.reasons import Reason

__all__ = [
    "DeviceRegistry",
    "RegisteredDevice",
    "add_device",
    "identity_fault",
    "make_entry",
    "names_device",
    "read_registry",
]

logger = logging.getLogger("tidegate.gateway")
MAX_ID_BYTES: Final = 4096
MAX_TAG_BYTES: Final = 256
_MAC_OR_EUI = re.compile("[0-9a-f]{12}(?:[0-9a-f]{4})?")


class RegisteredDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the registry. `tags` are added to the device's readings; tags of a route or a message win over them."""

    device: str
    profile: str | None = None
    tags: dict[str, str] = {}


class DeviceRegistry:
    """Registered devices by id, replaced as a whole between two messages."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: the file does not exist, or a line is wrong; the text names the line.
        """
        self._path = path
        self._watch = FolderWatch(lambda: {path.name: file_stamp(path.stat())})
        self.refused: str | None = None
        try:
            stamp = file_stamp(path.stat())
            self.devices = read_registry(path)
        except OSError as error:
            message = (
                f"{path}: cannot read the device registry ({error.strerror}): create it with `tidegate device add ID`, "
                "or correct gateway.device_registry"
            )
            raise ConfigError(message) from error
        self._watch.take({path.name: stamp})

    def profiles(self) -> set[str]:
        """Profiles that devices name."""
        return {one.profile for one in self.devices.values() if one.profile is not None}

    def refresh(self, known_profiles: Set[str]) -> bool:
        """Look for a change; True if `devices` was replaced. Never raises."""
        try:
            stamps = self._watch.changed()
            if stamps is None:
                return False
            devices = read_registry(self._path)
            if file_stamp(self._path.stat()) != stamps[self._path.name]:
                return False  # it changed while it was read: the next look finds the change
            self._watch.take(stamps)
            fault = unknown_profile(devices, known_profiles)
        except OSError as error:
            devices, fault = {}, f"cannot read it ({error.strerror})"
        except ConfigError as error:
            self._watch.take(stamps or {})
            devices, fault = {}, str(error)
        if fault is not None:
            if fault != self.refused:
                logger.error("Rejected the changed registry %s. The previous one stays in use: %s", self._path, fault)
            self.refused = fault
            return False
        self.refused, self.devices = None, devices
        logger.info("%d devices are registered in %s", len(devices), self._path)
        return True


def unknown_profile(devices: dict[str, RegisteredDevice], known: Set[str]) -> str | None:
    """Return a sentence about the first device whose profile does not exist; None if there is none."""
    for one in devices.values():
        if one.profile is not None and one.profile not in known:
            device, profile = show_text(one.device), show_text(one.profile)
            return f"device {device} names profile {profile}, but no file of the folder has that profile"
    return None


_line_decoder: Final = msgspec.json.Decoder(RegisteredDevice)


def read_registry(path: Path) -> dict[str, RegisteredDevice]:
    """Return the devices of a registry file, by id.

    Raises:
        OSError: the file cannot be read.
        ConfigError: a line is not a device; the text names the line.
    """
    devices: dict[str, RegisteredDevice] = {}
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found = _line_decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wanted = '{"device": ID, "profile": NAME, "tags": {…}} (profile and tags are optional)'
            message = f"{path}:{number}: wanted {wanted}: {error}"
            raise ConfigError(message) from error
        fault = _fault(found)
        if fault is not None:
            message = f"{path}:{number}: {fault}"
            raise ConfigError(message)
        devices[found.device] = found
    return devices


def add_device(path: Path, device: str, *, profile: str | None = None, tags: dict[str, str] | None = None) -> bool:
    """Register a device, or change its entry from now on; False if the file already has this entry.

    It appends one line and syncs it to disk; a running gateway reads it within about two seconds. Creates the file.

    Raises:
        ConfigError: the id, a tag or the file is wrong.
        OSError: the file cannot be written.
    """
    entry = make_entry(device, profile, tags or {})
    if path.exists() and read_registry(path).get(device) == entry:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # One write in append mode: two commands at the same time add two whole lines.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640), "rb+", buffering=0) as out:
        size = os.fstat(out.fileno()).st_size
        ends_open = size > 0 and os.pread(out.fileno(), 1, size - 1) != b"\n"
        out.write(b"\n" * ends_open + msgspec.json.encode(entry) + b"\n")
        os.fsync(out.fileno())
    return True


def make_entry(device: str, profile: str | None, tags: Mapping[str, str]) -> RegisteredDevice:
    """Return the entry of a device.

    Raises:
        ConfigError: the id or a tag is wrong.
    """
    entry = RegisteredDevice(device, profile, dict(tags))
    fault = _fault(entry)
    if fault is not None:
        raise ConfigError(fault)
    return entry


def names_device(claim: str, *ids: str) -> bool:
    """Return whether a text is one of the ids: colons and case of a MAC or EUI do not count. Other ids are compared exactly."""
    if claim in ids:
        return True
    bare = claim.replace(":", "").lower()
    return _MAC_OR_EUI.fullmatch(bare) is not None and bare in [text.replace(":", "").lower() for text in ids]


def identity_fault(topic_device: str, claimed: object, path: str) -> Reject | None:
    """Return why the device in a payload is not the topic's; None if they agree or the payload names none (null).

    Ids are compared as text, character by character; a whole number in the payload counts as its digits.
    """
    if claimed is None or claimed == topic_device:
        return None
    if isinstance(claimed, int) and not isinstance(claimed, bool) and str(claimed) == topic_device:
        return None
    got = show_text(claimed) if isinstance(claimed, str) else show_text(repr(claimed))
    return Reject(Reason.IDENTITY_MISMATCH, path, got, f"{show_text(topic_device)}, the device of the topic")


def _fault(entry: RegisteredDevice) -> str | None:
    wanted = id_fault(entry.device, MAX_ID_BYTES)
    if wanted is not None:
        return f"device {show_text(entry.device)!r} is not a valid device id: wanted {wanted}"
    for key, value in entry.tags.items():
        wanted = id_fault(key, MAX_TAG_BYTES) or (id_fault(value, MAX_TAG_BYTES) if value else None)
        if wanted is not None:
            return f"tag {show_text(key)}={show_text(value)} of device {show_text(entry.device)}: wanted {wanted}"
    return None
