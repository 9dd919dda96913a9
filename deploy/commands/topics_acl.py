"""`tidegate topics acl`: the rights of a Kafka user for its role in Tidegate."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from deploy.commands.options import Brokers, Data, Json, KafkaConfig, show_json, text_table
from ingest.topics.roles import Acl, Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.topics.acl import AclPlan

__all__ = ["acl", "acl_lines"]

_PRINCIPAL: Final = re.compile(r"[A-Za-z]+:\S.*")


def acl(
    principal: Annotated[
        str,
        typer.Option(
            "--principal",
            metavar="TYPE:NAME",
            help="User as the brokers name it, such as User:gateway; for a client certificate its subject.",
        ),
    ],
    role: Annotated[
        list[Role] | None,
        typer.Option("--role", help="Role of the user; repeat it if the user has several.", show_default=False),
    ] = None,
    no_role: Annotated[
        bool,
        typer.Option("--no-role", help="The user needs no rights, such as one whose certificate is revoked."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Grant the missing rights; without it, only show them.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --apply: also remove rights that the roles do not need.")
    ] = False,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show or grant the rights (ACLs) that a Kafka user needs for its role.

    Roles: gateway; stream; operator (redrives, retention, rewinds); reader (monitor, audit, tail); redrive (in addition to
    reader, for a monitor whose page redrives). Each role has only the rights that it needs, on Tidegate's topics and on groups
    that begin with tidegate-.

    The user of --config must be allowed to see and change ACLs.
    """
    from deploy.local.locate_settings import locate_kafka
    from ingest.topics.acl import apply_acls, plan_acls

    if not _PRINCIPAL.fullmatch(principal):
        msg = f"--principal {principal!r}: wanted TYPE:NAME, such as User:gateway"
        raise typer.BadParameter(msg)
    if bool(role) is no_role:
        msg = "Give each role of the user with --role, or --no-role for a user who needs no rights."
        raise typer.BadParameter(msg)
    roles = role or []
    if prune and not apply:
        msg = "--prune removes rights: use it with --apply. Without both, the command shows surplus rights."
        raise typer.BadParameter(msg)
    kafka = locate_kafka(config, data, brokers)
    plan = plan_acls(kafka, principal, roles)
    if apply:
        apply_acls(kafka, principal, add=plan.missing, remove=plan.surplus if prune else ())
    if as_json:
        show_json(_acl_dict(principal, roles, plan, applied=apply, pruned=prune))
        return
    typer.echo("\n".join(acl_lines(plan, applied=apply, pruned=prune)))
    typer.echo(_advice(principal, plan, applied=apply, pruned=prune), err=True)


def acl_lines(plan: "AclPlan", *, applied: bool, pruned: bool) -> list[str]:
    """Return a table of all rights with the state of each."""
    states = (
        (plan.granted, "granted"),
        (plan.missing, "added" if applied else "missing"),
        (plan.surplus, "removed" if pruned else "surplus"),
    )
    rows = [(*_cells(one), state) for acls, state in states for one in acls]
    return text_table(("right", "on", "state"), rows)


def _cells(acl: Acl) -> tuple[str, str]:
    right = acl.operation if acl.permission == "ALLOW" else f"{acl.permission} {acl.operation}"
    star = "*" if acl.pattern == "prefixed" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return right, f"{acl.resource} {acl.name}{star}{host}"


def _advice(principal: str, plan: "AclPlan", *, applied: bool, pruned: bool) -> str:
    from deploy.local.text_format import format_counted

    missing, surplus = format_counted(len(plan.missing), "right"), format_counted(len(plan.surplus), "surplus right")
    done = f"{principal}: {missing} {'added' if applied else 'missing'}"
    if plan.surplus:
        done += f", {surplus}{' removed' if pruned else ''}"
    steps = []
    if plan.missing and not applied:
        steps.append("Add --apply to grant what is missing.")
    if plan.surplus and not pruned:
        steps.append("Add --apply --prune to remove what is surplus.")
    return " ".join([f"{done}.", *steps])


def _acl_dict(
    principal: str, roles: "Sequence[Role]", plan: "AclPlan", *, applied: bool, pruned: bool
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "principal": principal,
        "roles": list(roles),
        "applied": applied,
        "pruned": pruned,
        "granted": [asdict(one) for one in plan.granted],
        "missing": [asdict(one) for one in plan.missing],
        "surplus": [asdict(one) for one in plan.surplus],
    }
