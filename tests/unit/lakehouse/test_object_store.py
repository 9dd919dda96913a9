"""Login and address of an object store, as delta-rs finds them."""

import os

import pytest

from ingest.contract.errors import ConfigError
from lakehouse.lake_settings import LakeSettings
from lakehouse.object_store import is_s3, use_s3

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


def test_only_s3_uris_are_of_an_object_store() -> None:
    assert [is_s3(uri) for uri in ("s3a://b/t", "s3://b", "/s3a/t", "file:/s3", "hdfs://s3/t", "s3a:/b")] == [
        *(True, True),
        *(False, False, False, False),
    ]


def test_without_keys_the_login_of_the_environment_stays(environment: None) -> None:
    os.environ["AWS_ACCESS_KEY_ID"] = "of the machine"
    use_s3(lake())
    assert os.environ["AWS_ACCESS_KEY_ID"] == "of the machine"
    assert os.environ["AWS_REGION"] == ""


def test_local_tables_change_no_variable(environment: None) -> None:
    use_s3(lake("/tables", s3_region="eu-north-1", **KEYS))
    assert (os.environ["AWS_REGION"], os.environ["AWS_ACCESS_KEY_ID"]) == ("", "")


def test_half_a_login_is_rejected_without_its_value(environment: None) -> None:
    for half in ({"s3_access_key": "access-id"}, {"s3_secret_key": "hush-hush"}, {"s3_session_token": "soon-over"}):
        with pytest.raises(ConfigError, match="does not log in to the object store") as caught:
            use_s3(lake(**half))
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
