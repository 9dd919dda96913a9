"""Findings of `doctor` about folders, disks, files, Spark's master and certificates on this machine."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.certificates.issue import create_authority
from deploy.certificates.revocation import Revocations
from deploy.doctor.certificate_checks import check_certificate_files, check_server_certificates
from deploy.doctor.place_checks import check_places, check_spark
from deploy.local.preflight import PreflightCheck
from deploy.settings import Settings

NOW = 1_800_000_000.0
DAY = 86_400.0


def bad(checks: Iterable[PreflightCheck]) -> list[tuple[str, str, str]]:
    """What is not ok; each of these has a next step."""
    found = [check for check in checks if check.state != "ok"]
    assert [check for check in found if not check.fix] == []
    return [(check.name, check.state, check.text) for check in found]


def settings(folder: Path, **more: Any) -> Settings:
    given: dict[str, Any] = {
        "lake": {"root": str(folder / "tables")},
        "stream": {"checkpoint": str(folder / "checkpoints" / "land")},
        "mqtt": {"session_file": str(folder / "session.json")},
    }
    return Settings.model_validate({name: {**given.get(name, {}), **more.get(name, {})} for name in {*given, *more}})


def test_places_that_will_be_created_are_ok_and_nothing_is_left(tmp_path: Path) -> None:
    found = list(check_places(settings(tmp_path)))
    assert [check for check in found if check.name in ("tables", "checkpoint") and check.state != "ok"] == []
    assert "it is created in" in found[0].text
    assert "atomic create and rename" in found[0].text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    names = [(name, state) for name, state, _ in bad(check_places(settings(tmp_path)))]
    assert ("tables", "fail") in names


def test_a_file_in_the_place_of_the_tables_fails(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("")
    (found,) = (one for one in bad(check_places(settings(tmp_path))) if one[0] == "tables")
    assert found[1] == "fail"


def test_a_file_system_that_lets_two_create_one_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def careless(path: Path, mode: str = "r", **more: Any) -> Any:
        return real(path, mode.replace("x", "w"), **more)

    monkeypatch.setattr(Path, "open", careless)
    texts = [
        text for name, state, text in bad(check_places(settings(tmp_path))) if name == "tables" and state == "fail"
    ]
    assert ["overwrite each other's commits" in text for text in texts] == [True]


def test_another_place_than_a_disk_or_a_bucket_is_left_to_the_stream(tmp_path: Path) -> None:
    chosen = settings(tmp_path, lake={"root": "hdfs://lake/tables"}, stream={"checkpoint": "hdfs://lake/c"})
    assert [(name, state) for name, state, _ in bad(check_places(chosen))] == [("tables", "warn")]


def test_little_free_disk_is_a_warning_once_per_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.doctor.place_checks.DISK_NEEDED_BYTES", 2**62)
    found = [one for one in bad(check_places(settings(tmp_path))) if one[0] == "disk"]
    assert [(name, state) for name, state, _ in found] == [("disk", "warn")]
    assert "(lake.root)" in found[0][2]


def test_files_and_folders_of_the_settings_must_exist(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    token.chmod(0o644)
    chosen = settings(
        tmp_path,
        gateway={"profiles": str(tmp_path / "profiles"), "device_registry": str(tmp_path / "devices.jsonl")},
        monitoring={"page_token_file": str(token)},
        mqtt={"session_file": str(tmp_path / "none" / "session.json")},
    )
    texts = [text for name, _state, text in bad(check_places(chosen)) if name == "files"]
    for words in (
        "gateway.profiles: there is no folder",
        "gateway.device_registry: there is no file",
        "cannot write to",
        "the token",
    ):
        assert [words in text for text in texts].count(True) == 1
    assert len(texts) == 4


BUCKET = {"root": "s3a://bucket/tables"}


def test_a_standalone_master_must_answer_and_one_of_several_is_enough(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        stream = {"master": f"spark://127.0.0.1:1,127.0.0.1:{port}", "checkpoint": "s3a://bucket/land"}
        both = settings(tmp_path, lake=BUCKET, stream=stream)
        assert [check.state for check in check_spark(both, timeout_seconds=1.0)] == ["ok"]
    none = settings(tmp_path, lake=BUCKET, stream={**stream, "master": "spark://127.0.0.1:1"})
    assert [state for _, state, _ in bad(check_spark(none, timeout_seconds=1.0))] == ["fail"]
    assert list(check_spark(settings(tmp_path), timeout_seconds=1.0)) == []


def test_executors_elsewhere_need_tables_that_they_reach_and_yarn_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    found = bad(check_spark(settings(tmp_path, stream={"master": "yarn"}), timeout_seconds=1.0))
    assert [state for _, state, _ in found] == ["warn", "fail"]
    assert "do not reach lake.root" in found[0][2]
    assert "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set" in found[1][2]
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))
    remote = settings(tmp_path, lake=BUCKET, stream={"master": "yarn", "checkpoint": "s3a://bucket/land"})
    assert list(check_spark(remote, timeout_seconds=1.0)) == []


Sign = Callable[[str], tuple[Path, Path]]


@pytest.fixture
def sign(tmp_path: Path) -> Sign:
    """Makes a certificate and its key, by name."""

    def make(name: str) -> tuple[Path, Path]:
        key, file = tmp_path / f"{name}.key", tmp_path / f"{name}.pem"
        command = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "40",
            "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(file),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        key.chmod(0o600)
        return file, key

    return make


def test_an_authority_must_be_a_readable_pem_file_that_is_valid(sign: Sign, tmp_path: Path) -> None:
    file, key = sign("authority")

    def of(path: Path, **more: Any) -> list[PreflightCheck]:
        return list(
            check_certificate_files(Settings.model_validate({"mqtt": {"tls": True, "ca_file": str(path)}}), **more)
        )

    (good,) = of(file)
    assert (good.state, "expires in 39 days" in good.text or "expires in 40 days" in good.text) == ("ok", True)
    end = float(good.text.rpartition(" in ")[2].split()[0]) * DAY
    later = of(file, now=lambda: time.time() + end - 10 * DAY)
    assert [state for _, state, _ in bad(later)] == ["warn"]
    gone = bad(of(file, now=lambda: time.time() + end + 5 * DAY))
    assert [("expired" in text, state) for _, state, text in gone] == [(True, "fail")]
    for wrong, words in ((key, "no certificate in PEM form"), (tmp_path / "none.pem", "cannot be read")):
        assert [(state, words in text) for _, state, text in bad(of(wrong))] == [("fail", True)]


def test_a_key_must_fit_its_certificate_and_belong_to_one_user(sign: Sign) -> None:
    file, key = sign("gateway")
    _, other = sign("other")

    def of(key_file: Path) -> list[tuple[str, str, str]]:
        mqtt = {"tls": True, "cert_file": str(file), "key_file": str(key_file)}
        return bad(check_certificate_files(Settings.model_validate({"mqtt": mqtt})))

    assert of(key) == []
    ((_, state, text),) = of(other)
    assert (state, "the key belongs to another certificate" in text) == ("fail", True)
    key.chmod(0o644)
    ((_, state, text),) = of(key)
    assert (state, "other users may read the private key" in text) == ("warn", True)


def test_certificates_of_servers_are_judged_by_their_end() -> None:
    chosen = Settings.model_validate(
        {
            "mqtt": {"tls": True, "host": "m", "port": 8883},
            "kafka": {"security_protocol": "SSL", "bootstrap_servers": "k1:1,k2:2"},
        }
    )
    ends = {"m": NOW + 60 * DAY, "k1": NOW + 10 * DAY}

    def end_of(host: str, _port: int) -> float:
        if host not in ends:
            message = "refused"
            raise ConnectionRefusedError(message)
        return ends[host]

    found = list(check_server_certificates(chosen, end_of=end_of, now=lambda: NOW))
    assert [check.state for check in found] == ["ok", "warn", "fail"]
    assert "expires in 10 days" in found[1].text
    assert "k2:2" in found[2].text
    assert list(check_server_certificates(Settings())) == []


def test_the_list_of_revoked_certificates_is_there_and_has_not_ended(tmp_path: Path) -> None:
    file, made_at = tmp_path / "crl.pem", datetime.now(UTC)
    settings = Settings.model_validate({"mqtt": {"tls": True, "crl_file": str(file)}})

    def found(days: int = 0) -> tuple[str, str]:
        (check,) = check_certificate_files(settings, now=(made_at + timedelta(days=days)).timestamp)
        return check.state, check.text

    assert found() == ("fail", f"mqtt.crl_file: there is no file {file}")
    authority = create_authority("a", now=made_at, days=90)
    file.write_text(authority.certificate_pem)
    assert found() == ("fail", f"mqtt.crl_file: {file} holds no list of revoked certificates")
    file.write_text(Revocations().with_revoked(authority, [7], now=made_at).pem)
    assert found() == ("ok", f"the list of revoked certificates {file} (mqtt.crl_file) expires in 90 days")
    assert found(80)[0] == "warn" and found(91)[0] == "fail"
