"""`tidegate produce | tail`: write and read records of any Kafka topic by hand, with kcat's option letters."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deploy.commands.options import Brokers, Data, Json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingest.settings import KafkaSettings
    from ingest.tail import TailRecord

__all__ = ["register"]

ConfigF = Annotated[
    Path | None,
    typer.Option(
        "--config", "-F", help="Settings file (TOML) with a [kafka] section, for login and TLS.", show_default=False
    ),
]
Topic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Kafka topic; or use -t TOPIC.", show_default=False)]
TopicOption = Annotated[
    str | None, typer.Option("-t", metavar="TOPIC", help="Kafka topic, in place of the argument.", show_default=False)
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.", show_default=False)
]
KeyDelimiter = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", help="Text between key and value, such as : or \\t.", show_default=False),
]


def register(parent: typer.Typer) -> None:
    """Add the commands to the command line."""
    parent.command()(produce)
    parent.command()(tail)


def produce(
    topic: Topic = None,
    topic_option: TopicOption = None,
    partition: Partition = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of all records.", show_default=False)] = None,
    key_delimiter: KeyDelimiter = None,
    delimiter_text: Annotated[str, typer.Option("--delimiter", "-D", help="Text that ends a record.")] = "\\n",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="Header of each record; repeatable.", show_default=False
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            "--compression",
            "-z",
            help="Compression: none, lz4, zstd, snappy or gzip (default: kafka.compression).",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option(
            "--lines", "-l", help="Read this file, not stdin.", exists=True, dir_okay=False, show_default=False
        ),
    ] = None,
    empty_is_null: Annotated[
        bool,
        typer.Option("--null", "-Z", help="Send an empty key or value as null; a null value deletes a compacted key."),
    ] = False,
    brokers: Brokers = None,
    config: ConfigF = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Send records to a topic, one per line.

    Waits until all replicas have them.

    Topics that Tidegate writes are not allowed: a record by hand there would break the audit. Publish readings over MQTT.

    Ctrl-C ends an endless input. The command then waits for the records that it has sent, and counts them.

    Exit 1 if Kafka refused a record, 69 if a right is missing, 130 after Ctrl-C.
    """
    from deploy.commands.options import show_json
    from deploy.commands.record_text import argument_bytes, parse_delimiter, parse_headers, split_records
    from deploy.local.locate import locate_kafka
    from deploy.local.words import format_counted
    from ingest.cluster import is_own_topic
    from ingest.contract.errors import FatalError, UnavailableError
    from ingest.send import send_outgoing
    from ingest.settings import KafkaSettings

    name = _topic(topic, topic_option)
    if is_own_topic(name):
        message = (
            f"Only Tidegate may write topic {name}: a record by hand would break the audit. Publish readings over MQTT "
            "(`tidegate device snippet` shows how), or name another topic."
        )
        raise FatalError(message)
    if compression is not None and compression not in KafkaSettings.model_fields["compression"].annotation.__args__:  # type: ignore[union-attr]
        msg = f"-z {compression!r}: use none, lz4, zstd, snappy or gzip."
        raise typer.BadParameter(msg)
    kafka = locate_kafka(config, data, brokers)
    if compression is not None:
        kafka = kafka.model_copy(update={"compression": compression})
    headers = parse_headers(header or ())
    ends, between = parse_delimiter(delimiter_text), None if key_delimiter is None else parse_delimiter(key_delimiter)
    with _input(lines) as source:
        records = split_records(
            source.read1, delimited_by=ends, key=None if key is None else argument_bytes(key), key_delimiter=between,
            empty_is_null=empty_is_null,
        )  # fmt: skip
        done = send_outgoing(kafka, name, records, partition=partition, headers=headers)
    if as_json:
        show_json(
            {
                "topic": name, "acknowledged": done.acknowledged, "failed": done.failed, "why": done.why or None,
                "interrupted": done.interrupted,
            }
        )  # fmt: skip
    else:
        typer.echo(f"{format_counted(done.acknowledged, 'record')} acknowledged", err=True)
    if done.failed:
        typer.echo(f"{format_counted(done.failed, 'record')} failed. The last one: {done.why}", err=True)
        raise typer.Exit(UnavailableError.exit_code if done.denied else 1)
    if done.interrupted:
        raise KeyboardInterrupt


