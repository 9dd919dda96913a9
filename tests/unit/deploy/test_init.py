"""`tidegate init prod`: a commented, checked file from flags or answers, without secrets; never over another file."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import run
from deploy.production.first_file import steps_text, write_first_file
from deploy.production.questions import QUESTIONS, answer_all, complete
from deploy.settings import load_settings
from ingest.contract.errors import ConfigError
from ingest.topics.copies import TopicCopies

Captured = pytest.CaptureFixture[str]
NEEDED: Mapping[str, Any] = {"mqtt.host": "mqtt.example.org", "kafka.bootstrap_servers": "k1:9092,k2:9092"}


@pytest.fixture(autouse=True)
def _three_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.production.first_file.read_copies", lambda *_, **__: TopicCopies(5))


def answered(values: Mapping[str, Any]) -> dict[str, Any]:
    found, missing = answer_all(values, None, lambda _text: None, find_replication=lambda _values: 3)
    assert missing == []
    return found


def test_flags_alone_write_a_valid_commented_file_without_secrets(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_KAFKA__SASL_PASSWORD", "s3cret-of-kafka")
    file = tmp_path / "prod.toml"
    flags = [
        "--mqtt-host", "mqtt.example.org", "--mqtt-tls", "--mqtt-user", "gw", "--kafka-servers", "k1:9093", "--kafka-user", "tg",
        "--tables", "/srv/tide/tables", "--gateway-id", "hall-1", "--page", "ops.example.org:8080",
    ]  # fmt: skip
    assert run(["init", "prod", str(file), *flags]) == 0
    shown = capsys.readouterr()
    text = file.read_text()
    settings = load_settings(file, environ={})
    assert (settings.mqtt.port, settings.mqtt.tls, settings.mqtt.client_id) == (8883, True, "tidegate-hall-1")
    assert (settings.kafka.security_protocol, settings.kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert settings.kafka.replication == 3, "of five brokers"
    assert settings.stream.checkpoint == "/srv/tide/checkpoints/land"
    assert settings.mqtt.session_file == "/srv/tide/hall-1-session.json"
    assert (settings.monitoring.host, settings.monitoring.page_port) == ("ops.example.org", 8080)
    assert settings.monitoring.page_hosts == ("ops.example.org",)
    assert "# Host name or address of the MQTT broker.\nhost = " in text, "each key follows its description"
    assert "# sasl_password: in the environment variable TIDEGATE_KAFKA__SASL_PASSWORD\n" in text
    assert "s3cret" not in text + shown.out + shown.err
    assert "TIDEGATE_MQTT__PASSWORD" in shown.out
    assert "password of the Kafka user tg" in shown.out
    assert "mkdir -p /srv/tide /srv/tide/checkpoints/land /srv/tide/tables" in shown.out
    assert "tidegate topics acl --principal User:tg --role gateway --role stream --role reader" in shown.out
    for step in ("doctor", "gateway", "stream", "monitor", "canary"):
        assert f"tidegate {step} --config {file}" in shown.out
    assert run(["config", "validate", "--config", str(file)]) == 0


def test_a_file_that_exists_stays_unless_forced(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prod.toml"
    file.write_text("# mine\n")
    flags = ["--mqtt-host", "m", "--kafka-servers", "k:9092"]
    assert run(["init", "prod", str(file), *flags]) == 78
    assert "stays as it is" in capsys.readouterr().err
    assert file.read_text() == "# mine\n"
    assert run(["init", "prod", str(file), "--force", "--json", *flags]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(file)
    assert (told["replication"], told["environment"], told["left_out"]) == (3, {}, [])
    assert load_settings(file, environ={}).mqtt.host == "m"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prod.toml"], "nothing of the writing is left"


def test_values_that_only_the_operator_knows_are_named_by_their_flags(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "prod.toml"
    assert run(["init", "prod", str(file), "--kafka-security", "SASL_SSL"]) == 2
    assert "--mqtt-host, --kafka-servers, --kafka-user" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (["--mqtt-port", "70000"], "mqtt.port: "),
        (["--gateway-id", "a b"], "gateway.gateway_id: "),
        (["--kafka-security", "TLS"], "kafka.security_protocol: "),
        (["--page", "9470"], "wanted HOST:PORT"),
        (["--kafka-mechanism", "PLAIN", "--kafka-user", "u", "--kafka-security", "SASL_PLAINTEXT"], "unencrypted"),
        (["--kafka-ca-file", "ca.pem", "--kafka-security", "PLAINTEXT"], "does not encrypt"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: Captured, flags: list[str], wanted: str
) -> None:
    file = tmp_path / "prod.toml"
    assert run(["init", "prod", str(file), "--mqtt-host", "m", "--kafka-servers", "k:9092", *flags]) == 78
    assert wanted in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_person_is_asked_for_the_rest_and_again_after_a_wrong_answer() -> None:
    answers: Iterator[str] = iter(
        [
            "",
            "broker",
            "maybe",
            "yes",
            "",
            "",
            "gw",
            "k:9092",
            "SASL_SSL",
            "",
            "tg",
            "",
            "2",
            "",
            "",
            "hall 1",
            "hall-1",
            "",
        ]
    )
    asked: list[str] = []
    wrong: list[str] = []

    def ask(text: str, _default: str) -> str:
        asked.append(text)
        return next(answers)

    values, missing = answer_all({}, ask, wrong.append)
    assert (next(answers, None), missing) == (None, [])
    assert len(asked) == len(QUESTIONS) + 3
    assert [text.partition(":")[0] for text in wrong[:2]] == ["This value is needed.", "Answer yes or no."]
    assert "gateway.gateway_id" in wrong[2]
    assert (values["mqtt.port"], values["mqtt.tls"], values["kafka.replication"]) == (8883, True, 2)
    assert "mqtt.ca_file" not in values
    assert values["kafka.sasl_mechanism"] == "SCRAM-SHA-512"


def test_a_certificate_of_an_authority_means_tls_and_a_user_a_login() -> None:
    values = answered({**NEEDED, "mqtt.ca_file": "/a.pem", "kafka.ssl_ca_file": "/b.pem"})
    assert (values["mqtt.tls"], values["mqtt.port"], values["kafka.security_protocol"]) == (True, 8883, "SSL")
    assert answered({**NEEDED, "kafka.sasl_username": "u"})["kafka.security_protocol"] == "SASL_SSL"


def test_kafka_is_not_asked_for_its_brokers_before_it_is_named() -> None:
    asked: list[Any] = []
    values, missing = answer_all({"mqtt.host": "m"}, None, asked.append, find_replication=asked.append)
    assert (asked, [question.flag for question in missing]) == ([], ["--kafka-servers"])
    assert "kafka.replication" not in values


def test_an_answer_that_is_good_only_with_an_earlier_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate needs TLS, which is another setting; asked alone it would be asked for ever."""

    def strict(*, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        assert environ == {}
        if "mqtt.ca_file" in overrides and not overrides.get("mqtt.tls"):
            message = "ca_file is set and tls is not"
            raise ConfigError(message)

    monkeypatch.setattr("deploy.production.questions.load_settings", strict)
    wrong: list[str] = []
    answers = {"PEM file": "/a.pem", "Host": "m", "Kafka brokers": "k:1"}
    values, _ = answer_all(
        {"mqtt.tls": True},
        lambda text, default: next((answer for start, answer in answers.items() if text.startswith(start)), default),
        wrong.append,
    )
    assert (values["mqtt.ca_file"], wrong) == ("/a.pem", [])


def test_questions_that_do_not_apply_are_not_asked() -> None:
    asked: list[str] = []

    def ask(text: str, default: str) -> str:
        asked.append(text)
        return default

    values, _ = answer_all({**NEEDED, "mqtt.tls": False, "kafka.security_protocol": "PLAINTEXT"}, ask, asked.append)
    assert not any("PEM file" in text or "mechanism" in text or "User at Kafka" in text for text in asked)
    assert values["mqtt.port"] == 1883


def test_the_checkpoint_of_a_bucket_is_next_to_its_tables() -> None:
    for root, checkpoint in (
        ("s3a://lake/plant/tables", "s3a://lake/plant/checkpoints/land"),
        ("s3a://lake/tables/", "s3a://lake/checkpoints/land"),
        ("s3a://lake", "s3a://lake/checkpoints/land"),
        ("file:///srv/tables", "/srv/checkpoints/land"),
    ):
        whole = complete(answered({**NEEDED, "lake.root": root}))
        assert whole["stream.checkpoint"] == checkpoint
        assert whole["mqtt.session_file"].endswith("/gw-1-session.json")
        assert "://" not in whole["mqtt.session_file"], "a local file, wherever the tables are"


def test_odd_characters_are_written_as_they_are(tmp_path: Path) -> None:
    odd = 'C:\\tab\t"quote" \x7f é \U0001f41f'
    made = write_first_file(tmp_path / "a.toml", answered({**NEEDED, "mqtt.username": odd}), overwrite=False)
    assert load_settings(made.file, environ={}).mqtt.username == odd


def test_a_secret_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.password is a secret.*TIDEGATE_MQTT__PASSWORD") as fault:
        write_first_file(tmp_path / "a.toml", {**answered(NEEDED), "mqtt.password": "s3cret"}, overwrite=False)
    assert "s3cret" not in str(fault.value)
    assert list(tmp_path.iterdir()) == []


def test_without_an_answer_of_kafka_the_copies_are_left_to_the_first_start(tmp_path: Path) -> None:
    values, _ = answer_all(NEEDED, None, lambda _text: None, find_replication=lambda _values: None)
    made = write_first_file(tmp_path / "a.toml", values, overwrite=False)
    assert "replication" not in tomllib.loads(made.file.read_text())["kafka"]
    assert "Kafka did not answer" in steps_text(made)
