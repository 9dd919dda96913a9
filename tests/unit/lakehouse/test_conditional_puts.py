"""Settings that make puts in an object store conditional: a user cannot weaken them, and their classes are in the source."""

import re

import pytest

from ingest.contract.errors import ConfigError
from lakehouse.conditional_puts import _SOURCE, conditional_conf, is_put_conflict


def test_commits_and_plans_of_batches_are_conditional_and_never_tried_again() -> None:
    conf = conditional_conf({"spark.executor.cores": "2"})
    assert "spark.executor.cores" not in conf
    for scheme in ("s3a", "s3"):
        assert conf[f"spark.delta.logStore.{scheme}.impl"] == "io.delta.storage.S3ConditionalLogStore"
        assert conf[f"spark.hadoop.fs.AbstractFileSystem.{scheme}.impl"] == "io.delta.storage.S3ConditionalFiles"
    assert conf["spark.hadoop.fs.s3a.create.conditional.enabled"] == "true"
    assert conf["spark.databricks.delta.maxCommitAttempts"] == "0"


def test_the_classes_that_the_settings_name_are_in_the_source() -> None:
    source = _SOURCE.read_text("utf-8")
    package = re.findall(r"^package (.+);$", source, re.MULTILINE)
    names = re.findall(r"^(?:public )?class (\w+)", source, re.MULTILINE)
    conf = conditional_conf()
    assert {f"{package[0]}.{name}" for name in names} == {
        value for name, value in conf.items() if name.endswith("impl")
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.delta.logStore.s3a.impl", "io.delta.storage.S3SingleDriverLogStore"),
        ("spark.delta.logStore.s3.impl", "io.delta.storage.GCSLogStore"),
        ("spark.delta.logStore.class", "io.delta.storage.HDFSLogStore"),
        ("spark.hadoop.fs.AbstractFileSystem.s3a.impl", "org.apache.hadoop.fs.s3a.S3A"),
        ("spark.hadoop.fs.s3a.create.conditional.enabled", "false"),
        ("spark.databricks.delta.maxCommitAttempts", "10"),
    ],
)
def test_a_setting_that_would_let_writers_overwrite_each_other_is_rejected(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="two writers could overwrite each other's commits") as caught:
        conditional_conf({name: value})
    assert name in str(caught.value)


def test_a_conflict_is_distinguished_from_other_failures() -> None:
    assert is_put_conflict(RuntimeError("java.nio.file.FileAlreadyExistsException: s3a://lake/t/_delta_log/1.json"))
    assert is_put_conflict(RuntimeError("[DELTA_MAX_COMMIT_RETRIES_EXCEEDED] This commit has failed"))
    assert not is_put_conflict(RuntimeError("software.amazon.awssdk.core.exception.SdkClientException: timeout"))
