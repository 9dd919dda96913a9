"""Security of an embedded run (`up --secure`): certificates, TLS of both brokers, and what each part may know and do.

Kafka runs as a node of a secured test bed. Its users and their rights are set at each start over the internal listener, with the
certificate of the administrator. So a data folder that was plain gets them as well, and no password is in a command line.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from deploy.certificates.folder import AUTHORITY_KEY_FILE, issue_leaves
from deploy.certificates.issue import LeafRequest
from deploy.kafka_users import part_roles
from deploy.local.broker import BrokerTls, choose_broker, find_mosquitto
from deploy.local.broker_rights import find_plugin
from deploy.local.kafka import KafkaProfile, new_cluster_id
from deploy.local.run_logins import CERTIFICATES, RunLogins, read_kafka_logins
from deploy.settings import Settings
from deploy.testbed.cluster_layout import ClusterLayout, ClusterRequest
from deploy.testbed.cluster_security import ADMIN, AUTHORITY_FILE, NODE_FILE, client_security, make_certificates
from deploy.testbed.node import node_profile
from gateway.gateway_settings import MqttSettings
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.roles import Role

__all__ = [
    "broker_tls",
    "check_secured",
    "kafka_profile",
    "kafka_roles",
    "make_run_certificates",
    "part_settings",
    "secured_settings",
    "set_kafka_users",
]

HOST: Final = "127.0.0.1"
COMMANDS: Final = "operator"
"""Kafka's user for the commands: config.toml has its password."""
LEAF_DAYS: Final = 1825
_MQTT: Final = "mqtt"
_LOOPBACK: Final = (HOST, "localhost")
_LEAVES: Final = {
    f"server-{_MQTT}.pem": LeafRequest(_MQTT, _LOOPBACK, LEAF_DAYS),
    f"client-{ADMIN}.pem": LeafRequest(ADMIN, (), LEAF_DAYS),
}
_MQTT_LOGINS: Final = {"canary": "canary", "monitor": "monitor", "fleet": "devices"}
"""Login in `[mqtt]` of each part but the gateway, which has the one of the section itself."""
_PARTS: Final = ("gateway", "stream", "fleet", "canary", "monitor")


def check_secured(settings: Settings, data: Path, *, was_secured: bool) -> None:
    """Check that this machine and these settings allow a secured run; nothing is written.

    Raises:
        ConfigError: the settings ask for plain MQTT, or the folder has certificates of another origin.
        UnavailableError: there is no mosquitto with an access list.
    """
    if settings.embedded.mqtt_allow_plaintext:
        message = (
            "up --secure and embedded.mqtt_allow_plaintext exclude each other. Remove the setting; for other machines set "
            "embedded.mqtt_cert_file and embedded.mqtt_key_file."
        )
        raise ConfigError(message)
    executable = find_mosquitto() if choose_broker(settings.embedded.broker) == "mosquitto" else None
    if executable is None or find_plugin(executable) is None:
        message = (
            "up --secure needs mosquitto with its plugin mosquitto_dynamic_security for TLS and rights. Install it, and set "
            "embedded.broker to mosquitto or auto."
        )
        raise UnavailableError(message)
    folder = data / CERTIFICATES
    if not was_secured and any((folder / name).exists() for name in (AUTHORITY_FILE, AUTHORITY_KEY_FILE)):
        message = (
            f"{folder} has certificates that no `up --secure` made, and they stay as they are. Move this folder, or name "
            "another one with --data."
        )
        raise ConfigError(message)


def make_run_certificates(data: Path) -> None:
    """Make the authority of the run and the certificates of Kafka, of the MQTT broker and of Kafka's administrator.

    Existing ones stay. If the authority's or Kafka's certificate is missing, all are made again.

    Raises:
        UnavailableError: the folder cannot be written.
    """
    folder = data / CERTIFICATES
    if not all((folder / name).is_file() for name in (AUTHORITY_FILE, NODE_FILE)):
        for name in _LEAVES:
            (folder / name).unlink(missing_ok=True)
    make_certificates(folder, f"Tidegate run {datetime.now(UTC):%Y-%m-%d}")
    if missing := [request for name, request in _LEAVES.items() if not (folder / name).is_file()]:
        issue_leaves(folder, missing, now=datetime.now(UTC))


