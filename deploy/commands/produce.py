"""`tidegate produce`: write records of any Kafka topic by hand, with kcat's option letters."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Brokers, ConfigF, Data, Json, KeyDelimiter, Partition, Topic, TopicOption, one_topic

if TYPE_CHECKING:
    pass

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    """Add the command to the command line."""
    parent.command()(produce)


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
    from deploy.local.locate_settings import locate_kafka
    from deploy.local.text_format import format_counted
    from ingest.contract.errors import FatalError, UnavailableError
    from ingest.kafka_settings import KafkaSettings
    from ingest.lag.cluster_probe import is_own_topic
    from ingest.manual_producer import send_outgoing

    name = one_topic(topic, topic_option)
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


def _input(file: Path | None) -> Any:
    from contextlib import nullcontext

    return nullcontext(sys.stdin.buffer) if file is None else file.open("rb")
