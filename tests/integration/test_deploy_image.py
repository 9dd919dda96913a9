"""The image with real servers: all parts in containers, confined as the Compose file says, and a reading that comes back.

It takes a minute and needs podman as root and the image (`make image ENGINE=podman`), so `make test` leaves it out:
`.venv/bin/python -m pytest -m chaos tests/integration/test_deploy_image.py`. TIDEGATE_TEST_IMAGE names another image.
"""

import json
import os
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.export.compose import compose_files
from deploy.export.compose_servers import GROUP
from deploy.local.ports import choose_port
from deploy.settings import Settings

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
IMAGE = os.environ.get("TIDEGATE_TEST_IMAGE", f"tidegate:{VERSION}")
SETTINGS = "/etc/tidegate/tidegate.toml"
PARTS = ("gateway", "stream", "canary", "monitor")
MOST_BYTES = 900_000_000


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("podman as root is not on this machine")
    if subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode:
        pytest.skip(f"there is no image {IMAGE}: run `make image ENGINE=podman`")
    return IMAGE


class Containers:
    """The parts of an exported Compose file, on the host's network, where the servers of the test are."""

    def __init__(self, folder: Path, environment: dict[str, str], ports: dict[str, int]) -> None:
        files = compose_files(Settings(), image=IMAGE)
        self.services = yaml.safe_load(files["compose.yaml"])["services"]
        self.prefix, self.ports = f"tidegate-test-{os.getpid()}-", ports
        self._folder, self._environment = folder, environment
        (folder / "config").mkdir()
        (folder / "config" / "tidegate.toml").write_text(files["config/tidegate.toml"], encoding="utf-8")
        (folder / "secrets").mkdir(mode=0o711)

    def add_secret(self, name: str, text: str) -> None:
        file = self._folder / "secrets" / name
        file.write_text(text + "\n", encoding="utf-8")
        os.chown(file, 0, int(GROUP))
        file.chmod(0o440)

    def start(self, part: str) -> None:
        service = self.services[part]
        # podman would add file systems of its own for what may be written.
        options = ["--network", "host", "--read-only", "--read-only-tmpfs=false", "--user", service["user"]]
        for name, words in {"--cap-drop": service["cap_drop"], "--tmpfs": service["tmpfs"]}.items():
            options += [word for each in words for word in (name, each)]
        options += ["--security-opt", "no-new-privileges", "--memory", service["mem_limit"]]
        options += ["--pids-limit", str(service["pids_limit"])]
        for name, value in {**service.get("environment", {}), **self._environment}.items():
            options += ["--env", f"{name}={value}"]
        for name in service.get("secrets", []):
            options += ["--volume", f"{self._folder}/secrets/{name}:/run/secrets/{name}:ro"]
        for mount in service["volumes"]:
            source, _, rest = mount.partition(":")
            place = str(self._folder / source) if source.startswith("./") else f"{self.prefix}{source}"
            options += ["--volume", f"{place}:{rest}"]
        podman("run", "--detach", "--name", self.prefix + part, *options, IMAGE, *service["command"])

    def run(self, part: str, *command: str, check: bool = True) -> str:
        return podman("exec", self.prefix + part, *command, check=check)

    def healthy(self, part: str) -> bool:
        command = ["python3", "-P", "-m", "deploy.docker.healthz", part, str(self.ports[part])]
        done = subprocess.run(["podman", "exec", self.prefix + part, *command], capture_output=True, check=False)
        return done.returncode == 0

    def logs(self) -> str:
        """Return the last lines of each part, and of Spark's own log."""
        found = []
        for part in PARTS:
            command = ["podman", "logs", "--tail", "20", self.prefix + part]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            found.append(f"{part}:\n{done.stdout}")
        spark = ["sh", "-c", "tail -n 20 /var/lib/tidegate/stream/logs/spark.*"]
        return "\n".join([*found, self.run("stream", *spark, check=False)])

    def remove(self) -> None:
        podman("rm", "--force", "--time", "5", *(self.prefix + part for part in PARTS), check=False)
        names = podman("volume", "ls", "--quiet", check=False).split()
        if own := [name for name in names if name.startswith(self.prefix)]:
            podman("volume", "rm", *own, check=False)


