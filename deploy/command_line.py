"""Commands in messages, completed so that the reader can run them: with the program's name and the run or settings."""

import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["TAKES_CONFIG", "TAKES_DATA", "CommandLine", "command_name", "commands_for_data", "commands_for_options"]

_BOTH: Final = frozenset(
    {"audit", "backup", "correct", "device", "dlq", "doctor", "erase", "export", "groups", "maintain", "produce", "profile",
     "repair", "restore", "rewind", "route", "sql", "status", "streams", "tables", "tail", "topics", "trace"}
)  # fmt: skip
TAKES_DATA: Final = _BOTH | {"down", "logs", "up"}
"""First words of commands that find an embedded run by `--data`."""
TAKES_CONFIG: Final = _BOTH | {"alerts", "canary", "decode", "gateway", "make-topics", "monitor", "stream"}
"""First words of commands that read a pipeline's settings by `--config`."""
_COMMAND: Final = re.compile(r"`tidegate (([a-z-]+)[^`]*)`")
_PLACEHOLDER: Final = re.compile(r" --config (?:FILE|…)")
_NAMED: Final = re.compile(r" --(?:data|config)\b")


def command_name() -> str:
    """Return the name under which the user can run the program."""
    return "tidegate" if shutil.which("tidegate") else "./tidegate"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Text before and after the words of a command.

    Attributes:
        name: name of the program.
        where: `--data DIR`, `--config FILE`, or empty for the default.
    """

    name: str = "tidegate"
    where: str = ""

    def fill(self, text: str) -> str:
        """Complete the commands in backticks in a text; those that already name a run or a file keep it."""
        return _COMMAND.sub(lambda found: f"`{self._whole(found[1], found[2])}`", text)

    def _whole(self, words: str, first: str) -> str:
        if not self.where or first not in self._takes:
            return f"{self.name} {words}"
        bare = _PLACEHOLDER.sub("", words)
        return f"{self.name} {bare}" if _NAMED.search(bare) else f"{self.name} {bare} {self.where}"

    def fill_alerts(self, alerts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Complete the commands in the texts and steps of alerts."""
        return [
            {
                **alert,
                **({"text": self.fill(alert["text"])} if "text" in alert else {}),
                **({"actions": [self.fill(step) for step in alert["actions"]]} if "actions" in alert else {}),
            }
            for alert in alerts
        ]

    @classmethod
    def of_dict(cls, found: Mapping[str, str]) -> "CommandLine":
        """Return the command line of an `as_dict`, of this version or another one."""
        return cls(**{name: found[name] for name in ("name", "where") if name in found})

    def as_dict(self) -> dict[str, str]:
        """Return the form for the page; `takes` has the first words of commands to which `where` belongs."""
        return {"name": self.name, "where": self.where, "takes": " ".join(sorted(self._takes))}

    @property
    def _takes(self) -> frozenset[str]:
        return TAKES_CONFIG if self.where.startswith("--config") else TAKES_DATA


def commands_for_data(data: Path, *, is_default: bool = False) -> CommandLine:
    """Return commands on an embedded run, for a user in any folder; they do not name the default run."""
    return CommandLine(command_name(), "" if is_default else f"--data {shlex.quote(str(data))}")


def commands_for_options(config: Path | None, data: Path | None) -> CommandLine:
    """Return commands on the same run or settings as a command with these options."""
    if config is not None:
        return CommandLine(command_name(), f"--config {shlex.quote(str(config))}")
    return CommandLine(command_name(), f"--data {shlex.quote(str(data))}" if data is not None else "")