def broker_tls(data: Path) -> BrokerTls:
    """Return the TLS of the MQTT broker on loopback."""
    folder = data / CERTIFICATES
    file = str(folder / f"server-{_MQTT}.pem")
    return BrokerTls(file, file, str(folder / AUTHORITY_FILE))


def kafka_profile(data: Path, ports: Mapping[str, int]) -> KafkaProfile:
    """Return the profile of Kafka: a secured test bed of one node, whose users come after its start."""
    listeners = {
        "client": ports["kafka"], "internal": ports["kafka_internal"], "controller": ports["kafka_controller"],
    }  # fmt: skip
    layout = ClusterLayout(ClusterRequest(security="sasl_ssl"), new_cluster_id(), {"1": listeners}, passwords={})
    return node_profile(layout, 1, data / CERTIFICATES)


def secured_settings(data: Path, logins: RunLogins) -> dict[str, dict[str, Any]]:
    """Return by section what a secured run decides for the commands, whose user in Kafka is the operator."""
    authority = str(data / CERTIFICATES / AUTHORITY_FILE)
    return {
        "mqtt": {"tls": True, "ca_file": authority},
        "kafka": {
            **dict.fromkeys(name for name in KafkaSettings.model_fields if name.startswith(("ssl_", "oauth_"))),
            "security_protocol": "SASL_SSL",
            **client_security(data / CERTIFICATES, COMMANDS, logins.kafka, encrypts=True),
        },
    }


def part_settings(settings: Settings, data: Path, ports: Mapping[str, int], logins: RunLogins) -> dict[str, Settings]:
    """Return the settings of each part: those of the commands, with the logins of this part instead of all others.

    `admin` has Kafka's administrator, by certificate on the internal listener.
    """
    found = {name: _with(settings, name, _kafka_of(settings.kafka, name, logins)) for name in _PARTS}
    certificate = str(data / CERTIFICATES / f"client-{ADMIN}.pem")
    admin = _kafka_of(settings.kafka, ADMIN, logins).model_copy(
        update={
            "bootstrap_servers": f"{HOST}:{ports['kafka_internal']}",
            "security_protocol": "SSL",
            "ssl_certificate_file": certificate,
            "ssl_key_file": certificate,
        }
    )
    return {**found, ADMIN: _with(settings, ADMIN, admin)}


def _with(settings: Settings, part: str, kafka: KafkaSettings) -> Settings:
    return settings.model_copy(update={"kafka": kafka, "mqtt": _mqtt_of(settings.mqtt, part)})


def _kafka_of(kafka: KafkaSettings, part: str, logins: RunLogins) -> KafkaSettings:
    """Return the settings of Kafka with the user of this part; without any if the part does not use Kafka."""
    if part not in logins.kafka:
        return kafka.model_copy(update=dict.fromkeys(("sasl_mechanism", "sasl_username", "sasl_password")))
    return kafka.model_copy(update={"sasl_username": part, "sasl_password": SecretStr(logins.kafka[part])})


def _mqtt_of(mqtt: MqttSettings, part: str) -> MqttSettings:
    """Return the settings of MQTT with the login of this part; the client id of the gateway is a secret as well."""
    own = _MQTT_LOGINS.get(part)
    others: dict[str, Any] = {name: None for name in _MQTT_LOGINS.values() if name != own}
    if part != "gateway":
        others |= {"username": None, "password": None, "client_id": MqttSettings.model_fields["client_id"].default}
    return mqtt.model_copy(update=others)


def kafka_roles(settings: Settings) -> dict[str, tuple[Role, ...]]:
    """Return the roles of each user of Kafka, as `tidegate topics acl` knows them."""
    return {**part_roles(settings), COMMANDS: (Role.OPERATOR,)}


def set_kafka_users(settings: Settings, logins: Path) -> None:
    """Give each user of Kafka its password and exactly the rights of its roles. Rights that somebody added to them end.

    Args:
        settings: settings of the administrator.
        logins: private file of the run.

    Raises:
        RetryableError: Kafka does not answer.
    """
    from ingest.topics.acl import apply_acls, plan_acls
    from ingest.topics.scram_users import set_scram_users

    set_scram_users(settings.kafka, read_kafka_logins(logins))
    for user, roles in kafka_roles(settings).items():
        principal = f"User:{user}"
        plan = plan_acls(settings.kafka, principal, roles)
        if plan.missing or plan.surplus:
            apply_acls(settings.kafka, principal, add=plan.missing, remove=plan.surplus)
