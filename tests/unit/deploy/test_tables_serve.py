"""`tidegate tables serve`: what it refuses before it starts Spark."""

from pathlib import Path

import pytest

from deploy.cli import run
from lakehouse import query_server
from lakehouse.create import ensure_tables
from lakehouse.tables import TABLES


class Serve:
    """Runs the command; `root` has tables unless a test removes them."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capfd = folder, capfd
        self.root = str(folder / "tables")

    def __call__(self, *arguments: str) -> tuple[int, str]:
        settings = self._folder / "tidegate.toml"
        settings.write_text(f'[lake]\nroot = "{self.root}"\n')
        code = run(["tables", "serve", "--config", str(settings), *arguments])
        return code, " ".join(self._capfd.readouterr().err.split())


@pytest.fixture
def serve(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Serve:
    return Serve(tmp_path, capfd)


def test_other_machines_need_a_token(serve: Serve) -> None:
    code, error = serve("--host", "192.0.2.7")
    assert code == 2
    assert "so clients need a token" in error


@pytest.mark.parametrize(
    ("text", "mode", "wanted"),
    [("t", 0o644, "chmod 600"), ("", 0o600, "must hold one line"), ("two words\n", 0o600, "must hold one line")],
)
def test_a_bad_token_file_is_refused(serve: Serve, tmp_path: Path, text: str, mode: int, wanted: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    code, error = serve("--token-file", str(file))
    assert code == 78
    assert wanted in error


def test_without_a_table_there_is_nothing_to_serve(serve: Serve) -> None:
    code, error = serve()
    assert code == 69
    assert "There is no table under" in error


def test_an_object_store_is_refused(serve: Serve) -> None:
    serve.root = "s3://bucket/tables"
    code, error = serve()
    assert code == 78
    assert "only serves tables on a local disk" in error


@pytest.mark.parametrize(("version", "found"), [(0, "has no Landlock"), (3, "has Landlock version 3")])
def test_an_old_kernel_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch, version: int, found: str) -> None:
    ensure_tables(serve.root, TABLES.values(), log_retention_hours=24)
    monkeypatch.setattr(query_server, "confinement_version", lambda: version)
    code, error = serve()
    assert code == 69
    assert found in error
    assert "--unconfined" in error
