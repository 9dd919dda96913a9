"""Findings about places on this machine: the tables' folder, the checkpoint, disks, and files that the settings name."""

import os
import shutil
import socket
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.local.preflight import DISK_NEEDED_BYTES, PreflightCheck
from deploy.settings import Settings
from lakehouse.object_store import IMPATIENT, is_s3, put_object
from lakehouse.paths import is_local, to_path

__all__ = ["check_places", "check_spark"]

_YARN_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_SHARED: Final = stat.S_IRWXG | stat.S_IRWXO


def check_places(settings: Settings) -> Iterator[PreflightCheck]:
    """Yield the findings; it writes a small folder where the tables will be, and removes it."""
    root, checkpoint = settings.lake.root, settings.stream.checkpoint
    if is_local(root):
        yield _writable("tables", "lake.root", to_path(root))
    else:
        yield _remote(settings)
    if is_local(checkpoint):
        yield _writable("checkpoint", "stream.checkpoint", to_path(checkpoint))
    places = {"lake.root": root, "stream.checkpoint": checkpoint}
    yield from _disks({name: to_path(uri) for name, uri in places.items() if is_local(uri)})
    yield from _files(settings)


def _remote(settings: Settings) -> PreflightCheck:
    """Write, read and delete a small object; Spark's own client is tested by the stream when it starts."""
    root = settings.lake.root
    if not is_s3(root):
        text = f"{root} is not on this machine, so this check did not write there"
        fix = "Start the stream: it fails at its first commit if it may not write."
        return PreflightCheck("tables", "warn", text, fix)
    name, content = f"_tidegate/doctor-{uuid.uuid4().hex[:8]}", b"{}"
    try:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        files = PyFileSystem(DeltaStorageHandler(root, options=IMPATIENT))
        put_object(root, name, content, IMPATIENT)
        with files.open_input_stream(name) as stream:
            is_same = stream.readall() == content
        files.delete_file(name)
    except Exception as error:
        text = f"cannot write to {root} ({' '.join(str(error).split())[:300]})"
        fix = "Check lake.root, lake.s3_endpoint, lake.s3_region, the keys, and the rights to the bucket."
        return PreflightCheck("tables", "fail", text, fix)
    if not is_same:
        return PreflightCheck("tables", "fail", f"{root} returns another content than was written", "Check the store.")
    return PreflightCheck(
        "tables", "ok", f"{root} is writable; the stream tests the store's conditional puts when it starts"
    )


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    whole = path.expanduser().absolute()
    return next(parent for parent in (whole, *whole.parents) if parent.exists())


def _writable(name: str, setting: str, path: Path) -> PreflightCheck:
    """Do what a commit does: create a file that must not exist, sync it, and move it to its final name."""
    there = _existing(path)
    trial = there / f".tidegate-doctor-{uuid.uuid4().hex[:8]}"
    created = "" if there == path.expanduser().absolute() else f" (it is created in {there})"
    fix = f"Let this user write there, or name another folder in {setting}."
    try:
        trial.mkdir(mode=0o700)
        _commit(trial)
    except OSError as error:
        return PreflightCheck(name, "fail", f"{path}: cannot write to {there} ({error.strerror or error})", fix)
    except _NotAtomicError as error:
        text = f"{path}: the file system {error}, so two writers could overwrite each other's commits"
        return PreflightCheck(name, "fail", text, f"Name a folder on a local disk in {setting}.")
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return PreflightCheck(name, "ok", f"{path} is writable, with atomic create and rename{created}")


class _NotAtomicError(Exception):
    """The file system lacks what a commit needs; the text says what it does, after `the file system`."""


def _commit(folder: Path) -> None:
    first, final = folder / "0.part", folder / "0.json"
    with first.open("xb") as out:
        out.write(b"{}")
        out.flush()
        os.fsync(out.fileno())
    with suppress(FileExistsError):
        first.open("xb").close()
        message = "lets a second process create a file that exists"
        raise _NotAtomicError(message)
    os.replace(first, final)
    if first.exists() or final.read_bytes() != b"{}":
        message = "does not rename a file in one step"
        raise _NotAtomicError(message)


