"""A new password reaches the clients that live long, once, and only for logins with a password of Kafka's own."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.settings import load_settings
from ingest.kafka_settings import KafkaSettings
from ingest.login_renewal import LoginRenewal
from ingest.producer import KafkaWriter

PASSWORD = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "gw"}


class Client:
    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str, /) -> None:
        self.given.append((username, password))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "password"
    made.touch(0o600)
    made.write_text("first-secret")
    return made


def settings_for(file: Path, **changes: str) -> KafkaSettings:
    named = {"sasl_password": f"file:{file}", **PASSWORD, **changes}
    return load_settings(environ={f"TIDEGATE_KAFKA__{name.upper()}": text for name, text in named.items()}).kafka


def test_clients_get_a_new_password_once_and_within_a_second(file: Path) -> None:
    now, clients = [0.0], (Client(), Client())
    login = LoginRenewal(settings_for(file), clock=lambda: now[0])

    def look(seconds: float) -> list[list[tuple[str, str]]]:
        now[0] += seconds
        login.apply(*clients)
        return [client.given for client in clients]

    assert look(1.5) == [[], []], "it is the one that they have"
    file.write_text("second-secret\n")
    assert look(0.5) == [[], []]
    assert look(0.5) == [[("gw", "second-secret")]] * 2
    assert look(1.5) == [[("gw", "second-secret")]] * 2
    file.write_text("")
    assert look(1.5) == [[("gw", "second-secret")]] * 2, "no client gets an empty password"


@pytest.mark.parametrize(
    "changes",
    [
        {"sasl_mechanism": "OAUTHBEARER", "oauth_token_url": "https://login.example/token"},
        {"security_protocol": "SSL", "sasl_mechanism": "", "sasl_username": "", "sasl_password": ""},
    ],
    ids=["oauth", "certificate"],
)
def test_a_login_that_no_client_can_change_stays(file: Path, changes: dict[str, Any]) -> None:
    now, client = [0.0], Client()
    settings = settings_for(file).model_copy(update={name: value or None for name, value in changes.items()})
    login = LoginRenewal(settings, clock=lambda: now[0])
    file.write_text("second-secret")
    now[0] = 10.0
    login.apply(client)
    assert client.given == []


def test_the_writer_takes_a_new_password_while_it_polls(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Noted(Producer):
        def set_sasl_credentials(self, username: str, password: str, /) -> None:
            super().set_sasl_credentials(username, password)
            given.append(password)

    monkeypatch.setattr("ingest.producer.Producer", Noted)
    monkeypatch.setattr("ingest.login_renewal.LOOK_SECONDS", 0.0)
    writer = KafkaWriter(settings_for(file, bootstrap_servers="127.0.0.1:1"), None)
    writer.poll(0)
    assert given == []
    file.write_text("second-secret")
    writer.poll(0)
    writer.poll(0)
    assert given == ["second-secret"]
    writer.close()
    writer.poll(0)
