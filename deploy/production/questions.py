"""Questions for a first settings file: what only the operator knows, each with its flag and a default.

Values are flat: `section.field` to a plain value. A value that is given, by a flag or by an imported file, is not asked.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal, get_args

from deploy.settings import load_settings
from ingest.contract.errors import ConfigError
from ingest.kafka_settings import KafkaSettings
from lakehouse.paths import is_local, to_path
from monitoring.addresses import is_loopback

__all__ = ["PAGE_LOGIN", "QUESTIONS", "Question", "Values", "answer_all", "complete", "split_page"]

Values = dict[str, Any]
"""Setting to value."""
Ask = Callable[[str, str], str]
"""Show a question and a default, and return the answer; an empty default needs an answer or none."""

PAGE: Final = "page"
"""Not a setting: HOST:PORT of the ops page, which is `monitoring.host` and `monitoring.page_port`."""
SERVERS: Final = "kafka.bootstrap_servers"
REPLICATION: Final = "kafka.replication"
_NO: Final = ("n", "no", "false", "0")
_YES: Final = ("y", "yes", "true", "1")
_TLS_PORT: Final = 8883
_PLAIN_PORT: Final = 1883
_STATE: Final = "/var/lib/tidegate"
PAGE_LOGIN: Final = "read_token_file"


def _constant(value: Any) -> Callable[[Values], Any]:
    return lambda _values: value


def _nothing(_values: Values) -> None:
    """Return no default."""


def _always(_values: Values) -> bool:
    return True


def _is_secure(protocol: str) -> Callable[[Values], bool]:
    return lambda values: protocol in str(values.get("kafka.security_protocol", ""))


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        setting: `section.field`, or `page`.
        flag: name of the option of `tidegate init prod`.
        text: the question.
        default: from the values so far; None if there is no default.
        needed: whether the file makes no sense without a value.
        applies: whether the question makes sense with the values so far.
        kind: form of the value.
    """

    setting: str
    flag: str
    text: str
    default: Callable[[Values], Any] = _nothing
    needed: bool = False
    applies: Callable[[Values], bool] = _always
    kind: Literal["text", "yes_no", "number"] = "text"


def _protocol(values: Values) -> str:
    if values.get("kafka.sasl_username"):
        return "SASL_SSL"
    return "SSL" if values.get("kafka.ssl_ca_file") else "PLAINTEXT"


def _choices(field: str) -> str:
    names = [
        name for part in get_args(KafkaSettings.model_fields[field].annotation) for name in (get_args(part) or (part,))
    ]
    return ", ".join(str(name) for name in names if isinstance(name, str))


_AUTHORITY: Final = "PEM file of the authority that signed the certificate of {} (empty: those of this system)"
QUESTIONS: Final = (
    Question("mqtt.host", "--mqtt-host", "Host of the MQTT broker", needed=True),
    Question(
        "mqtt.tls",
        "--mqtt-tls",
        "Connect to the broker with TLS",
        lambda values: values.get("mqtt.port") == _TLS_PORT or "mqtt.ca_file" in values,
        kind="yes_no",
    ),
    Question(
        "mqtt.port",
        "--mqtt-port",
        "Port of the MQTT broker",
        lambda values: _TLS_PORT if values.get("mqtt.tls") else _PLAIN_PORT,
        kind="number",
    ),
    Question(
        "mqtt.ca_file",
        "--mqtt-ca-file",
        _AUTHORITY.format("the broker"),
        applies=lambda values: bool(values.get("mqtt.tls")),
    ),
    Question("mqtt.username", "--mqtt-user", "User at the broker (empty: no login)"),
    Question(SERVERS, "--kafka-servers", "Kafka brokers, HOST:PORT,…", needed=True),
    Question(
        "kafka.security_protocol",
        "--kafka-security",
        f"Security of Kafka ({_choices('security_protocol')})",
        _protocol,
    ),
    Question(
        "kafka.sasl_mechanism",
        "--kafka-mechanism",
        f"Login mechanism of Kafka ({_choices('sasl_mechanism')})",
        _constant("SCRAM-SHA-512"),
        applies=_is_secure("SASL"),
    ),
    Question("kafka.sasl_username", "--kafka-user", "User at Kafka", needed=True, applies=_is_secure("SASL")),
    Question("kafka.ssl_ca_file", "--kafka-ca-file", _AUTHORITY.format("Kafka"), applies=_is_secure("SSL")),
    Question(REPLICATION, "--replication", "Copies of each partition (empty: 3, or one per broker)", kind="number"),
    Question(
        "lake.root",
        "--tables",
        "Root of the tables: a local path, or a URI such as s3a://bucket/tables",
        _constant(f"{_STATE}/tables"),
    ),
    Question(
        "stream.master",
        "--spark-master",
        "Spark master (local[2], spark://HOST:PORT, k8s://…, yarn)",
        _constant("local[2]"),
    ),
    Question("gateway.gateway_id", "--gateway-id", "Name of this gateway, unique per gateway", _constant("gw-1")),
    Question(PAGE, "--page", "Address of the ops page, HOST:PORT", _constant("127.0.0.1:9470")),
)


