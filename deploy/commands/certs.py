"""`tidegate certs init | issue | show | rotate | revoke`: certificates of our own for TLS, and what certificate files hold."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from deploy.command_line import command_name
from deploy.commands.options import Json, show_json

if TYPE_CHECKING:
    from deploy.certificates.issue import LeafRequest
    from deploy.certificates.read import CertificateReport

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Certificates for TLS: make, show, rotate, revoke.",
)

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 365
REVOCATIONS: Final = "crl.pem"
MOST_DAYS: Final = 36_500

Folder = Annotated[
    Path, typer.Argument(help="Folder with the authority (ca.pem, ca.key) and its certificates.", metavar="DIR")
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="HOST[,HOST…]",
        help="Make a certificate for a server with these names and IP addresses. Give the option once for each server.",
        show_default=False,
    ),
]
Clients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="Make a certificate for a client, whose name brokers take as its user. Give the option once for each client.",
        show_default=False,
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=MOST_DAYS, help="Days until the certificates end.")]
Key = Annotated[
    Literal["ec", "rsa"],
    typer.Option("--key", help="Kind of keys: ec is P-256, rsa has 3072 bits and suits old devices."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="certs")


@app.command()
def init(
    folder: Folder,
    names: Names = None,
    clients: Clients = None,
    days: Days = LEAF_DAYS,
    authority_days: Annotated[
        int, typer.Option("--ca-days", min=1, max=MOST_DAYS, help="Days until the authority ends.")
    ] = AUTHORITY_DAYS,
    key: Key = "ec",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make an authority, and certificates of servers and clients that it signs.

    --force also replaces the authority: all its certificates must then be made again.
    """
    from datetime import UTC, datetime

    from deploy.certificates.folder import init_folder

    requests = _requests(names, clients, days, key)
    now = datetime.now(UTC)
    files = init_folder(folder, requests, authority_days=authority_days, now=now, key_kind=key, force=force)
    steps = [
        f"Copy {folder / 'ca.pem'} to each server and client, and to each its own file.",
        f"Keep {folder / 'ca.key'} away from them: who has it can be any server or client.",
        f"Before the certificates end, run `{command_name()} certs rotate {shlex.quote(str(folder))}`.",
    ]
    _show_written(folder, files, {}, steps, as_json)


