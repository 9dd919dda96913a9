"""Files of `tidegate export systemd`: a unit per part, a target for all of them, the system user, and a README.

The units hold no secret: systemd passes each one to its part as a credential, a file that only this part can read.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from deploy.export.parts import ProductionPart, input_paths, production_parts, secret_extras, secret_settings
from deploy.kafka_users import rights_section
from deploy.settings import Settings

__all__ = ["PROGRAM", "USER", "systemd_files"]

PROGRAM: Final = "/opt/tidegate/.venv/bin/tidegate"
"""Where the README installs the command."""
USER: Final = "tidegate"
STATE: Final = PurePosixPath("/var/lib/tidegate")
SETTINGS: Final = "/etc/tidegate/tidegate.toml"
ENVIRONMENT: Final = "/etc/tidegate/tidegate.env"
CREDENTIALS: Final = "/etc/tidegate/credentials"
LOGS: Final = "/var/log/tidegate"
START_SECONDS: Final = 120
"""A part is ready within seconds; all four start at once on a machine that has just booted."""
WATCHDOG_SECONDS: Final = 60
"""As patient as the liveness probe of the Helm chart."""
_HIDDEN_HOMES: Final = ("/home", "/root", "/run/user")
"""Folders that ProtectHome=yes hides."""
_HARDENING: Final = """\
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
LockPersonality=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0027
"""

_TARGET: Final = """\
# Written by `tidegate export systemd`. Run it again with --force to replace this file.
[Unit]
Description=Tidegate: sensor readings from MQTT through Kafka into Delta tables

[Install]
WantedBy=multi-user.target
"""

_README: Final = """\
# Tidegate under systemd

| file | content |
|---|---|
{rows}
| `tidegate.target` | starts and stops all of them |
| `tidegate.sysusers` | the system user {user}, without a login |

The units hold what the settings say: memory, folders, users and their secrets. Export again with `--force` after such a change.

## Install

As root, with a checkout of Tidegate in {checkout}; it needs Python 3.11 or newer:

    cd {checkout}
    XDG_CACHE_HOME=/var/cache make setup

It creates `.venv`, fetches the jars that Spark needs into /var/cache/tidegate, and a Java if this machine has none. Then, in the
folder of these files:

    install -m 0644 tidegate.sysusers /etc/sysusers.d/tidegate.conf
    systemd-sysusers
    install -d -m 0750 -g {user} /etc/tidegate
    install -d -m 0700 {credentials}
    install -m 0640 -g {user} FILE.toml {settings}
    install -m 0644 tidegate-*.service tidegate.target /etc/systemd/system/
{folders}
Relative paths in the settings begin at {state}, which systemd creates.

## Secrets

{secrets}

The settings file then needs no password. systemd (250 or newer) gives each part a copy of its own, which no other user can read.
Other values may be in {environment} (mode 0600), which systemd reads as root; it may be missing.
{rights}
## Start

    sudo -u {user} {program} config validate --config {settings}
    systemctl daemon-reload
    systemctl enable tidegate.target {units}
    systemctl start tidegate.target
    journalctl -u 'tidegate-*' -f

On a machine that runs only some of the parts, enable only these. `tidegate status --config {settings}` asks all of them.

A part that ends with code 78 (configuration) is not started again. After any other failure it is, five seconds later. systemd
also restarts a part that hangs for {watchdog} seconds. It does not restart a part that waits for a server: `systemctl status`
shows what the part waits for.

A stop waits until the part has drained. The target stops all parts, but `systemctl stop tidegate.target` does not wait for them.
`systemctl stop tidegate.target 'tidegate-*.service'` does. `systemd-analyze security tidegate-stream` lists what the unit still
allows.

The stream maintains the tables by itself, so there is no timer for `tidegate maintain`.

