"""Services of the Compose file that are not Tidegate's: broker, Kafka, Prometheus, Alertmanager and Grafana."""

import shlex
from pathlib import Path
from typing import Any, Final

from deploy.export.compose_settings import ContainerSetup
from deploy.local.broker import Mosquitto
from deploy.local.budget import KAFKA_BEYOND_HEAP_MB, WATCHERS_MB
from deploy.settings import Settings

__all__ = ["GROUP", "confined", "mosquitto_configuration", "server_services"]

GROUP: Final = "10001"
"""Group of the image, which owns the files of the secrets."""
IMAGES: Final = {
    "mosquitto": "eclipse-mosquitto:2.0.22",
    "kafka": "apache/kafka:4.3.1",
    "prometheus": "prom/prometheus:v3.5.0",
    "alertmanager": "prom/alertmanager:v0.28.1",
    "grafana": "grafana/grafana:12.1.1",
}
GRAFANA: Final = "/etc/tidegate-grafana"
_MOSQUITTO_DATA: Final = "/mosquitto/data"
_PASSWORDS: Final = "/tmp/passwords"  # noqa: S108 - a file system in memory of this container alone
_QUEUE_MB: Final = 256
"""Messages that mosquitto keeps for one absent client, by its configuration."""
_SPARE: Final = 4


def confined(*, memory_mb: int, pids: int, temporary_mb: int = 16, writable: bool = False) -> dict[str, Any]:
    """Return the limits of a service: memory, processes, log, and nothing to write besides /tmp and its volumes.

    Args:
        memory_mb: limit of its memory; /tmp comes on top, because it is memory.
        pids: most processes and threads.
        temporary_mb: size of /tmp.
        writable: True for an image that changes its own files when it starts.
    """
    return {
        "restart": "unless-stopped",
        **({} if writable else {"read_only": True}),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        # Java and Snappy load libraries that they unpack there.
        "tmpfs": [f"/tmp:exec,mode=1777,size={temporary_mb}m"],  # noqa: S108 - in memory of this container alone
        "mem_limit": f"{memory_mb + temporary_mb}m",
        "pids_limit": pids,
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
    }


def health(*test: str, start_seconds: int = 10) -> dict[str, Any]:
    """Return a health check every ten seconds; failures of the first `start_seconds` do not count."""
    return {
        "test": ["CMD", *test],
        "interval": "10s",
        "timeout": "5s",
        "retries": 6,
        "start_period": f"{start_seconds}s",
    }


def server_services(setup: ContainerSetup) -> dict[str, Any]:
    """Return name -> service."""
    settings = setup.settings
    return {
        **({"mosquitto": _mosquitto(setup)} if setup.own_broker else {}),
        **({"kafka": _kafka(settings)} if setup.own_kafka else {}),
        "prometheus": _prometheus(setup),
        "alertmanager": _alertmanager(),
        "grafana": _grafana(),
    }


class _InContainer(Mosquitto):
    """The broker's configuration with the paths of its image."""

    def __init__(self, user: str, window: int) -> None:
        # The password comes from a secret when the container starts.
        super().__init__(Path(_MOSQUITTO_DATA), 1883, users={user: "-"}, window=window)

    def _entrance(self) -> list[str]:
        return ["listener 1883", "allow_anonymous false", f"password_file {_PASSWORDS}"]

    def text(self) -> str:
        """Return mosquitto.conf; the image runs it as its own user, so the file names none."""
        lines = self._configuration().replace(f"{self.folder}/", f"{_MOSQUITTO_DATA}/").splitlines()
        return "".join(f"{line}\n" for line in lines if not line.startswith("user "))


def mosquitto_configuration(settings: Settings) -> str:
    """Return mosquitto.conf: the durable configuration of an embedded run."""
    return _InContainer(settings.mqtt.username or "", settings.gateway.window_messages).text()


