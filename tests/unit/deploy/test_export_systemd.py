"""Exported systemd units: filled from the settings, hardened, without a secret, and read by systemd without a complaint."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from deploy.cli import run
from deploy.export.parts import input_paths, production_parts, secret_settings, without_secrets
from deploy.export.systemd import systemd_files
from deploy.local.budget import memory_budget_mb
from deploy.settings import Settings, load_settings

SECURED = """
[mqtt]
username = "tidegate"
password = "hunter2"
session_file = "/srv/mqtt/session.json"
[kafka]
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "tidegate"
sasl_password = "hunter3"
[stream]
checkpoint = "/data/50% full/check points/land"
driver_memory = "2g"
extra = {"spark.hadoop.fs.s3a.secret.key" = "hunter4"}
[lake]
root = "/data/50% full/tables"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "tidegate.toml"
    file.write_text(SECURED, encoding="utf-8")
    return load_settings(file, environ={})


def values(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)


def test_each_part_has_a_unit_with_its_own_limits(settings: Settings) -> None:
    files = systemd_files(settings)
    assert {name for name in files if name.endswith(".service")} == {
        f"tidegate-{name}.service" for name in ("gateway", "stream", "canary", "monitor")
    }
    for part in production_parts(settings):
        unit = files[f"tidegate-{part.name}.service"]
        (command,) = values(unit, "ExecStart")
        assert command.startswith(f"/opt/tidegate/.venv/bin/tidegate {part.name} --config /etc/tidegate/tidegate.toml")
        (limit,) = values(unit, "MemoryMax")
        assert int(limit.removesuffix("M")) > memory_budget_mb(settings)[part.name]
        assert values(unit, "User") == ["tidegate"]
        for name, wanted in {
            "NoNewPrivileges": "yes",
            "ProtectSystem": "strict",
            "PrivateTmp": "yes",
            "CapabilityBoundingSet": "",
            "Restart": "on-failure",
            "RestartPreventExitStatus": "78",
            "KillMode": "mixed",
            "LimitNOFILE": "65536",
            "Type": "notify",
            "WatchdogSec": "60",
        }.items():
            assert values(unit, name) == [wanted], (part.name, name)


def test_a_heap_of_two_gigabytes_raises_the_limit_of_the_stream(settings: Settings) -> None:
    limits = [
        int(values(systemd_files(each)["tidegate-stream.service"], "MemoryMax")[0].removesuffix("M"))
        for each in (Settings(), settings)
    ]
    assert limits[1] - limits[0] >= 1024


def test_a_stop_lasts_longer_than_the_drain() -> None:
    from gateway.service import DRAIN_SECONDS, SAVE_SECONDS
    from lakehouse.jvm import STOP_SECONDS

    stops = {part.name: part.stop_seconds for part in production_parts(Settings())}
    assert stops["gateway"] > DRAIN_SECONDS + SAVE_SECONDS
    assert stops["stream"] > 3 * STOP_SECONDS


def test_only_the_folders_of_a_part_can_be_written(settings: Settings) -> None:
    files = systemd_files(settings)
    written = {
        name: values(files[f"tidegate-{name}.service"], "ReadWritePaths") for name in ("gateway", "stream", "monitor")
    }
    tables, checkpoints = '"/data/50%% full/tables"', '"/data/50%% full/check points"'
    assert written == {"gateway": ['"/srv/mqtt"'], "stream": [tables, checkpoints], "monitor": [tables]}
    canary = files["tidegate-canary.service"]
    assert not values(canary, "ReadWritePaths")
    assert not values(canary, "StateDirectory")
    assert values(canary, "RequiresMountsFor") == [tables]


def test_secrets_are_credentials_and_their_text_is_in_no_file(settings: Settings) -> None:
    files = systemd_files(settings)
    assert not [name for name, text in files.items() if "hunter" in text]
    gateway, stream = (files[f"tidegate-{name}.service"] for name in ("gateway", "stream"))
    assert values(gateway, "LoadCredential") == [
        f"{name}:/etc/tidegate/credentials/{name}" for name in ("mqtt.password", "kafka.sasl_password")
    ]
    assert "TIDEGATE_MQTT__PASSWORD=file:%d/mqtt.password" in values(gateway, "Environment")
    # Spark never talks to the broker.
    assert values(stream, "LoadCredential") == ["kafka.sasl_password:/etc/tidegate/credentials/kafka.sasl_password"]
    assert "TIDEGATE_STREAM__EXTRA (a JSON object) in\n/etc/tidegate/tidegate.env" in files["README.md"]
    assert "/etc/tidegate/credentials/mqtt.password" in files["README.md"]