@pytest.fixture
def containers(
    image: str,
    tmp_path: Path,
    new_kafka: Callable[..., Any],
    mqtt_broker: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> Iterator[Containers]:
    del image
    kafka, broker = new_kafka(), mqtt_broker("mosquitto")
    ports = {part: choose_port(0)[0] for part in PARTS}
    targets = {part: [f"127.0.0.1:{port}"] for part, port in ports.items()}
    environment = {
        "TIDEGATE_MQTT__HOST": "127.0.0.1",
        "TIDEGATE_MQTT__PORT": str(broker.port_v5),
        "TIDEGATE_MQTT__USERNAME": broker.username,
        "TIDEGATE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "TIDEGATE_MONITORING__TARGETS": json.dumps(targets),
        "TIDEGATE_MONITORING__PAGE_PORT": str(ports["monitor"]),
        **{f"TIDEGATE_MONITORING__{part.upper()}_PORT": str(ports[part]) for part in PARTS if part != "monitor"},
    }
    made = Containers(tmp_path, environment, ports)
    made.add_secret("mqtt.password", broker.password)
    for name in ("monitoring.page_token", "monitoring.read_token"):
        made.add_secret(name, f"{name} of a test")
    yield made
    made.remove()


def test_a_reading_passes_through_confined_containers(containers: Containers) -> None:
    pytest.importorskip("deploy.settings_secrets", reason="secrets by `file:PATH` are not in this version")
    for part in PARTS:
        containers.start(part)
    for part, seconds in {"monitor": 60, "gateway": 180, "stream": 300, "canary": 180}.items():
        deadline = time.monotonic() + seconds
        while not containers.healthy(part):
            assert time.monotonic() < deadline, f"{part} is not healthy after {seconds} s:\n{containers.logs()}"
            time.sleep(1)

    count = "select count(*) as n from readings where device = 'tidegate-canary'"
    sql = containers.run("stream", "tidegate", "sql", "--config", SETTINGS, "--format", "json", count)
    assert json.loads(sql)[0]["n"] > 0
    audit = json.loads(containers.run("stream", "tidegate", "audit", "--config", SETTINGS, "--json"))
    assert (audit["unaccounted"], audit["duplicate_rows"], audit["order_violations"]) == (0, 0, 0)

    for part in PARTS:
        assert containers.run(part, "id", "-u").strip() == GROUP
        assert "Read-only" in containers.run(part, "sh", "-c", "touch /etc/x 2>&1 || true")
        status = containers.run(part, "cat", "/proc/1/status")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
    # The canary only reads the tables.
    assert "Read-only" in containers.run("canary", "sh", "-c", "touch /var/lib/tidegate/stream/x 2>&1 || true")

    for part in ("canary", "gateway", "stream", "monitor"):
        patience, began = containers.services[part]["stop_grace_period"].removesuffix("s"), time.monotonic()
        podman("stop", "--time", patience, containers.prefix + part)
        assert time.monotonic() - began < int(patience), f"{part} was killed:\n{containers.logs()}"
        ended = podman("inspect", "--format", "{{.State.ExitCode}}", containers.prefix + part).strip()
        assert ended == "0", f"{part} ended with {ended}:\n{containers.logs()}"


def test_the_image_is_small_and_knows_its_health_check(image: str) -> None:
    found = json.loads(podman("image", "inspect", image))[0]
    assert found["Size"] < MOST_BYTES
    assert found["Config"]["User"] == f"{GROUP}:{GROUP}"
    assert found["Healthcheck"]["Test"][-1] == "deploy.docker.healthz"


def test_java_and_the_jars_are_where_the_command_looks(image: str) -> None:
    options = ["run", "--rm", "--read-only", "--network", "none", image]
    assert "Usage" in podman(*options, "tidegate", "--help")
    java = json.loads(podman(*options, "python3", "-P", "-m", "deploy.local.java", "--json"))
    assert (java["home"], java["version"][0]) == ("/opt/java", 17)
    code = "from deploy.local.artifacts import jmx_agent, spark_jars; print(len(spark_jars()), jmx_agent().is_file())"
    count, agent = podman(*options, "python3", "-P", "-c", code).split()
    podman(*options, "test", "-s", "/opt/java/lib/security/cacerts")
    assert int(count) > 3
    assert agent == "True"