def _disks(places: dict[str, Path]) -> Iterator[PreflightCheck]:
    """Yield the free space of each disk once."""
    seen: set[int] = set()
    for setting, path in places.items():
        folder = _existing(path)
        disk = os.stat(folder).st_dev
        if disk in seen:
            continue
        seen.add(disk)
        used = shutil.disk_usage(folder)
        text = f"{used.free / 1024**3:.1f} GB of {used.total / 1024**3:.1f} GB free at {folder} ({setting})"
        if used.free >= DISK_NEEDED_BYTES:
            yield PreflightCheck("disk", "ok", text)
        else:
            yield PreflightCheck(
                "disk", "warn", text, f"Free some space, or name a folder on another disk in {setting}."
            )


def _files(settings: Settings) -> Iterator[PreflightCheck]:
    """Yield a finding for each file or folder of the settings that is missing, unreadable or open to others."""
    gateway, monitoring = settings.gateway, settings.monitoring
    folders = {"gateway.profiles": gateway.profiles, "gateway.decoders": gateway.decoders}
    files = {
        "gateway.device_registry": gateway.device_registry,
        "monitoring.page_token_file": monitoring.page_token_file,
    }
    found = [
        *(_missing(setting, path, is_folder=True) for setting, path in folders.items() if path),
        *(_missing(setting, path, is_folder=False) for setting, path in files.items() if path),
        _session_folder(settings),
        *(_open_secret(getattr(monitoring, name)) for name in ("page_token_file", "read_token_file")),
    ]
    yield from (check for check in found if check is not None)


def _missing(setting: str, text: str, *, is_folder: bool) -> PreflightCheck | None:
    path = Path(text)
    kind = "folder" if is_folder else "file"
    if path.is_dir() if is_folder else path.is_file():
        if os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
            return None
        return PreflightCheck("files", "fail", f"{setting}: this user may not read {path}", "Check its permissions.")
    return PreflightCheck(
        "files", "fail", f"{setting}: there is no {kind} {path}", f"Create the {kind}, or correct {setting}."
    )


def _session_folder(settings: Settings) -> PreflightCheck | None:
    if settings.mqtt.session_file is None:
        return None
    folder = Path(settings.mqtt.session_file).expanduser().absolute().parent
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return None
    text = f"mqtt.session_file: this user cannot write to {folder}"
    return PreflightCheck("files", "warn", text, "Create the folder for this user, or correct mqtt.session_file.")


def _open_secret(text: str | None) -> PreflightCheck | None:
    if text is None or not Path(text).is_file() or not os.stat(text).st_mode & _SHARED:
        return None
    return PreflightCheck("files", "warn", f"other users may read the token in {text}", f"Run `chmod 600 {text}`.")


def check_spark(settings: Settings, *, timeout_seconds: float) -> Iterator[PreflightCheck]:
    """Yield what a master other than a local one needs: it answers or is named, and executors reach the tables."""
    master = settings.stream.master
    if master.startswith("local"):
        return
    places = {"lake.root": settings.lake.root, "stream.checkpoint": settings.stream.checkpoint}
    if own := [f"{name} {uri}" for name, uri in places.items() if is_local(uri)]:
        text = f"executors of {master} on other machines do not reach {' and '.join(own)}"
        fix = "Name URIs such as s3a://BUCKET/tables, or folders that all machines share under the same path."
        yield PreflightCheck("spark", "warn", text, fix)
    if master == "yarn":
        yield from _yarn()
    elif master.startswith("spark://"):
        yield _standalone(master, timeout_seconds)


def _yarn() -> Iterator[PreflightCheck]:
    if not any(os.environ.get(name) for name in _YARN_FOLDERS):
        text = f"stream.master is yarn, and neither {' nor '.join(_YARN_FOLDERS)} is set: Spark does not start"
        yield PreflightCheck("spark", "fail", text, "Set HADOOP_CONF_DIR to the folder with yarn-site.xml.")


def _standalone(master: str, timeout_seconds: float) -> PreflightCheck:
    silent = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_seconds).close()
        except (OSError, ValueError) as error:
            silent.append(f"{address} ({error})")
        else:
            return PreflightCheck("spark", "ok", f"the master at {address} answers")
    text = f"no Spark master answers: {', '.join(silent)}"
    return PreflightCheck("spark", "fail", text, "Start the master, or correct stream.master (spark://HOST:PORT).")
