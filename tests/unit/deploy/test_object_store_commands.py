"""Commands that need local tables say so by name for tables in a bucket, before they ask the store."""

import os
from pathlib import Path

import pytest

from deploy.cli import run

ROOT = "s3a://lake/tables"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is put back afterwards
    file = tmp_path / "tidegate.toml"
    file.write_text(
        f'[lake]\nroot = "{ROOT}"\ns3_endpoint = "http://127.0.0.1:9"\n[stream]\ncheckpoint = "{ROOT}/checkpoint"\n'
    )
    return file


@pytest.mark.parametrize(
    "words",
    [
        [
            "correct",
            "--device",
            "d1",
            "--from",
            "2026-05-01",
            "--to",
            "2026-05-02",
            "--offset",
            "1",
            "--reason",
            "wrong",
        ],
        ["erase", "--device", "d1", "--yes", "--reason", "asked"],
        ["maintain"],
        ["repair"],
        ["streams", "drop", "s"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_local_tables_says_so(
    config: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--config", str(config)]) in (69, 78)
    said = capsys.readouterr().err
    assert ROOT in said
    assert "local" in said
    assert said.count("\n") == 1
