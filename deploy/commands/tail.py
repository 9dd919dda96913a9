"""`tidegate tail`: read records of any Kafka topic, with kcat's option letters."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deploy.commands.options import Brokers, ConfigF, Data, KeyDelimiter, Partition, Topic, TopicOption, one_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingest.kafka_settings import KafkaSettings
    from ingest.read.tail import TailRecord

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(tail)


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
    from deploy.local.locate_settings import locate_kafka
    from ingest.read.tail import tail as follow

    name = one_topic(topic, topic_option)
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
        kafka, name, begin, partition=partition, stop=end, follow=not exit_at_end, ended=printer.has_no_reader
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

    def has_no_reader(self) -> bool:
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
    from deploy.process_signals import terminated_as_interrupted
    from ingest.read.group_member import read_as_member

    def tell(partitions: list[int]) -> None:
        reads = f"reads {topic} {', '.join(f'[{one}]' for one in partitions)}" if partitions else "has no partition"
        typer.echo(f"Group {group}: this member {reads}", err=True)

    with terminated_as_interrupted():
        read_as_member(
            kafka, topic, group, printer.take, fresh=fresh, follow=follow, protocol=protocol, assigned=tell,
            ended=printer.has_no_reader,
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
