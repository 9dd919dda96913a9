"""Folder of profiles: read at start, read again when it changes; the old profiles stay if the new ones are bad.

A bad file gives sentences that say where it is wrong, what was wanted, and what was probably meant.
"""

import difflib
import logging
import os
import stat
import tomllib
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.file_watch import FileStamp, FolderWatch, file_stamp
from gateway.profiles.model import Failure, MetricRules, Profile
from gateway.profiles.profile_set import ProfileSet
from gateway.profiles.units import DIMENSIONS
from ingest.contract.errors import ConfigError

__all__ = ["MAX_FILE_BYTES", "BadProfile", "LoadedProfile", "ProfileFolder", "parse_profile"]

logger = logging.getLogger("tidegate.gateway")
MAX_FILES: Final = 10_000
MAX_FILE_BYTES: Final = 1024 * 1024


class LoadedProfile(NamedTuple):
    """A profile and the name of its file."""

    file: str
    profile: Profile


class ProfileFolder:
    """Files `*.toml` of one folder; names that begin with a dot are skipped.

    `current` is replaced as a whole, between two messages: no message sees half of a change. A bad file keeps its previous
    content; each file counts by itself, so a bad one does not affect the others.
    """

    def __init__(self, path: Path, *, needed: Iterable[str] = (), strict: bool = True) -> None:
        """Read the folder.

        Args:
            path: the folder.
            needed: names in routes: a change that removes one is rejected.
            strict: False to read a folder with bad files in it; they are in `refused`.

        Raises:
            ConfigError: the folder cannot be read, a file is not a profile, a needed name is missing. Every fault at once.
        """
        self._path, self._needed = path, frozenset(needed)
        self._watch = FolderWatch(self._stamps)
        self._files: dict[str, tuple[FileStamp, Profile]] = {}
        self.refused: dict[str, str] = {}
        # The caller reports faults at the start.
        self._is_told = False
        self.current = ProfileSet()
        try:
            stamps = self._stamps()
        except OSError as error:
            message = (
                f"{path}: cannot read the folder of profiles ({error.strerror}): create it, or correct the setting"
            )
            raise ConfigError(message) from error
        if not self._load(stamps) and stamps and not self.refused:
            message = f"{path}: a file changed while it was read; start again"
            raise ConfigError(message)
        missing = sorted(self._needed - set(self.current.names()))
        faults = [f"{path / name}: {fault}" for name, fault in self.refused.items()]
        faults += [f"{path}: a route names profile {name!r}, but no file here has it" for name in missing]
        if faults and strict:
            raise ConfigError("\n".join(faults))
        self._is_told = True

    def files(self) -> list[LoadedProfile]:
        """Every version that could be read, by name and version."""
        found = [LoadedProfile(file, profile) for file, (_stamp, profile) in self._files.items()]
        return sorted(found, key=lambda one: (one.profile.name, one.profile.version))

    def need(self, names: Set[str]) -> None:
        """Note the names that routes use from now on: a change that removes one is rejected.

        Raises:
            ConfigError: a name is missing.
        """
        missing = sorted(names - set(self.current.names()))
        if missing:
            message = f"{self._path}: a route names profile {missing[0]!r}, but no file here has it"
            raise ConfigError(message)
        self._needed = frozenset(names)

    def refresh(self, *, needed: Iterable[str] = ()) -> bool:
        """Look for changes; True if `current` was replaced. Never raises.

        Args:
            needed: names that must stay in addition to those of the routes.
        """
        try:
            stamps = self._watch.changed()
        except OSError as error:
            self._tell_refused({**self.refused, "": f"cannot read the folder ({error.strerror})"})
            return False
        self.refused.pop("", None)
        return stamps is not None and self._load(stamps, self._needed | set(needed))

    def _stamps(self) -> dict[str, FileStamp]:
        with os.scandir(self._path) as entries:
            found = [entry for entry in entries if entry.name.endswith(".toml") and not entry.name.startswith(".")]
        return {entry.name: _stamp(entry) for entry in sorted(found, key=lambda one: one.name)[:MAX_FILES]}

    def _load(self, stamps: dict[str, FileStamp], needed: Set[str] = frozenset()) -> bool:
        refused: dict[str, str] = {}
        files: dict[str, tuple[FileStamp, Profile]] = {}
        for file, stamp in stamps.items():
            old = self._files.get(file)
            if old is not None and old[0] == stamp:
                files[file] = old
                continue
            try:
                files[file] = stamp, parse_profile(_read(self._path / file, stamp))
            except _ChangedMeanwhileError:
                return False  # the next look finds it
            except (OSError, BadProfile) as error:
                refused[file] = str(error)
                if old is not None:
                    files[file] = old
        self._keep_needed(files, refused, needed)
        self._drop_copies(files, refused)
        self._watch.take(stamps)
        if self._is_told:
            self._tell_refused(refused)
        self.refused = refused
        return self._replace(files)

    def _keep_needed(
        self, files: dict[str, tuple[FileStamp, Profile]], refused: dict[str, str], needed: Set[str]
    ) -> None:
        """Put back a profile that a route or a registered device still names but no file has any longer."""
        for name in needed - {profile.name for _stamp, profile in files.values()}:
            for file, old in self._files.items():
                if old[1].name == name:
                    files[file] = old
                    refused[file] = f"profile {name!r} is no longer in it, but a route or a registered device names it"

    def _drop_copies(self, files: dict[str, tuple[FileStamp, Profile]], refused: dict[str, str]) -> None:
        """Keep one file for each version of a name: the one that had it before, else the first by its name."""
        owners: dict[str, str] = {}
        for file in sorted(files, key=lambda one: (files[one] is not self._files.get(one), one)):
            label = files[file][1].label
            if label in owners:
                refused[file] = (
                    f"{label} is already in {owners[label]}; raise the version or remove one of the two files"
                )
                del files[file]
            else:
                owners[label] = file

    def _replace(self, files: dict[str, tuple[FileStamp, Profile]]) -> bool:
        before = [one.profile for one in self.files()]
        self._files = files
        after = [one.profile for one in self.files()]
        if before == after:
            return False
        was = {profile.name: profile for profile in self.current.active()}
        self.current = ProfileSet(after)
        for profile in self.current.active():
            old = was.pop(profile.name, None)
            if old is not None and old != profile and old.version == profile.version:
                logger.warning(
                    "Profile %s changed but kept its version. Raise the version, so that the two differ.", profile.label
                )
            elif old != profile:
                logger.info("Profile %s applies%s.", profile.label, f" instead of {old.label}" if old else "")
        for profile in was.values():
            logger.info("Profile %s no longer applies.", profile.label)
        return True

    def _tell_refused(self, refused: dict[str, str]) -> None:
        """Log each rejection once."""
        for file, fault in refused.items():
            if self.refused.get(file) != fault:
                logger.error("Rejected %s. Its previous content stays in use: %s", self._path / file, fault)
        self.refused = refused