def test_the_variables_of_a_unit_are_settings_and_read_their_credentials(settings: Settings, tmp_path: Path) -> None:
    pytest.importorskip("deploy.settings_secrets", reason="secrets by `file:PATH` are not in this version")
    for name in ("mqtt.password", "kafka.sasl_password"):
        file = tmp_path / name
        file.write_text(f"from {name}\n", encoding="utf-8")
        file.chmod(0o400)
    words = " ".join(values(systemd_files(settings)["tidegate-monitor.service"], "Environment")).split()
    environ = dict(word.replace("%d", str(tmp_path)).split("=", 1) for word in words)
    found = load_settings(environ=environ)
    assert found.mqtt.password is not None
    assert found.mqtt.password.get_secret_value() == "from mqtt.password"
    assert found.kafka.sasl_password is not None
    assert found.kafka.sasl_password.get_secret_value() == "from kafka.sasl_password"
    assert found.monitoring.state_dir == "/var/lib/tidegate/monitor"


class Login(BaseModel):
    username: str | None = None
    password: SecretStr | None = None
    key_file: str | None = None


class Broker(Login):
    canary: Login | None = None
    devices: Login | None = None


class Nested(BaseModel):
    mqtt: Broker


def test_a_login_of_one_part_is_only_for_this_part() -> None:
    canary = Login(username="c", key_file="/etc/c.pem")
    broker = Broker(password=SecretStr("hunter2"), canary=canary, devices=Login(password=SecretStr("hunter3")))
    settings = Nested(mqtt=broker)
    assert secret_settings(settings, ("mqtt",), "gateway") == ("mqtt.password",)
    assert secret_settings(settings, ("mqtt",), "canary") == ("mqtt.password", "mqtt.canary.password")
    assert input_paths(settings, ("mqtt",), "gateway") == {}
    assert input_paths(settings, ("mqtt",), "canary") == {"mqtt.canary.key_file": Path("/etc/c.pem")}
    bare = without_secrets(settings)
    assert (bare.mqtt.password, bare.mqtt.canary) == (None, canary)
    assert bare.mqtt.devices == Login()


def test_without_users_and_canary_there_is_neither(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[monitoring]\ncanary_port = 0\n", encoding="utf-8")
    files = systemd_files(load_settings(file, environ={}))
    assert "tidegate-canary.service" not in files
    assert "LoadCredential" not in "".join(files.values())


def test_tables_under_home_stay_visible(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[lake]\nroot = "/home/somebody/tables"\n', encoding="utf-8")
    files = systemd_files(load_settings(file, environ={}))
    protection = {name: values(text, "ProtectHome") for name, text in files.items() if name.endswith(".service")}
    assert protection["tidegate-stream.service"] == ["read-only"]
    assert protection["tidegate-gateway.service"] == ["yes"]


def test_systemd_reads_the_units_without_a_complaint(settings: Settings, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not on this machine")
    folder = tmp_path / "units"
    folder.mkdir()
    # systemd looks whether the program exists.
    for name, text in systemd_files(settings, program=sys.executable).items():
        (folder / name).write_text(text, encoding="utf-8")
    units = [str(file) for file in sorted(folder.iterdir()) if file.suffix in (".service", ".target")]
    done = subprocess.run([program, "verify", *units], capture_output=True, text=True, check=False, timeout=60)
    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if "tidegate" in line]
    assert about_ours == []
    # systemd's own judgement in tenths: 10 for a service without any protection.
    judged = [program, "security", "--offline=yes", "--no-pager", "--threshold=20", *units[:-1]]
    done = subprocess.run(judged, capture_output=True, text=True, check=False, timeout=60)
    if "unrecognized option" not in done.stderr:
        assert done.returncode == 0, done.stdout.splitlines()[-1]
    broken = folder / "tidegate-gateway.service"
    broken.write_text(broken.read_text("utf-8").replace("KillMode=mixed", "KillMode=gently"), encoding="utf-8")
    done = subprocess.run([program, "verify", str(broken)], capture_output=True, text=True, check=False, timeout=60)
    assert "gently" in done.stderr


def test_the_command_writes_the_units_and_takes_a_program_with_blanks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", "systemd", str(tmp_path / "out"), "--program", "/opt/my gate/$x", "--user", "pipe"]
    assert run(command) == 0
    assert "README.md" in capsys.readouterr().err
    unit = (tmp_path / "out" / "tidegate-gateway.service").read_text("utf-8")
    assert 'ExecStart="/opt/my gate/$$x" gateway --config' in unit
    assert values(unit, "Group") == ["pipe"]
    assert (tmp_path / "out" / "tidegate.sysusers").read_text("utf-8").startswith("u pipe - ")
