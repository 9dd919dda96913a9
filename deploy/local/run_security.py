"""Decision for or against a secured embedded run, and the settings files of its parts.

A plain run loads nothing of a secured one: deploy/local/secured_run.py is imported where it is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.broker import BrokerTls
from deploy.local.kafka import KafkaProfile
from deploy.local.run_logins import RunLogins, is_secured
from deploy.local.runfile import RunFile
from deploy.settings import Settings
from deploy.settings_file import to_toml, write_private

__all__ = ["ConfigFiles", "decide_security", "make_security", "write_settings"]

_STAYS_SECURED: Final = (
    "security:   this folder was secured by `up --secure`, so the run is secured. For a run without TLS and logins, name another "
    "folder with --data."
)


@dataclass(frozen=True)
class ConfigFiles:
    """Settings files of a run: one for all parts, or in a secured run one for each, so that each knows its own logins only.

    Attributes:
        shared: file of the commands, and of each part without a file of its own.
        by_part: files of parts; empty in a plain run.
        logins: private file with all passwords of the run.
    """

    shared: Path
    by_part: Mapping[str, Path]
    logins: Path

    @property
    def secured(self) -> bool:
        """Return whether the run is secured."""
        return bool(self.by_part)

    def of(self, part: str) -> str:
        """Return the file that this part is started with."""
        return str(self.by_part.get(part, self.shared))


def decide_security(settings: Settings, data: Path, run: RunFile, remarks: list[str], *, asked: bool) -> bool:
    """Return whether the run is secured: as asked for, or because its folder was secured once. `remarks` says the latter.

    Raises:
        TidegateError: it is, and this machine or the settings do not allow it.
    """
    was_secured = is_secured(data, data / run.credentials)
    if not (asked or was_secured):
        return False
    from deploy.local.secured_run import check_secured

    check_secured(settings, data, was_secured=was_secured)
    if not asked:
        remarks.append(_STAYS_SECURED)
    return True


def make_security(data: Path, ports: Mapping[str, int]) -> tuple[BrokerTls, KafkaProfile]:
    """Make the certificates of a secured run; return the TLS of its MQTT broker and the profile of its Kafka."""
    from deploy.local.secured_run import broker_tls, kafka_profile, make_run_certificates

    make_run_certificates(data)
    return broker_tls(data), kafka_profile(data, ports)


def write_settings(settings: Settings, data: Path, run: RunFile, logins: RunLogins) -> ConfigFiles:
    """Write config.toml, and in a secured run the files of its parts; note their names in `run`."""
    shared, parts = data / run.config, {}
    write_private(shared, to_toml(settings))
    if logins.kafka:
        from deploy.local.secured_run import part_settings

        parts = part_settings(settings, data, run.ports, logins)
    by_part = {part: data / f"config-{part}.toml" for part in parts}
    for part, file in by_part.items():
        write_private(file, to_toml(parts[part]))
    run.part_configs = [file.name for file in by_part.values()]
    return ConfigFiles(shared, by_part, data / run.credentials)
