"""Secrets of the settings: in nothing that a person, a log or another process reads. The fields are found in the models."""

import json
import logging
import os
import re
import stat
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy import cli
from deploy.process_signals import configure_logging, keep_files_private
from deploy.secret_values import mask_secrets, note_secrets
from deploy.settings import Settings, child_environment, load_settings, masked_settings
from deploy.settings_file import MASK, to_toml
from ingest.contract.errors import ConfigError
from tests.support.secret_settings import fields, secret_paths, with_secrets

PATHS = secret_paths()
SECRET_NAME = re.compile(r"(password|passphrase|secret|token|private_key)(_|$)")


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.secret_values._noted", set())


def test_a_field_that_sounds_like_a_secret_is_one_or_names_its_file() -> None:
    assert ("kafka", "sasl_password") in PATHS
    assert ("mqtt", "password") in PATHS
    named = [path for path, _ in fields() if SECRET_NAME.search(path[-1])]
    assert [path for path in named if path not in PATHS and not path[-1].endswith(("_file", "_files", "_url"))] == []


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_no_text_of_settings_shows_a_secret(path: tuple[str, ...]) -> None:
    settings, secrets = with_secrets(Settings())
    secret = secrets[path]
    for text in (
        repr(settings),
        str(settings),
        f"{settings.model_dump()}",
        settings.model_dump_json(),
        json.dumps(masked_settings(settings)),
        to_toml(settings, mask_secrets=True),
    ):
        assert secret not in text
    assert secret in to_toml(settings), "the private file of a part has it"


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_wrong_value_of_a_secret_is_not_repeated(path: tuple[str, ...]) -> None:
    """Neither in the sentence nor in the traceback, where pydantic's own text would be the cause."""
    name, secret = f"TIDEGATE_{'__'.join(path).upper()}", "S3CR3T-in-a-list"
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={name: json.dumps([secret])})
    assert name in str(caught.value)
    assert secret not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_log_masks_what_a_library_says(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    settings, secrets = with_secrets(Settings())
    note_secrets(settings)
    configure_logging()
    try:
        raise ConnectionError(f"login of u:{secrets[path]}@broker failed")
    except ConnectionError as error:
        logging.getLogger("tidegate.x").warning("no connection with %s", secrets[path], exc_info=error)
    logged = capsys.readouterr().err
    assert "S3CR3T" not in logged
    assert logged.count(MASK) == 2


def test_pass_through_options_with_secret_names_are_masked_and_short_words_are_not() -> None:
    note_secrets(
        Settings.model_validate(
            {
                "stream": {
                    "extra": {"spark.hadoop.fs.s3a.secret.key": "S3CR3T-of-s3", "spark.x": "ordinary", "my.key": "true"}
                }
            }
        )
    )
    assert mask_secrets("S3CR3T-of-s3 ordinary true") == f"{MASK} ordinary true"


def test_loaded_settings_are_masked_from_then_on() -> None:
    load_settings(environ={"TIDEGATE_MQTT__PASSWORD": "S3CR3T-of-mqtt"})
    assert mask_secrets("a S3CR3T-of-mqtt b") == f"a {MASK} b"


def test_the_parts_of_a_run_get_no_secret_by_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in PATHS:
        monkeypatch.setenv(f"TIDEGATE_{'__'.join(path).upper()}", "S3CR3T")
    assert "S3CR3T" not in child_environment("id").values()


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Crash a command whose error repeats a secret; the file with the traceback."""
    monkeypatch.setenv("TIDEGATE_LOGS", str(tmp_path))
    note_secrets(Settings.model_validate({"mqtt": {"password": "S3CR3T-of-mqtt"}}))

    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("login with S3CR3T-of-mqtt failed")

    def crash() -> Path:
        monkeypatch.setattr(cli, "app", fail)
        assert cli.run(["status"]) == 1
        return next(tmp_path.glob("tidegate-fault-*.txt"))

    return crash


def test_a_crash_dump_is_private_and_masks_secrets(
    crash: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    umask = os.umask(0)
    try:
        file = crash()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = capsys.readouterr().err
    assert str(file) in told
    for text in (told, file.read_text("utf-8")):
        assert f"login with {MASK} failed" in text
        assert "S3CR3T" not in text


def test_a_crash_dump_follows_no_link_that_somebody_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the common temporary folder another user may foresee the name."""
    monkeypatch.setattr(time, "time", lambda: 1.0)
    target = tmp_path / "precious"
    target.write_text("mine")
    (tmp_path / f"tidegate-fault-1-{os.getpid()}.txt").symlink_to(target)
    crash()
    assert target.read_text() == "mine"
    assert "RuntimeError" in capsys.readouterr().err


@pytest.fixture
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(
    ("given", "kept"), [(0o022, 0o077), (0o000, 0o077), (0o026, 0o077), (0o027, 0o027), (0o077, 0o077), (0o007, 0o007)]
)
def test_files_are_private_and_a_service_may_share_them_with_its_group(given: int, kept: int, tmp_path: Path) -> None:
    os.umask(given)
    assert keep_files_private() == kept
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~kept
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~kept


@pytest.mark.usefixtures("_umask")
def test_the_folder_of_a_run_is_private_and_that_of_an_earlier_version_becomes_so(tmp_path: Path) -> None:
    from deploy.local.up import make_folders

    make_folders(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "logs").stat().st_mode) == 0o700
    old, foreign = tmp_path / "old", tmp_path / "foreign"
    for folder in (old, foreign):
        folder.mkdir()
        folder.chmod(0o755)
    (old / "credentials.json").touch()
    make_folders(old)
    make_folders(foreign)
    assert stat.S_IMODE(old.stat().st_mode) == 0o700
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o755, "a folder that the user made keeps its mode"
