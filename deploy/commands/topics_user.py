"""`tidegate topics user`: a Kafka user with a password (SCRAM) and the rights of its role, in one step."""

import secrets
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.commands.options import Brokers, Data, Json, KafkaConfig, show_json
from ingest.topics.roles import Role

__all__ = ["user"]

SECRET_BYTES: Final = 24


def user(
    name: Annotated[str, typer.Argument(help="Name of the user, as in kafka.sasl_username.")],
    role: Annotated[list[Role], typer.Option("--role", help="Role of the user; repeat it if the user has several.")],
    password_file: Annotated[
        Path,
        typer.Option(
            "--password-file",
            help="File with the password. If it is missing, it is created with a random one. "
            'Settings refer to it: kafka.sasl_password = "file:PATH".',
            show_default=False,
        ),
    ],
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a Kafka user with a password (SCRAM-SHA-512) and the rights of its role.

    An existing user gets the password of the file; processes that log in with this file take it at their next login.
    Missing rights are added. `topics acl` shows the rights, and removes surplus ones.

    The user of --config must be allowed to change users and ACLs (ALTER on the cluster).
    """
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from deploy.secret_values import note_secret
    from ingest.topics.acl import apply_acls, plan_acls
    from ingest.topics.scram_users import set_scram_users

    principal = _principal(name)
    kafka = locate_kafka(config, data, brokers)
    # Ask first: who may not see ACLs leaves no file and no user without rights.
    plan = plan_acls(kafka, principal, role)
    password, created = _password(password_file)
    note_secret(password)
    set_scram_users(kafka, {name: password})
    apply_acls(kafka, principal, add=plan.missing)
    if as_json:
        show_json(
            {
                "user": name,
                "roles": list(role),
                "password_file": str(password_file),
                "password_created": created,
                "rights": len(plan.granted) + len(plan.missing),
                "added": len(plan.missing),
                "surplus": len(plan.surplus),
            }
        )
        return
    added = f"{format_counted(len(plan.missing), 'right')} added" if plan.missing else "no right was missing"
    origin = "a new password in" if created else "the password of"
    typer.echo(f"User {name} has {origin} {password_file}; {added}.")
    if plan.surplus:
        surplus = format_counted(len(plan.surplus), "right")
        typer.echo(f"It has {surplus} more than its roles need: see topics acl --principal {principal}.", err=True)


def _principal(name: str) -> str:
    if not name or name != name.strip() or any(not one.isprintable() for one in name):
        msg = f"NAME {name!r}: wanted a name of printable characters without spaces around it, such as gateway"
        raise typer.BadParameter(msg)
    return f"User:{name}"


def _password(file: Path) -> tuple[str, bool]:
    """Return the password, and whether it is new."""
    from deploy.settings_file import write_private
    from deploy.settings_secrets import FileSecret
    from ingest.contract.errors import UnavailableError

    created = not file.exists()
    if created:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_private(file, secrets.token_urlsafe(SECRET_BYTES) + "\n")
        except OSError as error:
            msg = (
                f"{file}: the file cannot be written ({error.strerror}). Name a file in a folder that you may write to."
            )
            raise UnavailableError(msg) from error
    return FileSecret(str(file), "--password-file").get_secret_value(), created
