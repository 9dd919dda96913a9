"""`tidegate topics ls | describe | create | set | rm | acl | user`: Kafka's topics, without Kafka's own tools."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deploy.commands.options import Brokers, Data, Json, KafkaConfig, show_json
from deploy.commands.topics_acl import acl
from deploy.commands.topics_user import user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.settings import Settings
    from ingest.kafka_settings import KafkaSettings
    from ingest.topics.overview import TopicOverview

__all__ = ["parse_bytes", "parse_hours", "register"]

topics = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Kafka topics: list, create, change, rights.",
)

UNLIMITED: Final = "unlimited"
LEAST_BYTES: Final = 8 * 1024**2
LOOK_SECONDS: Final = 20.0
_SIZE: Final = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_UNITS: Final = ("", "k", "m", "g", "t")

Name = Annotated[str, typer.Argument(help="Name of the topic, as in `topics ls`.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Topic setting, such as retention.ms=3600000; repeatable.",
        show_default=False,
    ),
]


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    topics.command()(acl)
    topics.command()(user)
    parent.add_typer(topics, name="topics")


@topics.command()
def ls(
    everything: Annotated[bool, typer.Option("--all", help="Also list topics that are not Tidegate's.")] = False,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List the topics with records, size and retention.

    Also lists partitions without a leader or with replicas out of sync. The size is known only for an embedded Kafka on this
    machine.
    """
    from deploy.commands.topics_text import topic_dict, topic_lines
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.topics.overview import topic_overviews

    kafka = locate_kafka(config, data, brokers)
    sizes = {} if brokers is not None else _sizes(config, data)
    left_out: set[str] = set()

    def wanted(name: str) -> bool:
        if everything or is_own_topic(name):
            return True
        left_out.add(name)
        return False

    found = [
        topic_dict(topic, sizes.get(topic.name), is_own=is_own_topic(topic.name))
        for topic in topic_overviews(kafka, wanted, most_seconds=LOOK_SECONDS, with_times=False)
    ]
    if as_json:
        show_json(found)
        return
    if found:
        typer.echo("\n".join(topic_lines(found)))
    else:
        typer.echo(f"Kafka at {kafka.bootstrap_servers} has no topic{'' if everything else ' of Tidegate'}.", err=True)
    if left_out:
        typer.echo(f"{format_counted(len(left_out), 'other topic')} not listed: add --all.", err=True)