Only one stream may write to a tables root. For several gateways, copy `tidegate-gateway.service` under another name with a
settings file of its own (OPERATORS.md, Several gateways).
{finding}"""

_FINDING: Final = """
The monitor keeps the finding of its audit in {state}/monitor. Set `state_dir = "{state}/monitor"` under `[monitoring]` of the
settings file too, so that `tidegate audit --accept` looks there.
"""


def systemd_files(settings: Settings, *, program: str = PROGRAM, user: str = USER) -> dict[str, str]:
    """Return file name -> content. The same settings give the same bytes.

    Args:
        settings: those that the parts will start with.
        program: absolute path of the command `tidegate` on the machine.
        user: the system user of all parts.
    """
    parts = production_parts(settings)
    units = {f"tidegate-{part.name}.service": _unit(settings, part, program=program, user=user) for part in parts}
    return units | {
        "tidegate.target": _TARGET,
        "tidegate.sysusers": f'u {user} - "Tidegate" {STATE}\n',
        "README.md": _readme(settings, parts, program=program, user=user),
    }


def _unit(settings: Settings, part: ProductionPart, *, program: str, user: str) -> str:
    flags = ["--log-dir", LOGS] if part.name == "stream" else []
    command = " ".join(_argument(word) for word in (program, part.name, "--config", SETTINGS, *flags))
    outside = [path for path in part.writes if path.is_absolute() and not path.is_relative_to(STATE)]
    used = [*outside, *(path for path in part.reads if path.is_absolute())]
    unit = [
        f"Description=Tidegate {part.name}: {part.title}",
        "Wants=network-online.target",
        f"After={' '.join(['network-online.target', *_earlier(part)])}",
        "PartOf=tidegate.target",
        # Kafka may be away for hours: never give up.
        "StartLimitIntervalSec=0",
        *(f"RequiresMountsFor={_quoted(path)}" for path in dict.fromkeys(used)),
    ]
    service = [
        # Ready when it answers probes, which no server delays; so a wrong setting fails the start itself.
        "Type=notify",
        f"TimeoutStartSec={START_SECONDS}",
        # No sign of life while only a restart would help: systemd then ends it, and starts it again.
        f"WatchdogSec={WATCHDOG_SECONDS}",
        f"User={user}",
        f"Group={user}",
        f"ExecStart={command}",
        f"WorkingDirectory={STATE}",
        *_folders(part),
        *(f"ReadWritePaths={_quoted(path)}" for path in dict.fromkeys(outside)),
        *_environment(settings, part),
        "Restart=on-failure",
        "RestartSec=5",
        "RestartPreventExitStatus=78",
        # Only the part gets SIGTERM: it ends its JVM itself, after the last batch.
        "KillMode=mixed",
        f"TimeoutStopSec={part.stop_seconds}",
        f"MemoryMax={part.memory_mb}M",
        "LimitNOFILE=65536",
        f"ProtectHome={_home_protection(settings, part)}",
    ]
    return (
        "# Written by `tidegate export systemd`. Run it again with --force to replace this file.\n"
        f"[Unit]\n{_lines(unit)}\n[Service]\n{_lines(service)}{_HARDENING}\n[Install]\nWantedBy=tidegate.target\n"
    )


def _earlier(part: ProductionPart) -> list[str]:
    """Return the units that start before this one, if they start at the same time: a canary reads what the others write."""
    return ["tidegate-gateway.service", "tidegate-stream.service"] if part.name == "canary" else []


def _folders(part: ProductionPart) -> list[str]:
    """Return the folders that systemd creates for this part. The canary writes none, so /var/lib/tidegate is read-only for it."""
    state = {"monitor": ["StateDirectory=tidegate tidegate/monitor"], "canary": []}.get(
        part.name, ["StateDirectory=tidegate"]
    )
    return [*state, *(["StateDirectoryMode=0750"] if state else []), "LogsDirectory=tidegate", "LogsDirectoryMode=0750"]


def _environment(settings: Settings, part: ProductionPart) -> list[str]:
    found = [
        "Environment=PYTHONUNBUFFERED=1 TZ=UTC",
        f"Environment=XDG_CACHE_HOME=/var/cache TIDEGATE_LOGS={LOGS}",
    ]
    if part.name == "monitor" and settings.monitoring.state_dir is None:
        found.append(f"Environment=TIDEGATE_MONITORING__STATE_DIR={STATE}/monitor")
    for name in secret_settings(settings, part.sections, part.name):
        variable = "TIDEGATE_" + name.upper().replace(".", "__")
        # %d is the folder with the credentials of this unit.
        found += [f"LoadCredential={name}:{CREDENTIALS}/{name}", f"Environment={variable}=file:%d/{name}"]
    return [*found, f"EnvironmentFile=-{ENVIRONMENT}"]


def _home_protection(settings: Settings, part: ProductionPart) -> str:
    paths = (*part.writes, *part.reads, *input_paths(settings, part.sections, part.name).values())
    hidden = any(path.is_relative_to(home) for path in paths for home in _HIDDEN_HOMES)
    return "read-only" if hidden else "yes"


def _readme(settings: Settings, parts: tuple[ProductionPart, ...], *, program: str, user: str) -> str:
    outside = dict.fromkeys(
        path for part in parts for path in part.writes if path.is_absolute() and not path.is_relative_to(STATE)
    )
    made = "".join(f"    install -d -m 0750 -o {user} -g {user} {_shell(path)}\n" for path in outside)
    return _README.format(
        rows="\n".join(
            f"| `tidegate-{each.name}.service` | {each.title}; at most {each.memory_mb} MB |" for each in parts
        ),
        user=user,
        units=" ".join(f"tidegate-{part.name}" for part in parts),
        checkout="/opt/tidegate",
        program=program,
        settings=SETTINGS,
        state=STATE,
        credentials=CREDENTIALS,
        environment=ENVIRONMENT,
        folders=made,
        secrets=_secrets(settings, parts),
        rights=rights_section(settings),
        watchdog=WATCHDOG_SECONDS,
        finding=_FINDING.format(state=STATE) if settings.monitoring.state_dir is None else "",
    )


def _secrets(settings: Settings, parts: tuple[ProductionPart, ...]) -> str:
    names = dict.fromkeys(name for part in parts for name in secret_settings(settings, part.sections, part.name))
    sections = tuple(dict.fromkeys(section for part in parts for section in part.sections))
    lines = [f"    install -m 0400 /dev/stdin {CREDENTIALS}/{name}" for name in names]
    text = (
        "Each line waits for the secret and Ctrl-D:\n\n" + "\n".join(lines)
        if lines
        else "These settings name no user, so the parts log in nowhere and need no secret."
    )
    if extras := secret_extras(settings, sections):
        variables = ", ".join("TIDEGATE_" + name.upper().replace(".", "__") for name in extras)
        text += f"\n\nThe options of {', '.join(extras)} include secrets: move them to {variables} (a JSON object) in"
        text += f"\n{ENVIRONMENT}."
    return text


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _quoted(path: Path) -> str:
    """Return a path for a setting of a unit file, in which % begins a specifier."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def _argument(word: str) -> str:
    """Return a word of a command line, in which $ begins a variable too."""
    plain = word.replace("%", "%%").replace("$", "$$")
    return plain if not set(plain) & set(" \t\"'\\;") else _quoted(Path(word)).replace("$", "$$")


def _shell(path: Path) -> str:
    return shlex.quote(str(path))