@app.command()
def issue(
    folder: Folder,
    names: Names = None,
    clients: Clients = None,
    days: Days = LEAF_DAYS,
    key: Key = "ec",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make more certificates with the authority of a folder."""
    from datetime import UTC, datetime

    from deploy.certificates.folder import issue_leaves

    requests = _requests(names, clients, days, key)
    files = issue_leaves(folder, requests, now=datetime.now(UTC), force=force)
    steps = [f"Copy each new file to its server or client, together with {folder / 'ca.pem'}."]
    _show_written(folder, files, {}, steps, as_json)


@app.command()
def show(
    path: Annotated[
        Path,
        typer.Argument(
            help="File (PEM or DER), or folder whose .pem, .crt, .cer and .der files to show.", metavar="FILE|DIR"
        ),
    ],
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--ca", help="File with the trusted authorities (default: ca.pem next to the file).", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what is in certificates: names, issuer, end, usage, and if key and authority fit.

    Exit 1 if something is wrong: an ended or revoked certificate, a key of another certificate, an unknown authority, a key that
    others may read.
    """
    from datetime import UTC, datetime

    from deploy.certificates.read import report_certificates

    reports = report_certificates(path, bundle=bundle, now=datetime.now(UTC))
    if as_json:
        show_json({"ok": not any(one.problems for one in reports), "certificates": [_as_dict(one) for one in reports]})
    else:
        typer.echo("\n\n".join("\n".join(_lines(one)) for one in reports))
    raise typer.Exit(1 if any(one.problems for one in reports) else 0)


@app.command()
def rotate(
    folder: Folder,
    authority: Annotated[
        bool, typer.Option("--ca", help="Make a new authority. ca.pem keeps the former one too, until --drop-old.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Remove former authorities from ca.pem, when no certificate needs them.")
    ] = False,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=1,
            max=MOST_DAYS,
            help=f"Days until the new ones end (default: as long as the replaced ones; with --ca {AUTHORITY_DAYS}).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replace all certificates of a folder that are not revoked, with new keys and the same authority.

    To change the authority without an interruption: rotate --ca, then rotate, then rotate --drop-old. After each of the three,
    copy the files as the command says.
    """
    from datetime import UTC, datetime

    from deploy.certificates.folder import drop_old_authorities, rotate_authority, rotate_leaves

    if drop_old and (authority or days is not None):
        message = "--drop-old makes no certificate: give it alone."
        raise typer.BadParameter(message)
    again, now = f"{command_name()} certs rotate {shlex.quote(str(folder))}", datetime.now(UTC)
    spread = f"Copy {folder / 'ca.pem'} to each server and client, and restart them one after the other"
    left: dict[Path, str] = {}
    if drop_old:
        files = drop_old_authorities(folder)
        steps = [f"{spread}."] if files else []
    elif authority:
        files = rotate_authority(folder, days=days or AUTHORITY_DAYS, now=now)
        steps = [
            f"{spread}: it holds both authorities.",
            f"Only when all of them have it, run `{again}`, and copy the new certificates.",
            f"When all servers and clients have the new certificates, run `{again} --drop-old`.",
        ]
    else:
        done = rotate_leaves(folder, days=days, now=now)
        files = list(done.written)
        left = dict.fromkeys(done.foreign, "another authority signed it, or its key has a password")
        left |= dict.fromkeys(done.revoked, "it is revoked")
        steps = [
            "Copy each file to its server or client, and restart them one after the other (mosquitto loads its own on SIGHUP).",
            *_overlap_step(folder, again),
        ]
    if (folder / REVOCATIONS) in files:
        steps[:1] = [steps[0], f"Where servers have a copy of {folder / REVOCATIONS}, copy it together with ca.pem."]
    _show_written(folder, files, left, steps, as_json)


@app.command()
def revoke(
    folder: Folder,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Name of a server or client with a file in DIR, or the file's name.", metavar="NAME"),
    ] = None,
    serials: Annotated[
        list[str] | None,
        typer.Option(
            "--serial",
            metavar="HEX",
            help="Serial number of a certificate whose file was replaced or is gone, as `certs show` prints it.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add certificates to the list of revoked ones, DIR/crl.pem, such as those of a device that was stolen.

    A revoked certificate works until the servers have the new list. The command says which of them read it, and how.
    """
    from datetime import UTC, datetime

    from deploy.certificates.folder import revoke_leaves

    if not names and not serials:
        message = "Name at least one certificate with NAME, or with --serial HEX."
        raise typer.BadParameter(message)
    numbers = [_serial(text) for text in serials or ()]
    files = revoke_leaves(folder, names or (), numbers, now=datetime.now(UTC))
    steps = [
        f"Copy {folder / REVOCATIONS} to each MQTT broker (mosquitto: crlfile), and restart the broker, "
        "which also ends open connections.",
        "Kafka reads no such list: take all rights from the user of the certificate, with "
        f"`{command_name()} topics acl --principal User:CN=NAME --no-role --apply --prune`.",
    ]
    if as_json:
        show_json({"folder": str(folder), "written": [file.name for file in files], "next_steps": steps})
        return
    typer.echo(
        "\n".join(map(str, files)) if files else f"Already revoked in {folder / REVOCATIONS}; nothing was changed."
    )
    _show_steps(steps)


def _serial(text: str) -> int:
    try:
        return int(text.replace(":", ""), 16)
    except ValueError:
        message = f"--serial {text!r}: wanted hexadecimal digits, as `certs show` prints them."
        raise typer.BadParameter(message) from None


def _overlap_step(folder: Path, again: str) -> list[str]:
    from deploy.certificates.read import AUTHORITY_FILE, read_certificates

    if len(read_certificates(folder / AUTHORITY_FILE).certificates) == 1:
        return []
    return [
        f"When all servers and clients have the new certificates, run `{again} --drop-old`: ca.pem holds a former authority."
    ]


def _requests(
    names: list[str] | None, clients: list[str] | None, days: int, key: Literal["ec", "rsa"]
) -> "list[LeafRequest]":
    from deploy.certificates.issue import LeafRequest

    if not names and not clients:
        message = "Name at least one server with --name HOST, or one client with --client NAME."
        raise typer.BadParameter(message)
    servers = [LeafRequest.server(each, days=days, key_kind=key) for each in names or ()]
    return servers + [LeafRequest.client(each, days=days, key_kind=key) for each in clients or ()]


def _show_written(
    folder: Path, files: Sequence[Path], left: Mapping[Path, str], steps: list[str], as_json: bool
) -> None:
    """Print the written files with their ends, those that were left with the reason, and the next steps."""
    from datetime import UTC, datetime

    from deploy.certificates.read import report_certificates

    now = datetime.now(UTC)
    reports = [one for file in files if _has_certificate(file) for one in report_certificates(file, now=now)]
    if as_json:
        show_json(
            {
                "folder": str(folder),
                "written": [file.name for file in files],
                "left": [file.name for file in left],
                "certificates": [_as_dict(one) for one in reports],
                "next_steps": steps,
            }
        )
        return
    ends = {one.file: one for one in reversed(reports)}
    for file in files:
        found = ends.get(str(file))
        public = "" if file.name == REVOCATIONS else "  (private)"
        typer.echo(f"{file}  {_summary(found)}" if found else f"{file}{public}")
    for file, why in left.items():
        typer.echo(f"{file} was left as it is: {why}.", err=True)
    if not files:
        typer.echo(f"{folder / 'ca.pem'} holds only the current authority; nothing was changed.", err=True)
    _show_steps(steps)


def _show_steps(steps: Sequence[str]) -> None:
    for number, step in enumerate(steps, 1):
        typer.echo(f"{number}. {step}", err=True)


def _has_certificate(file: Path) -> bool:
    return file.suffix != ".key" and file.name != REVOCATIONS


def _summary(report: "CertificateReport") -> str:
    names = [name for name in report.names if f"CN={name}" != report.subject]
    return f"{', '.join([report.subject, *names])}, until {report.ends_at:%Y-%m-%d}"


def _as_dict(report: "CertificateReport") -> dict[str, Any]:
    from dataclasses import asdict

    times = {"begins_at": report.begins_at.isoformat(), "ends_at": report.ends_at.isoformat()}
    return {**asdict(report), **times}


def _lines(report: "CertificateReport") -> list[str]:
    """Return the lines of one certificate for a person."""
    fits = {True: ", the private key fits", False: ", THE PRIVATE KEY DOES NOT FIT", None: ""}[report.key_fits]
    chain = {
        True: "verifies",
        False: "does not verify",
        None: "not checked: there is no ca.pem next to it; name one with --ca",
    }
    days = f"{report.days_left} days left" if report.days_left >= 0 else "ended"
    rows = [
        ("subject", report.subject),
        ("names", ", ".join(report.names) or "-"),
        ("issuer", report.issuer),
        ("serial", report.serial),
        ("usage", ", ".join(report.usage)),
        ("ends", f"{report.ends_at:%Y-%m-%d %H:%M} UTC ({days})"),
        ("key", f"{report.key}{fits}"),
        ("chain", chain[report.verifies]),
        *(("PROBLEM", problem) for problem in report.problems),
    ]
    return [report.file, *(f"  {name:<8} {value}" for name, value in rows)]