@topics.command()
def describe(
    topic: Name,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show one topic with its partitions and settings.

    Shows leader, replicas, offsets and record times of each partition, and the settings that differ from the broker's
    defaults.
    """
    from deploy.commands.topics_text import describe_lines, topic_dict
    from deploy.local.locate_settings import locate_kafka
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.topics.describe import describe_topics

    kafka = locate_kafka(config, data, brokers)
    sight = _sight(kafka, topic)
    sizes = {} if brokers is not None else _sizes(config, data)
    found = topic_dict(sight, sizes.get(topic), is_own=is_own_topic(topic))
    state = describe_topics(kafka, [topic])[topic]
    found["settings"] = dict(sorted(state.own.items())) if state.config else None
    for one in found["by_partition"]:
        one["oldest_ms"] = sight.oldest_ms.get(one["partition"])
        one["newest_ms"] = sight.newest_ms.get(one["partition"])
    if as_json:
        show_json(found)
        return
    typer.echo("\n".join(describe_lines(found)))


@topics.command()
def create(
    topic: Annotated[str, typer.Argument(help="Name of the new topic.")],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=1_000_000, help="Number of partitions.")
    ] = 1,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            "-r",
            min=1,
            max=32_767,
            help="Copies of each partition (default: kafka.replication, else 3, or the number of brokers if there are fewer).",
            show_default=False,
        ),
    ] = None,
    setting: Setting = None,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Create a topic.

    The gateway creates the topics that Tidegate writes, from the settings.
    """
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from ingest.contract.errors import FatalError
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.topics.copies import replication_now
    from ingest.topics.setup import create_topic

    if is_own_topic(topic):
        message = f"Topic {topic} is Tidegate's. The gateway creates it from the settings when it starts."
        raise FatalError(message)
    own = _parse_settings(setting or ())
    kafka = locate_kafka(config, data, brokers)
    if replication is not None:
        kafka = kafka.model_copy(update={"replication": replication})
    if not create_topic(kafka, topic, partitions=partitions, config=own):
        message = (
            f"Kafka at {kafka.bootstrap_servers} already has topic {topic}: see `tidegate topics describe {topic}`."
        )
        raise FatalError(message)
    number = replication_now(kafka)
    if as_json:
        show_json({"topic": topic, "partitions": partitions, "replication": number, "settings": own})
        return
    copies = "1 copy" if number == 1 else f"{number} copies"
    typer.echo(f"Created topic {topic}: {format_counted(partitions, 'partition')}, {copies} of each.", err=True)


@topics.command()
def rm(
    topic: Name,
    sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Delete a topic with all its records.

    Topics that Tidegate or Kafka itself needs cannot be deleted here.
    """
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from ingest.contract.errors import FatalError
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.topics.setup import delete_topic

    if is_own_topic(topic) or topic.startswith("__"):
        whose = "Kafka's own" if topic.startswith("__") else "Tidegate's"
        message = f"Topic {topic} is {whose} and cannot be deleted here. `tidegate streams drop` deletes an SQL stream's topic."
        raise FatalError(message)
    kafka = locate_kafka(config, data, brokers)
    records = _sight(kafka, topic, with_times=False).records
    held = "an unknown number of records" if records is None else format_counted(records, "record")
    if not sure and not sys.stdin.isatty():
        msg = f"Input is not a terminal: add --yes to delete topic {topic} with {held}."
        raise typer.BadParameter(msg)
    if not sure:
        typer.confirm(f"Delete topic {topic} at {kafka.bootstrap_servers} with {held}?", abort=True, err=True)
    delete_topic(kafka, topic)
    if as_json:
        show_json({"topic": topic, "records": records})
        return
    typer.echo(f"Deleted topic {topic} with {held}.", err=True)


@topics.command("set")
def set_topic(
    topic: Name,
    hours: Annotated[
        str | None,
        typer.Option(
            "--retention-hours",
            metavar="HOURS",
            help="Hours to keep records: 1 or more, or unlimited.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--retention-bytes",
            metavar="SIZE",
            help="Maximum size per partition: 8MiB or more, such as 512MiB or 2GiB, or unlimited.",
            show_default=False,
        ),
    ] = None,
    setting: Setting = None,
    as_settings: Annotated[
        bool, typer.Option("--as-settings", help="Set everything as the settings file says, as for a new topic.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Keep less even if the stream has not read all records that Kafka deletes."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let Kafka check the change; change nothing.")] = False,
    brokers: Brokers = None,
    config: KafkaConfig = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Set how long a topic keeps its records, or other settings.

    Programs can write and read the topic meanwhile. Kafka deletes the records beyond a limit within minutes, the oldest
    segments first.

    For Tidegate's own topics only the retention can be changed, and it must keep what a stream has not read yet.
    """
    from deploy.commands.topics_text import change_lines
    from deploy.local.locate_settings import locate_kafka
    from ingest.contract.errors import FatalError
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.topics.config import change_topic, settings_config

    if as_settings == (hours is not None or size is not None or bool(setting)):
        msg = "Use --retention-hours, --retention-bytes or --set, or --as-settings alone."
        raise typer.BadParameter(msg)
    own = is_own_topic(topic)
    wanted = _wanted(hours, size, setting or (), own=own)
    if own and (setting or brokers is not None):
        message = (
            f"Topic {topic} is Tidegate's: use only --retention-hours, --retention-bytes or --as-settings, and --config or "
            "--data of its streams, which must read the records before Kafka deletes them."
        )
        raise FatalError(message)
    if own:
        settings = _settings(config, data)
        kafka, readers = settings.kafka, [] if accept_loss else _readers(settings)
    else:
        kafka, readers = locate_kafka(config, data, brokers), list[str]()
    if as_settings:
        wanted = settings_config(kafka, topic)
    changes = change_topic(kafka, topic, wanted, readers=readers, dry_run=dry_run)
    if as_json:
        told = [{"setting": each.setting, "before": each.before, "after": each.after} for each in changes]
        show_json({"topic": topic, "dry_run": dry_run, "changes": told})
        return
    typer.echo("\n".join(change_lines(topic, changes, dry_run=dry_run)))


def _parse_settings(texts: "Sequence[str]") -> dict[str, str]:
    """Parse settings of a topic, each given as NAME=VALUE; the last value of a name is used.

    Raises:
        BadParameter: a text is not NAME=VALUE.
    """
    pairs = [text.partition("=") for text in texts]
    if wrong := next((name + equals + value for name, equals, value in pairs if not (name and equals)), None):
        msg = f"--set {wrong!r}: wanted NAME=VALUE, such as retention.ms=3600000"
        raise typer.BadParameter(msg)
    return {name: value for name, _, value in pairs}


def parse_hours(text: str) -> int:
    """Parse hours of retention; -1 for no limit.

    Raises:
        BadParameter: it is not a whole number of 1 or more.
    """
    if text == UNLIMITED:
        return -1
    if not text.isdecimal() or int(text) < 1:
        msg = f"--retention-hours {text!r}: wanted a whole number of 1 or more, or {UNLIMITED}"
        raise typer.BadParameter(msg)
    return int(text)


def parse_bytes(text: str) -> int:
    """Parse bytes of retention, such as 536870912, 512MiB or 2G, all in steps of 1024; -1 for no limit.

    Raises:
        BadParameter: it is not a size, or less than a topic of ours may keep.
    """
    if text == UNLIMITED:
        return -1
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * 1024 ** _UNITS.index((found[2] or "").lower()) if found else 0
    if size < LEAST_BYTES:
        msg = f"--retention-bytes {text!r}: wanted 8MiB or more, such as 512MiB or 2GiB, or {UNLIMITED}"
        raise typer.BadParameter(msg)
    return size


def _wanted(hours: str | None, size: str | None, setting: "Sequence[str]", *, own: bool) -> dict[str, str]:
    """Return Kafka's settings for these flags; a topic that is not ours keeps its segment size unless --set names it."""
    from ingest.topics.retention import SEGMENT, retention_config

    wanted = retention_config(
        None if hours is None else parse_hours(hours), None if size is None else parse_bytes(size)
    )
    if not own:
        wanted.pop(SEGMENT, None)
    return wanted | _parse_settings(setting)


def _sight(kafka: "KafkaSettings", topic: str, *, with_times: bool = True) -> "TopicOverview":
    """Return the current state of one topic.

    Raises:
        FatalError: the topic does not exist.
    """
    from ingest.topics.overview import topic_overviews
    from ingest.topics.rights import topic_not_found

    seen: list[str] = []

    def wanted(name: str) -> bool:
        seen.append(name)
        return name == topic

    found = topic_overviews(kafka, wanted, most_seconds=LOOK_SECONDS, with_times=with_times)
    if not found:
        raise topic_not_found(kafka, topic, seen)
    return found[0]


def _settings(config: Path | None, data: Path | None) -> "Settings":
    from deploy.local.locate_settings import locate_settings

    return locate_settings(config, data, needs_run=config is None)


def _sizes(config: Path | None, data: Path | None) -> "Mapping[str, int]":
    """Return the bytes of each topic; empty if the folder of the embedded Kafka is not known."""
    from deploy.local.kafka import topic_bytes
    from deploy.settings import data_dir

    return {} if config is not None else topic_bytes(data_dir(data) / "kafka" / "records")


def _readers(settings: "Settings") -> list[str]:
    """Return the groups that must have read a record before Kafka deletes it: the landing's and those of applied streams."""
    from ingest.contract.topics import LAND_GROUP, stream_group
    from streaming.sql.applied_streams import applied_names

    return [LAND_GROUP, *(stream_group(name) for name in sorted(applied_names(settings.lake.root)))]
