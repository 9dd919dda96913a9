"""A first settings file for production: from values to a commented, checked TOML file, and the steps that follow."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from deploy.command_line import command_name
from deploy.kafka_users import acl_arguments
from deploy.production.imported import LeftOut
from deploy.production.questions import PAGE_LOGIN, Values, complete
from deploy.settings import Settings, environment_name, load_settings
from deploy.settings_check import check_settings
from deploy.settings_file import check_absent, to_commented_toml, write_new
from ingest.contract.errors import ConfigError, TidegateError
from ingest.topics.copies import read_copies, wanted_copies
from lakehouse.paths import is_local, to_path

__all__ = ["FirstFile", "find_replication", "steps_text", "write_first_file"]

BROKERS_SECONDS: Final = 5.0
_SECRETS: Final = {
    "mqtt.password": ("mqtt.username", "password of the MQTT user {}"),
    "kafka.sasl_password": ("kafka.sasl_username", "password of the Kafka user {}"),
}
"""Secret to the setting that needs it, and words for it."""


@dataclass(frozen=True, slots=True)
class FirstFile:
    """A written file.

    Attributes:
        file: its path.
        secrets: environment variable to a description of its secret.
        left_out: keys of an imported file that it lacks.
        settings: as the file has them.
    """

    file: Path
    secrets: Mapping[str, str]
    left_out: Sequence[LeftOut]
    settings: Settings

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {
            "file": str(self.file),
            "environment": dict(self.secrets),
            "left_out": [asdict(one) for one in self.left_out],
            "replication": self.settings.kafka.replication,
            "next": [command for _why, commands in next_steps(self.file, self.settings) for command in commands],
        }


def find_replication(values: Mapping[str, Any]) -> int | None:
    """Return the copies that fit the cluster of these values: 3, or one per broker; None if it does not answer.

    A password is taken from the environment, as the hops do.
    """
    from ingest.topics.admin import admin_client

    try:
        overrides = {path: value for path, value in values.items() if path.startswith("kafka.")}
        kafka = load_settings(overrides=overrides).kafka
        found = read_copies(admin_client(kafka), kafka, timeout_seconds=BROKERS_SECONDS)
    except TidegateError:
        return None
    return wanted_copies(kafka.model_copy(update={"replication": None}), found.brokers).replication


def write_first_file(
    file: Path,
    values: Values,
    *,
    overwrite: bool,
    head: Sequence[str] = (),
    tables: Mapping[str, Any] | None = None,
    left_out: Sequence[LeftOut] = (),
) -> FirstFile:
    """Check the values and write them. A file with a wrong value is never written.

    Args:
        file: where to write.
        values: answers, flat.
        overwrite: replace an existing file.
        head: comments at the top.
        tables: sections that are lists or tables of tables, such as `routes`.
        left_out: keys of an imported file without a counterpart.

    Raises:
        ConfigError: a value is wrong, or the file exists or cannot be written.
    """
    if not overwrite:
        check_absent(file)
    whole = complete(values)
    settings = load_settings(overrides={**whole, **(tables or {})}, environ={})
    check_settings(settings)
    secrets = {secret: environment_name(secret) for secret, (user, _) in _SECRETS.items() if whole.get(user)}
    comments = [*head, *(f"Not taken: {one.key}: {one.reason}" for one in left_out)]
    text = to_commented_toml(
        _by_section(whole, settings) | dict(tables or {}), Settings, secrets=secrets, head=comments
    )
    _check_text(text, settings)
    write_new(file, text, overwrite=overwrite)
    words = {
        environment_name(secret): words.format(whole[user])
        for secret, (user, words) in _SECRETS.items()
        if whole.get(user)
    }
    return FirstFile(file, words, tuple(left_out), settings)


def _by_section(values: Values, settings: Settings) -> dict[str, Any]:
    """Return the same settings by section, with the types that the settings gave them."""
    sections: dict[str, Any] = {}
    for path in values:
        section, _, field = path.partition(".")
        value = getattr(getattr(settings, section), field)
        if isinstance(value, SecretStr):
            message = f"{path} is a secret, which this file never holds. Set the environment variable {environment_name(path)}."
            raise ConfigError(message)
        sections.setdefault(section, {})[field] = value
    return sections


def _check_text(text: str, settings: Settings) -> None:
    """Compare the file with the settings that it must hold, so that a value with odd characters is never written wrong."""
    if Settings.model_validate(tomllib.loads(text)) != settings:
        message = "The values cannot be written as TOML. Report this as a fault, and write the file by hand."
        raise ConfigError(message)


def next_steps(file: Path, settings: Settings) -> Iterator[tuple[str, list[str]]]:
    """Yield each step after the file is written, with its commands."""
    name, where = command_name(), f"--config {shlex.quote(str(file))}"
    yield "Create the folders of the state, for the user who runs the processes", _folder_commands(settings)
    yield (
        "As an administrator of Kafka, show the rights that the user needs, and grant them with --apply",
        [f"{name} topics acl {acl_arguments(settings)} {where}"],
    )
    yield "Check this machine and the servers", [f"{name} doctor {where}"]
    hops = [f"{name} gateway {where}", f"{name} stream {where} --log-dir /var/log/tidegate"]
    yield "Start each hop under a supervisor", [*hops, f"{name} monitor {where}", f"{name} canary {where}"]
    yield "Ask the pipeline", [f"{name} status {where}"]


def _folder_commands(settings: Settings) -> list[str]:
    """Return the commands that create the folders, and the page's token if the settings name a file for it."""
    local = [to_path(uri) for uri in (settings.lake.root, settings.stream.checkpoint) if is_local(uri)]
    session = [Path(settings.mqtt.session_file).parent] if settings.mqtt.session_file else []
    folders = sorted({shlex.quote(str(folder)) for folder in (*session, *local)})
    token = getattr(settings.monitoring, PAGE_LOGIN)
    made = [f"(umask 077; openssl rand -hex 32 > {shlex.quote(str(token))})"] if token else []
    return [f"mkdir -p {' '.join(folders)}", *made]


def steps_text(made: FirstFile) -> str:
    """Return what to do next, as numbered lines."""
    steps: list[tuple[str, list[str]]] = []
    if made.secrets:
        width = max(map(len, made.secrets))
        lines = [f"{variable.ljust(width)}  {words}" for variable, words in made.secrets.items()]
        steps.append(
            ("Set the secrets in the environment of each command and process. The file does not hold them", lines)
        )
    steps += next_steps(made.file, made.settings)
    lines = []
    for number, (why, commands) in enumerate(steps, 1):
        lines += [f"{number}. {why}:", *(f"     {command}" for command in commands)]
    if made.settings.kafka.replication is None:
        lines.append(
            "Kafka did not answer with these settings, so the file names no number of copies. The gateway's first start chooses "
            "3, or one per broker where there are fewer."
        )
    return "\n".join(lines)
