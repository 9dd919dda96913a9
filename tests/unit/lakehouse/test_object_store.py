"""Login and address of an object store, as Spark and delta-rs get them: the same for both, and no secret where people see it."""

import os
import re

import pytest

from ingest.contract.errors import ConfigError
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import given_variables, is_s3, s3_spark_conf, use_s3
from lakehouse.session import MASKED_NAMES

KEYS = {"s3_access_key": "access-id", "s3_secret_key": "hush-hush"}


def lake(root: str = "s3a://lake/tables", **more: object) -> LakeSettings:
    return LakeSettings.model_validate({"root": root, **more})


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "ENDPOINT_URL", "ALLOW_HTTP"):
        monkeypatch.setenv(f"AWS_{name}", "")  # so that it is put back afterwards
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "")
    monkeypatch.setattr("lakehouse.object_store._given", set())


def test_only_s3_uris_are_of_an_object_store() -> None:
    assert [is_s3(uri) for uri in ("s3a://b/t", "s3://b", "/s3a/t", "file:/s3", "hdfs://s3/t", "s3a:/b")] == [
        *(True, True),
        *(False, False, False, False),
    ]


def test_local_tables_need_no_setting_of_a_store() -> None:
    assert s3_spark_conf(lake("/tables", **KEYS), "/checkpoint") == {}


def test_spark_gets_address_and_login() -> None:
    conf = s3_spark_conf(lake(s3_endpoint="http://store:9000", **KEYS), "s3a://lake/checkpoint")
    assert conf["spark.sql.streaming.checkpointFileManagerClass"].endswith(".AbortableStreamBasedCheckpointFileManager")
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert conf["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert conf["spark.hadoop.fs.s3a.access.key"] == "access-id"
    assert conf["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(".SimpleAWSCredentialsProvider")


def test_each_setting_with_a_key_is_masked_where_spark_shows_settings() -> None:
    conf = s3_spark_conf(lake(**KEYS, s3_session_token="soon-over"))
    secrets = [name for name, value in conf.items() if value in ("access-id", "hush-hush", "soon-over")]
    assert len(secrets) == 3
    assert all(re.search(MASKED_NAMES, name) for name in secrets)
    assert conf["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


def test_both_clients_use_the_region_of_the_environment_unless_one_is_set(
    environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(**more: object) -> tuple[str | None, str]:
        use_s3(lake(**more))
        return s3_spark_conf(lake(**more)).get("spark.hadoop.fs.s3a.endpoint.region"), os.environ["AWS_REGION"]

    assert of() == (None, "")
    assert of(s3_endpoint="http://store:9000") == ("us-east-1", "")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert of() == ("eu-west-1", "eu-west-1")
    assert of(s3_region="eu-north-1") == ("eu-north-1", "eu-north-1")


def test_a_local_checkpoint_keeps_its_own_files(environment: None) -> None:
    assert "spark.sql.streaming.checkpointFileManagerClass" not in s3_spark_conf(lake(), "/checkpoint")


def test_without_keys_the_clients_find_the_login_themselves(environment: None) -> None:
    assert not [name for name in s3_spark_conf(lake()) if "credentials" in name or "key" in name]
    os.environ["AWS_ACCESS_KEY_ID"] = "of the machine"
    use_s3(lake())
    assert os.environ["AWS_ACCESS_KEY_ID"] == "of the machine"
    assert os.environ["AWS_REGION"] == ""
    assert given_variables() == set()


def test_local_tables_change_no_variable(environment: None) -> None:
    use_s3(lake("/tables", s3_region="eu-north-1", **KEYS))
    assert (os.environ["AWS_REGION"], os.environ["AWS_ACCESS_KEY_ID"]) == ("", "")


def test_half_a_login_is_rejected_without_its_value(environment: None) -> None:
    for half in ({"s3_access_key": "access-id"}, {"s3_secret_key": "hush-hush"}, {"s3_session_token": "soon-over"}):
        for use in (s3_spark_conf, use_s3):
            with pytest.raises(ConfigError, match="does not log in to the object store") as caught:
                use(lake(**half))
            assert next(iter(half.values())) not in str(caught.value)


@pytest.mark.parametrize(
    ("style", "endpoint", "virtual"),
    [(True, "http://store:9000", "false"), (False, "http://lake.store:9000", "true")],
)
def test_delta_rs_gets_the_same_address_and_login(
    environment: None, *, style: bool, endpoint: str, virtual: str
) -> None:
    use_s3(lake(s3_endpoint="http://store:9000/", s3_region="eu-north-1", s3_path_style=style, **KEYS))
    assert os.environ["AWS_ENDPOINT_URL"] == endpoint
    assert os.environ["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == virtual
    assert os.environ["AWS_ALLOW_HTTP"] == "true"
    assert os.environ["AWS_REGION"] == "eu-north-1"
    assert (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]) == ("access-id", "hush-hush")
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= given_variables()