class BadProfile(ValueError):
    """A file that is not a profile; the text is one sentence per fault, without the file's name."""


class _ChangedMeanwhileError(Exception):
    """The file changed while it was read."""


def _stamp(entry: os.DirEntry[str]) -> FileStamp:
    try:
        return file_stamp(entry.stat())
    except OSError:  # a broken link: reading it reports that
        return FileStamp(0, 0, 0)


def _read(file: Path, stamp: FileStamp) -> bytes:
    # Opening a pipe would wait for its writer.
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            message = "it is not a regular file; put the profile itself here, or a link to it"
            raise BadProfile(message)
        if found.st_size > MAX_FILE_BYTES:
            message = f"the file has {found.st_size} bytes; wanted at most {MAX_FILE_BYTES}: is it a profile?"
            raise BadProfile(message)
        content = opened.read(MAX_FILE_BYTES + 1)
        if file_stamp(os.fstat(opened.fileno())) != stamp:
            raise _ChangedMeanwhileError
    return content


def parse_profile(content: bytes) -> Profile:
    """Return the profile of a file; a byte order mark and CRLF line ends are fine.

    Raises:
        BadProfile: not UTF-8, not TOML, an unknown key, a wrong value; every fault at once.
    """
    if len(content) > MAX_FILE_BYTES:
        message = f"the file has {len(content)} bytes; wanted at most {MAX_FILE_BYTES}"
        raise BadProfile(message)
    try:
        values = tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not UTF-8; save the file as UTF-8"
        raise BadProfile(message) from error
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        message = f"not valid TOML: {error}"
        raise BadProfile(message) from error
    try:
        return Profile.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        raise BadProfile("; ".join(_sentence(fault, values) for fault in faults)) from error


def _sentence(fault: ErrorDetails, values: dict[str, Any]) -> str:
    where = [str(part) for part in fault["loc"] if part != "[key]"]
    path = ".".join(where)
    if fault["type"] == "extra_forbidden":
        return f"unknown key {path}{_near(where[-1], _known(fault['loc']))}"
    if fault["type"] == "missing":
        return f"{path} is missing"
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "literal_error":
        allowed = get_args(Failure) if "[key]" in fault["loc"] else ()
        text = f"{text[:1].lower()}{text[1:]}{_near(str(fault['input']), allowed)}"
    elif "not a listed unit" in text:
        written = text.split("'")[1]
        text += _near(written, [unit for units in DIMENSIONS.values() for unit in units])
    elif fault["type"] != "value_error":
        text = f"{text[:1].lower()}{text[1:]}, not {str(fault['input'])[:60]!r}"
    return f"{path}: {text}" if path else text


def _known(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = MetricRules if len(loc) > 2 and loc[0] == "metrics" else Profile
    return list(model.model_fields)


def _near(text: str, known: Any) -> str:
    found = [one for one in known if one.lower() == text.lower()]
    found = found or difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    if found:
        return f"; did you mean {found[0]}?"
    return f" (known: {', '.join(known)})" if len(known) <= 24 and known else ""
