"""Tables in a bucket, read through a real S3 client with the login of the settings."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deploy.cli import run
from deploy.dlq.journal import RedriveJournal, read_journal
from lakehouse.object_store import use_s3
from tests.support.bucket import Bucket


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ENDPOINT_URL", "ALLOW_HTTP"):
        monkeypatch.setenv(f"AWS_{name}", "")  # so that it is put back afterwards
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "")


def test_tables_in_a_bucket_are_read_with_the_keys_of_the_settings(
    bucket: Bucket, environment: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = bucket.lake("tables")
    use_s3(settings)
    write_deltalake(f"{settings.root}/dead_letters", pa.table({"reason": ["bad_json", "bad_json"]}))

    secret, config = tmp_path / "secret", tmp_path / "tidegate.toml"
    secret.write_text("bucket-secret-key\n")
    secret.chmod(0o600)
    config.write_text(
        f'[lake]\nroot = "{settings.root}"\ns3_endpoint = "{settings.s3_endpoint}"\n'
        f's3_access_key = "bucket-user"\ns3_secret_key = "file:{secret}"\n'
    )
    config.chmod(0o600)
    assert (
        run(["sql", "SELECT reason, count(*) n FROM dead_letters GROUP BY 1", "--json", "--config", str(config)]) == 0
    )
    assert json.loads(capsys.readouterr().out) == [{"reason": "bad_json", "n": 2}]
    assert run(["tables", "show", "dead_letters", "--config", str(config)]) == 0


def test_a_redrive_writes_its_journal_to_the_bucket(bucket: Bucket, environment: None) -> None:
    root = bucket.lake("redriven").root
    use_s3(bucket.lake("redriven"))
    for run_number in (1, 2):
        journal = RedriveJournal(root, run_number)
        journal.append([journal.entry(("t", 0, 7, 1, 1), "accepted")])
        journal.close()
    assert read_journal(root).select(["offset", "attempts"]).to_pylist() == [{"offset": 7, "attempts": 2}]