def answer_all(
    given: Mapping[str, Any],
    ask: Ask | None,
    on_wrong: Callable[[str], None],
    *,
    find_replication: Callable[[Values], int | None] = _nothing,
) -> tuple[Values, list[Question]]:
    """Return the given values with an answer or a default for each other question, and the needed ones without a value.

    Args:
        given: values of flags and of an imported file; None means not given.
        ask: asks a person; without it defaults are used.
        on_wrong: gets one sentence per answer that a setting does not accept; the question comes again.
        find_replication: returns the copies that fit the cluster of these values; None if it does not answer.
    """
    values = {path: value for path, value in given.items() if value is not None}
    missing = []
    for question in QUESTIONS:
        if question.setting in values or not question.applies(values):
            continue
        asks_kafka = question.setting == REPLICATION and SERVERS in values
        default = find_replication(values) if asks_kafka else question.default(values)
        value = default if ask is None else _answer(question, default, values, ask, on_wrong)
        if value is not None:
            values[question.setting] = value
        elif question.needed:
            missing.append(question)
    return values, missing


def _answer(question: Question, default: Any, values: Values, ask: Ask, on_wrong: Callable[[str], None]) -> Any:
    while True:
        shown = ("yes" if default else "no") if question.kind == "yes_no" else "" if default is None else str(default)
        try:
            value = _parse(question, ask(question.text, shown).strip() or shown)
            if value is None and question.needed:
                on_wrong("This value is needed.")
                continue
            if value is not None:
                _check(question.setting, value, values)
        except ConfigError as error:
            on_wrong(str(error))
        else:
            return value


def _check(setting: str, value: Any, values: Values) -> None:
    """Raise ConfigError if the settings accept the value neither alone nor with the earlier ones.

    Alone it may lack what it needs, such as TLS for a certificate. An earlier value may be wrong itself; writing reports that.
    """
    try:
        load_settings(overrides=split_page({setting: value}), environ={})
    except ConfigError as error:
        try:
            load_settings(overrides=split_page({**values, setting: value}), environ={})
        except ConfigError:
            raise error from None


def _parse(question: Question, text: str) -> Any:
    if not text:
        return None
    if question.kind == "yes_no":
        if text.lower() not in (*_YES, *_NO):
            message = "Answer yes or no."
            raise ConfigError(message)
        return text.lower() in _YES
    if question.kind == "number":
        if not text.isdecimal():
            message = "Answer with a whole number."
            raise ConfigError(message)
        return int(text)
    return text


def split_page(values: Mapping[str, Any]) -> Values:
    """Return the values with `page` as the two settings that it names.

    Raises:
        ConfigError: it is not HOST:PORT.
    """
    rest = {path: value for path, value in values.items() if path != PAGE}
    if PAGE not in values:
        return rest
    host, _, port = str(values[PAGE]).rpartition(":")
    if not host or not port.isdecimal():
        message = (
            f"The address of the ops page is {values[PAGE]!r}, wanted HOST:PORT such as 127.0.0.1:9470. Correct --page."
        )
        raise ConfigError(message)
    return {**rest, "monitoring.host": host.strip("[]"), "monitoring.page_port": int(port)}


def complete(values: Mapping[str, Any]) -> Values:
    """Return the values with those that follow from them: client id, and places of state next to the tables."""
    root = str(values["lake.root"])
    state = str(to_path(root).parent) if is_local(root) else _STATE
    whole = split_page(values)
    gateway = whole["gateway.gateway_id"]
    derived: Values = {
        "mqtt.client_id": f"tidegate-{gateway}",
        "mqtt.session_file": f"{state}/{gateway}-session.json",
        "stream.checkpoint": _beside(root),
    }
    if _is_name(host := str(whole["monitoring.host"])):
        derived["monitoring.page_hosts"] = [host]
    if not is_loopback(host):
        derived[f"monitoring.{PAGE_LOGIN}"] = f"{state}/{PAGE_LOGIN.removesuffix('_file')}"
    return {**derived, **whole}


def _beside(root: str) -> str:
    """Return the checkpoint's place next to the tables: in the same folder or bucket, never inside the tables."""
    if is_local(root):
        return str(to_path(root).parent / "checkpoints" / "land")
    scheme, _, rest = root.partition("://")
    folder = PurePosixPath(rest.rstrip("/"))
    parent = folder.parent if folder.parent != PurePosixPath(".") else folder
    return f"{scheme}://{parent}/checkpoints/land"


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False
