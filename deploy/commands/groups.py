"""`tidegate groups ls | describe` and `rewind`: consumer groups as Kafka's tools show them, and changes of offsets."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deploy.commands.options import Brokers, Data, Json, KafkaConfig, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.groups.describe import GroupMember
    from ingest.groups.rewind import OffsetMove, RewindTarget

__all__ = ["member_names", "register"]

groups = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Kafka consumer groups: list, describe.")
_ID_LETTERS: Final = 8
Name = Annotated[str, typer.Argument(help="Name of the group, as in `groups ls`.")]


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.add_typer(groups, name="groups")
    parent.command()(rewind)


@groups.command()
def ls(brokers: Brokers = None, config: KafkaConfig = None, data: Data = None, as_json: Json = False) -> None:
    """List the consumer groups and their states."""
    from deploy.commands.options import text_table
    from deploy.local.locate_settings import locate_kafka
    from ingest.groups.describe import list_groups

    found = list_groups(locate_kafka(config, data, brokers))
    if as_json:
        show_json([{"group": group.name, "state": group.state, "protocol": group.protocol} for group in found])
        return
    typer.echo("\n".join(text_table(("group", "state", "protocol"), [(g.name, g.state, g.protocol) for g in found])))


@groups.command()
def describe(
    name: Name, brokers: Brokers = None, config: KafkaConfig = None, data: Data = None, as_json: Json = False
) -> None:
    """Show a group's members, their partitions and the lag."""
    from dataclasses import asdict

    from deploy.commands.options import text_table
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from ingest.groups.describe import describe_group

    group = describe_group(locate_kafka(config, data, brokers), name)
    if as_json:
        places = [{**asdict(place), "lag": place.lag} for place in group.places]
        values = asdict(group)
        show_json({"group": values.pop("name"), **values, "places": places})
        return
    names = member_names(group.members)
    owners = {where: names[member.member_id] for member in group.members for where in member.partitions}
    members = format_counted(len(group.members), "member")
    typer.echo(f"{group.name}: {group.state}, {members}, coordinator {group.coordinator or 'unknown'}")
    rows = [
        (place.topic, str(place.partition), str(place.committed), _or(place.end), _or(place.lag),
         owners.get((place.topic, place.partition), "-"))
        for place in group.places
    ]  # fmt: skip
    typer.echo("\n".join(text_table(("topic", "partition", "committed", "end", "lag", "member"), rows)))
    known = {(place.topic, place.partition) for place in group.places}
    for member in group.members:
        name = names[member.member_id]
        fresh = [f"{topic}[{number}]" for topic, number in member.partitions if (topic, number) not in known]
        if fresh:
            typer.echo(f"{name} also has {', '.join(fresh)}, without a committed offset yet")
        elif not member.partitions:
            typer.echo(f"{name} has no partition: the group has more members than there are partitions")


def rewind(
    group: Annotated[str, typer.Argument(help="Name of the consumer group, as in `groups ls`.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic whose offsets to set.")],
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset such as 1234, or a time such as 10m-ago.")
    ],
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition (default: all).", show_default=False),
    ] = None,
    execute: Annotated[bool, typer.Option("--yes", help="Write the offsets; without it only show the plan.")] = False,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Set a group's offsets to an offset or a time.

    Shows the plan; --yes writes it.

    The group must have no members. Tidegate's own groups cannot be rewound, because their readers do not use these offsets.
    """
    from deploy.commands.options import text_table
    from deploy.local.locate_settings import locate_kafka
    from ingest.groups import rewind as moves

    target = parse_target(to)
    kafka = locate_kafka(config, data, brokers)
    plan = moves.plan_rewind(kafka, group, topic, target, partition=partition)
    if execute:
        moves.rewind(kafka, group, topic, plan)
    if as_json:
        shown = [
            {"partition": m.partition, "before": m.before, "after": m.after, "end": m.end, "again": m.again}
            for m in plan
        ]
        show_json({"group": group, "topic": topic, "written": execute, "partitions": shown})
        return
    rows = [(str(m.partition), _or(m.before), str(m.after), str(m.end), _effect(m)) for m in plan]
    typer.echo("\n".join(text_table(("partition", "committed", "new", "end", "effect"), rows)))
    typer.echo("Written." if execute else "This is the plan; nothing was changed. Add --yes to write it.", err=True)


def parse_target(text: str) -> "RewindTarget":
    """Parse `earliest`, `latest`, an offset, or a time (ISO 8601, or a duration ago, such as 10m-ago).

    Raises:
        BadParameter: it is none of these.
    """
    from deploy.commands.options import parse_time
    from ingest.groups.rewind import RewindTarget

    if text == "earliest":
        return RewindTarget("earliest")
    if text == "latest":
        return RewindTarget("latest")
    if text.isdecimal():
        return RewindTarget("offset", int(text))
    try:
        when = parse_time(text)
    except typer.BadParameter as error:
        msg = f"--to {text!r}: use earliest, latest, an offset such as 1234, or a time such as 10m-ago."
        raise typer.BadParameter(msg) from error
    if when > datetime.now(UTC):
        msg = f"--to {text!r} is in the future: use a time that has passed, or latest."
        raise typer.BadParameter(msg)
    return RewindTarget("time", int(when.timestamp() * 1000))


def member_names(members: "Sequence[GroupMember]") -> dict[str, str]:
    """Map member ids to names: the client id, with the first letters of the member id if several members share it."""
    shared = {one.client_id for one in members if sum(other.client_id == one.client_id for other in members) > 1}
    return {
        one.member_id: f"{one.client_id}-{one.member_id.removeprefix(f'{one.client_id}-')[:_ID_LETTERS]}"
        if one.client_id in shared
        else one.client_id
        for one in members
    }


def _or(number: int | None) -> str:
    return "-" if number is None else str(number)


def _effect(move: "OffsetMove") -> str:
    if move.again is None:
        return f"begins at {move.after}"
    if move.again == 0:
        return "-"
    return f"reads {move.again} again" if move.again > 0 else f"skips {-move.again}"