def tail(
    topic: Topic = None,
    topic_option: TopicOption = None,
    partition: Partition = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            help="Start: beginning, end, an offset such as 1234, -10 for the last ten of each partition, or s@TIME "
            "(default: -10, with -G end).",
            show_default=False,
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop before this time (Kafka's clock).", show_default=False),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-c", min=1, max=sys.maxsize, help="Stop after this many records.", show_default=False),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end of the topic (default: follow new records).")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="Format of a record, such as '%t %p %o %T %k %s\\n', with kcat's letters s S k K t p o T h.",
            show_default=False,
        ),
    ] = None,
    key_delimiter: KeyDelimiter = None,
    delimiter_text: Annotated[str, typer.Option("--delimiter", "-D", help="Text to print after a record.")] = "\\n",
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-G",
            help="Read as a member of this consumer group: Kafka assigns the partitions, and offsets are committed.",
            show_default=False,
        ),
    ] = None,
    protocol: Annotated[
        Literal["classic", "consumer"], typer.Option(help="Protocol of the group; consumer needs Kafka 4.")
    ] = "classic",
    brokers: Brokers = None,
    config: ConfigF = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Print each record as one line of JSON.")] = False,
) -> None:
    """Print a topic's records, and follow new ones.

    Without -G it joins no group and commits nothing. With -G it is a member of the group and continues after the group's
    committed offsets; partitions without one begin at -o (beginning or end). If a member dies, another may print its last
    records again.

    Values go to stdout unchanged. Ctrl-C or a closed pipe ends the command.
    """
    from deploy.commands.record_text import parse_start
    from deploy.local.locate import locate_kafka
    from ingest.tail import tail as follow

    name = _topic(topic, topic_option)
    begin = parse_start(start or ("-10" if group is None else "end"))
    end = None if stop is None else parse_start(f"s@{stop}", "--until")
    printer = _Printer(_render(form, key_delimiter, delimiter_text, as_json=as_json), count)
    if group is not None:
        if begin.kind not in ("beginning", "end") or partition is not None or end is not None:
            msg = "With -G, use only -o beginning or -o end, and neither -p nor --until: Kafka assigns the partitions."
            raise typer.BadParameter(msg)
        kafka = locate_kafka(config, data, brokers)
        _read_as_member(kafka, name, group, begin.kind, printer, protocol=protocol, follow=not exit_at_end)
        return
    kafka = locate_kafka(config, data, brokers)
    records = follow(
        kafka, name, begin, partition=partition, stop=end, follow=not exit_at_end, ended=printer.nobody_reads
    )
    for record in records:
        if not printer.take(record):
            return


class _Printer:
    """Print records to stdout until the count is reached or the reader (such as `head`) has closed the pipe."""

    def __init__(self, render: "Callable[[TailRecord], bytes]", count: int | None) -> None:
        self._render, self._left = render, count

    def take(self, record: "TailRecord") -> bool:
        """Print one record; return False after the last one."""
        try:
            sys.stdout.buffer.write(self._render(record))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Else Python would report the error again at exit.
            sys.stdout = None
            return False
        if self._left is not None:
            self._left -= 1
        return self._left != 0

    def nobody_reads(self) -> bool:
        """Return True if the pipe's reader is gone. A write would notice it, but there may be no record for hours."""
        import select

        try:
            poller = select.poll()
            poller.register(sys.stdout.fileno(), 0)
            return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poller.poll(0))
        except (OSError, ValueError):
            return False


def _read_as_member(
    kafka: "KafkaSettings",
    topic: str,
    group: str,
    fresh: 'Literal["beginning", "end"]',
    printer: _Printer,
    *,
    protocol: 'Literal["classic", "consumer"]',
    follow: bool,
) -> None:
    from deploy.process import terminated_as_interrupted
    from ingest.tail_group import read_as_member

    def tell(partitions: list[int]) -> None:
        reads = f"reads {topic} {', '.join(f'[{one}]' for one in partitions)}" if partitions else "has no partition"
        typer.echo(f"Group {group}: this member {reads}", err=True)

    with terminated_as_interrupted():
        read_as_member(
            kafka, topic, group, printer.take, fresh=fresh, follow=follow, protocol=protocol, assigned=tell,
            ended=printer.nobody_reads,
        )  # fmt: skip


def _render(form: str | None, key_delimiter: str | None, ends: str, *, as_json: bool) -> "Callable[[Any], bytes]":
    from deploy.commands.record_text import compile_format, json_line, parse_delimiter

    if as_json:
        return lambda record: json_line(record).encode("utf-8", "backslashreplace") + b"\n"
    if form is not None:
        return compile_format(form)
    end = parse_delimiter(ends)
    if key_delimiter is None:
        return lambda record: (record.value or b"") + end
    between = parse_delimiter(key_delimiter)
    return lambda record: (record.key or b"") + between + (record.value or b"") + end


def _topic(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        msg = "Name one topic: TOPIC or -t TOPIC."
        raise typer.BadParameter(msg)
    return argument or option or ""


def _input(file: Path | None) -> Any:
    from contextlib import nullcontext

    return nullcontext(sys.stdin.buffer) if file is None else file.open("rb")
