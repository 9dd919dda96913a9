"""`tidegate init prod | from-confluent-mqtt-proxy | from-telegraf`: write a first settings file for production."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Json, show_json

if TYPE_CHECKING:
    from deploy.production.questions import Question

__all__ = ["register"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Set-up: write a first settings file for production."
)

Target = Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")]
Output = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Settings file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SETTING=VALUE", help="A setting that the file does not name; repeatable.", show_default=False
    ),
]
DEFAULT = Path("tidegate.toml")


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="init")


@app.command()
def prod(
    file: Target = DEFAULT,
    mqtt_host: Annotated[str | None, _option("--mqtt-host", help="Host of the MQTT broker.")] = None,
    mqtt_port: Annotated[
        int | None, _option("--mqtt-port", help="Port of the MQTT broker (default: 1883, with TLS 8883).")
    ] = None,
    mqtt_tls: Annotated[
        bool | None, _option("--mqtt-tls/--no-mqtt-tls", help="Connect to the broker with TLS.")
    ] = None,
    mqtt_ca_file: Annotated[str | None, _option("--mqtt-ca-file", help="PEM file of the broker's authority.")] = None,
    mqtt_user: Annotated[str | None, _option("--mqtt-user", help="User at the broker.")] = None,
    kafka_servers: Annotated[
        str | None, _option("--kafka-servers", metavar="HOST:PORT,…", help="Kafka brokers.")
    ] = None,
    kafka_security: Annotated[
        str | None, _option("--kafka-security", help="kafka.security_protocol, such as SASL_SSL.")
    ] = None,
    kafka_mechanism: Annotated[
        str | None, _option("--kafka-mechanism", help="kafka.sasl_mechanism, such as SCRAM-SHA-512.")
    ] = None,
    kafka_user: Annotated[str | None, _option("--kafka-user", help="User at Kafka.")] = None,
    kafka_ca_file: Annotated[
        str | None, _option("--kafka-ca-file", help="PEM file of the authority of Kafka's brokers.")
    ] = None,
    replication: Annotated[
        int | None, _option("--replication", help="Copies of each Kafka partition (default: 3, or one per broker).")
    ] = None,
    tables: Annotated[
        str | None, _option("--tables", help="Root of the tables: a local path, or a URI such as s3a://….")
    ] = None,
    spark_master: Annotated[str | None, _option("--spark-master", help="Spark master (default: local[2]).")] = None,
    gateway_id: Annotated[str | None, _option("--gateway-id", help="Name of this gateway (default: gw-1).")] = None,
    page: Annotated[
        str | None, _option("--page", metavar="HOST:PORT", help="Address of the ops page (default: 127.0.0.1:9470).")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a settings file for production.

    On a terminal it asks for each value that no option gives. Elsewhere it takes the defaults. The file holds no secrets: the
    next steps name the environment variables to set. An existing file stays unless --force is given.
    """
    given = {
        "mqtt.host": mqtt_host,
        "mqtt.port": mqtt_port,
        "mqtt.tls": mqtt_tls,
        "mqtt.ca_file": mqtt_ca_file,
        "mqtt.username": mqtt_user,
        "kafka.bootstrap_servers": kafka_servers,
        "kafka.security_protocol": kafka_security,
        "kafka.sasl_mechanism": kafka_mechanism,
        "kafka.sasl_username": kafka_user,
        "kafka.ssl_ca_file": kafka_ca_file,
        "kafka.replication": replication,
        "lake.root": tables,
        "stream.master": spark_master,
        "gateway.gateway_id": gateway_id,
        "page": page,
    }
    _write(file, given, force=force, as_json=as_json, flag=lambda question: question.flag)


@app.command("from-confluent-mqtt-proxy")
def from_confluent_mqtt_proxy(
    properties: Annotated[Path, typer.Argument(metavar="FILE.properties", help="Settings of the proxy.")],
    out: Output = DEFAULT,
    given: Given = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Import Confluent's MQTT Proxy.

    Writes a settings file with Kafka's servers, security and user, and the topics. Names each key that has no counterpart,
    with the reason. The proxy is itself what devices connect to, so name the MQTT broker that replaces it with
    --set mqtt.host=HOST.
    """
    from deploy.production.confluent_proxy import read_proxy

    _import(properties, read_proxy(properties), out, given, force=force, as_json=as_json)


@app.command("from-telegraf")
def from_telegraf(
    conf: Annotated[Path, typer.Argument(metavar="telegraf.conf", help="Settings of Telegraf.")],
    out: Output = DEFAULT,
    given: Given = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Import Telegraf's MQTT and Kafka.

    Writes a settings file from `inputs.mqtt_consumer` and `outputs.kafka`: broker, user, TLS files, topics with their data
    formats, and Kafka's servers, security and user. Names each key that has no counterpart, with the reason.
    """
    from deploy.production.telegraf import read_telegraf

    _import(conf, read_telegraf(conf), out, given, force=force, as_json=as_json)


def _import(source: Path, found: Any, out: Path, given: Sequence[str] | None, *, force: bool, as_json: bool) -> None:
    head = [f"Imported from {source.name} with `tidegate init`.", *found.notes]
    _write(
        out, {**found.values, **_settings_of(given or ())}, force=force, as_json=as_json, head=head, imported=found,
        flag=lambda question: f"--set {question.setting}=…",
    )  # fmt: skip


def _settings_of(given: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            message = f"--set {text!r}: wanted SECTION.FIELD=VALUE, such as mqtt.host=broker.example.org."
            raise typer.BadParameter(message)
        values[path.strip()] = {"true": True, "false": False}.get(value, int(value) if value.isdecimal() else value)
    return values


def _write(
    file: Path, given: Mapping[str, Any], *, force: bool, as_json: bool, flag: "Callable[[Question], str]",
    head: Sequence[str] = (), imported: Any = None,
) -> None:  # fmt: skip
    from deploy.production.first_file import find_replication, steps_text, write_first_file
    from deploy.production.questions import answer_all
    from deploy.settings_file import write_new

    if file.exists() and not force:
        write_new(file, "")
    is_terminal = sys.stdin.isatty() and not as_json
    values, missing = answer_all(given, _ask if is_terminal else None, _complain, find_replication=find_replication)
    if missing:
        message = (
            f"These values are needed: {', '.join(map(flag, missing))}. Give them, or run the command on a terminal."
        )
        raise typer.BadParameter(message)
    left_out = imported.left_out if imported else ()
    made = write_first_file(
        file, values, overwrite=force, head=head or ["Written by `tidegate init prod`. All settings: `tidegate config schema`."],
        tables=imported.tables if imported else None, left_out=left_out,
    )  # fmt: skip
    if as_json:
        show_json(made.as_dict())
        return
    typer.echo(f"Wrote {file}.", err=True)
    for one in left_out:
        typer.echo(f"not taken  {one.key}: {one.reason}")
    typer.echo(steps_text(made))


def _ask(text: str, default: str) -> str:
    return str(typer.prompt(text, default=default, show_default=bool(default), err=True))


def _complain(text: str) -> None:
    typer.echo(text, err=True)