def _mosquitto(setup: ContainerSetup) -> dict[str, Any]:
    user = shlex.quote(setup.settings.mqtt.username or "")
    # printf belongs to the shell, so no argument of a process holds the password. In a file of users and passwords
    # (mosquitto_passwd -U) a password would end at its first colon. `$$` is one `$` in a Compose file.
    start = (
        f'umask 077 && rm -f {_PASSWORDS} && p="$$(cat /run/secrets/mqtt.password)"'
        f' && printf \'%s\\n%s\\n\' "$$p" "$$p" | mosquitto_passwd -c {_PASSWORDS} {user} > /dev/null'
        " && exec mosquitto -c /mosquitto/config/mosquitto.conf"
    )
    return {
        "image": IMAGES["mosquitto"],
        "user": "1883:1883",
        "group_add": [GROUP],
        "command": ["sh", "-c", start],
        "ports": [f"${{TIDEGATE_MQTT_ADDRESS:-127.0.0.1}}:{setup.mqtt_port}:1883"],
        "secrets": ["mqtt.password"],
        "volumes": ["./mosquitto:/mosquitto/config:ro", f"mosquitto:{_MOSQUITTO_DATA}"],
        "healthcheck": health("nc", "-z", "127.0.0.1", "1883"),
        "stop_grace_period": "20s",
        **confined(memory_mb=_QUEUE_MB * _SPARE, pids=32),
    }


def _kafka(settings: Settings) -> dict[str, Any]:
    heap = settings.embedded.kafka_heap
    number, unit = int(heap[:-1]), heap[-1].lower()
    heap_mb = max(1, int(number * {"k": 1 / 1024, "m": 1, "g": 1024}[unit]))
    return {
        "image": IMAGES["kafka"],
        "environment": {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
            "KAFKA_HEAP_OPTS": f"-Xms{heap} -Xmx{heap}",
        },
        "volumes": ["kafka:/var/lib/kafka/data"],
        # Without a JVM: Kafka's own tools start one per look.
        "healthcheck": health("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9092", start_seconds=60),
        "stop_grace_period": "60s",
        # The image writes its configuration into its own folder when it starts.
        **confined(memory_mb=round((heap_mb + KAFKA_BEYOND_HEAP_MB) * 1.25), pids=512, writable=True),
    }


def _prometheus(setup: ContainerSetup) -> dict[str, Any]:
    names = [name for name, users in setup.secrets.items() if "prometheus" in users]
    return {
        "image": IMAGES["prometheus"],
        "command": [
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            "--storage.tsdb.retention.time=30d",
            "--storage.tsdb.retention.size=5GB",
        ],
        "ports": ["127.0.0.1:9090:9090"],
        **({"group_add": [GROUP], "secrets": names} if names else {}),
        "volumes": ["./prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
        "healthcheck": health("wget", "-q", "-O", "/dev/null", "http://127.0.0.1:9090/-/ready"),
        **confined(memory_mb=WATCHERS_MB["prometheus"] * _SPARE, pids=128),
    }


def _alertmanager() -> dict[str, Any]:
    return {
        "image": IMAGES["alertmanager"],
        "command": ["--config.file=/etc/alertmanager/alertmanager.yml", "--storage.path=/alertmanager"],
        "ports": ["127.0.0.1:9093:9093"],
        "volumes": [
            "./prometheus/alertmanager.yml:/etc/alertmanager/alertmanager.yml:ro",
            "alertmanager:/alertmanager",
        ],
        "healthcheck": health("wget", "-q", "-O", "/dev/null", "http://127.0.0.1:9093/-/ready"),
        **confined(memory_mb=WATCHERS_MB["alertmanager"] * _SPARE, pids=128),
    }


def _grafana() -> dict[str, Any]:
    return {
        "image": IMAGES["grafana"],
        "group_add": [GROUP],
        "environment": {
            "GF_PATHS_PROVISIONING": f"{GRAFANA}/provisioning",
            "GF_SECURITY_ADMIN_PASSWORD__FILE": "/run/secrets/grafana.password",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "TIDEGATE_GRAFANA": GRAFANA,
            "TIDEGATE_PROMETHEUS_URL": "http://prometheus:9090",
        },
        "ports": ["127.0.0.1:3000:3000"],
        "secrets": ["grafana.password"],
        "volumes": [f"./grafana:{GRAFANA}:ro", "grafana:/var/lib/grafana"],
        "depends_on": {"prometheus": {"condition": "service_healthy"}},
        "healthcheck": health("wget", "-q", "-O", "/dev/null", "http://127.0.0.1:3000/api/health", start_seconds=60),
        **confined(memory_mb=512, pids=256),
    }
