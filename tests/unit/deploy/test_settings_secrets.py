"""Secrets in files: `file:PATH` in any secret setting, and files that are refused."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from deploy.cli import run
from deploy.secret_values import mask_secrets
from deploy.settings import Settings, load_settings, masked_settings
from deploy.settings_faults import ValueOrigins
from deploy.settings_secrets import FileSecret, read_secret_files
from ingest.contract.errors import ConfigError
from tests.support.secret_settings import secret_paths, with_secrets

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file with a secret. The tests may run as root, whose group may read: that exception has its own test."""
    monkeypatch.setattr("ingest.private_file._ROOT", -1)

    def make(content: bytes = b"canary-secret\n", mode: int = 0o600, name: str = "my secret") -> Path:
        file = tmp_path / name
        file.write_bytes(content)
        file.chmod(mode)
        return file

    return make


@pytest.mark.parametrize("content", [b"canary-secret", b"canary-secret\n", b"canary-secret\r\n"])
def test_every_secret_may_be_in_a_file(write: Write, content: bytes) -> None:
    reference = f"file:{write(content)}"
    settings = load_settings(environ={"TIDEGATE_KAFKA__SASL_PASSWORD": reference, "TIDEGATE_MQTT__PASSWORD": reference})
    for secret in (settings.kafka.sasl_password, settings.mqtt.password):
        assert secret is not None
        assert secret.get_secret_value() == "canary-secret"
    assert "canary-secret" not in str(masked_settings(settings))


def test_a_secret_of_any_depth_may_be_in_a_file(write: Write) -> None:
    """Each secret setting, found by the models themselves, so that a new one is covered too."""
    paths = secret_paths()
    assert {("kafka", "sasl_password"), ("mqtt", "canary", "password"), ("stream", "auth_secret")} <= set(paths)
    given, _ = with_secrets(Settings(), f"file:{write()}")
    read, wanted = read_secret_files(given, ValueOrigins(None)), with_secrets(Settings(), "canary-secret")[0]
    assert read == wanted


def test_only_the_last_line_end_is_left_out_and_other_secrets_stay(write: Write) -> None:
    file = write(b" a b \n\n")
    settings = load_settings(
        environ={"TIDEGATE_KAFKA__SASL_PASSWORD": f"file:{file}", "TIDEGATE_MQTT__PASSWORD": "file"}
    )
    assert settings.kafka.sasl_password is not None
    assert settings.kafka.sasl_password.get_secret_value() == " a b \n"
    assert settings.mqtt.password is not None
    assert settings.mqtt.password.get_secret_value() == "file"


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"canary-secret\n", 0o644, "has mode 0644, so other users may read or change the secret"),
        (b"canary-secret\n", 0o640, "has mode 0640, so its group may read or change the secret"),
        (b"\n", 0o600, "is empty"),
        (b"canary-secret\xff", 0o600, "is not UTF-8"),
        (b"x" * 1_048_577, 0o600, "more than 1048576 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_setting_and_never_shown(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, mode: int, words: str
) -> None:
    file = write(content, mode)
    config = tmp_path / "tidegate.toml"
    config.write_text(f'[mqtt]\nhost = "a"\n[kafka]\nsasl_password = "file:{file}"\n')
    assert run(["config", "validate", "--config", str(config)]) == 78
    said = capsys.readouterr().err
    assert f"{config}:4: kafka.sasl_password: {file}" in said
    assert words in said
    assert "canary-secret" not in said
    if mode != 0o600:
        assert f"chmod 600 '{file}'" in said


def test_a_folder_and_a_pipe_are_refused_at_once(write: Write, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("none", "No such file"), (".", "Is a directory"), ("pipe", "is not a file")):
        with pytest.raises(ConfigError, match=words):
            load_settings(environ={"TIDEGATE_MQTT__PASSWORD": f"file:{tmp_path / name}"})


def test_all_wrong_files_are_named_at_once(write: Write, tmp_path: Path) -> None:
    environ = {
        "TIDEGATE_KAFKA__SASL_PASSWORD": f"file:{tmp_path / 'a'}",
        "TIDEGATE_MQTT__PASSWORD": f"file:{tmp_path / 'b'}",
    }
    with pytest.raises(ConfigError, match="2 settings are wrong") as refusal:
        load_settings(environ=environ)
    assert "environment TIDEGATE_KAFKA__SASL_PASSWORD: kafka.sasl_password" in str(refusal.value)


def test_a_secret_of_root_may_be_readable_by_its_group_as_kubernetes_mounts_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.private_file._ROOT", os.getuid())
    environ = {"TIDEGATE_MQTT__PASSWORD": f"file:{write(mode=0o440)}"}
    password = load_settings(environ=environ).mqtt.password
    assert password is not None
    assert password.get_secret_value() == "canary-secret"
    for mode in (0o444, 0o460):
        write(mode=mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            load_settings(environ=environ)


def test_a_secret_follows_its_file_through_every_copy_of_the_settings(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.settings")
    reference = f"file:{write(b'first-secret')}"
    settings = load_settings(environ={"TIDEGATE_MQTT__CANARY__PASSWORD": reference})
    copies = (settings.mqtt.with_login("canary"), Settings.model_validate(settings.model_dump()).mqtt.canary)
    passwords = [one.password for one in copies if one is not None]
    write(b"second-secret")
    for password in passwords:
        assert password is not None
        assert password.get_secret_value() == "second-secret"
        assert password == SecretStr("second-secret") and SecretStr("second-secret") == password
        assert password != SecretStr("first-secret")
        assert "secret" not in f"{password!r} {password}"
    assert caplog.text.count("mqtt.canary.password has changed") == 1
    for logged in ("a second-secret b", "a first-secret b"):
        assert "secret" not in mask_secrets(logged)


def test_a_new_file_that_cannot_be_used_leaves_the_former_secret_and_says_so_once(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(b"first-secret")
    secret = FileSecret(str(file), "kafka.sasl_password")
    bad: dict[str, Callable[[], object]] = {
        "is empty": lambda: write(b""),
        "chmod 600": lambda: write(b"open-secret", 0o644),
        "No such file": file.unlink,
    }
    for words, damage in bad.items():
        caplog.clear()
        damage()
        assert [secret.get_secret_value() for _ in range(3)] == ["first-secret"] * 3
        assert caplog.text.count("The former secret stays in use. kafka.sasl_password: ") == 1
        assert words in caplog.text
    write(b"open-secret", 0o644)
    assert secret.get_secret_value() == "first-secret"
    file.chmod(0o600)
    assert secret.get_secret_value() == "open-secret", "a chmod is a change, too"
    assert "open-secret" not in caplog.text


def test_the_text_of_a_file_is_no_reference(write: Write) -> None:
    given, _ = with_secrets(Settings(), f"file:{write(b'file:/elsewhere')}")
    once = read_secret_files(given, ValueOrigins(None))
    assert read_secret_files(once, ValueOrigins(None)) == once
    assert once.mqtt.password == SecretStr("file:/elsewhere")
