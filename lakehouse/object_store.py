"""Tables and checkpoints at `s3a://BUCKET/…`: address and login of the store for the two clients that read and write there.

Spark's JVM uses Hadoop's S3A. This process uses delta-rs, which finds its settings in the variables `AWS_…` of the process.
delta-rs puts a commit only if its version does not exist; for Spark see lakehouse/conditional_puts.py.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from ingest.contract.errors import ConfigError, UnavailableError
from lakehouse.lake_settings import LakeSettings

__all__ = [
    "IMPATIENT",
    "SCHEMES",
    "given_variables",
    "is_s3",
    "put_object",
    "s3_spark_conf",
    "store_errors",
    "store_text",
    "use_s3",
]

SCHEMES: Final = ("s3a", "s3")
IMPATIENT: Final = {"timeout": "10s", "connect_timeout": "5s", "max_retries": "1", "retry_timeout": "10s"}
"""Options of delta-rs's client for a question that somebody waits for; by default it asks a silent store for three minutes."""

_CHECKPOINTS: Final = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_PREFIX: Final = "spark.hadoop.fs.s3a."
_REGION: Final = "us-east-1"
_HADOOP: Final = "org.apache.hadoop.fs.s3a."

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")

_given: set[str] = set()


def is_s3(uri: str) -> bool:
    """Return whether a place is in an object store that is reached by the S3 protocol."""
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme in SCHEMES


def s3_spark_conf(lake: LakeSettings, checkpoint: str = "") -> dict[str, str]:
    """Return the Spark settings for tables or a checkpoint in an object store, and none if both are elsewhere.

    Raises:
        ConfigError: only a part of a login is given.
    """
    if not is_s3(lake.root) and not is_s3(checkpoint):
        return {}
    conf = {
        "spark.hadoop.fs.s3.impl": f"{_HADOOP}S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": f"{_HADOOP}S3A",
        # Parts of a file wait in memory outside of the heap: on disk, S3A needs Hadoop's own local file system.
        f"{_PREFIX}fast.upload.buffer": "bytebuffer",
        f"{_PREFIX}multipart.size": "16M",
    }
    if is_s3(checkpoint):
        conf["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
    if region := lake.s3_region or os.environ.get("AWS_REGION") or (_REGION if lake.s3_endpoint else None):
        conf[f"{_PREFIX}endpoint.region"] = region
    if lake.s3_endpoint is not None:
        conf[f"{_PREFIX}endpoint"] = lake.s3_endpoint
        conf[f"{_PREFIX}path.style.access"] = str(lake.s3_path_style).lower()
    return conf | _hadoop_login(lake)


def _hadoop_login(lake: LakeSettings) -> dict[str, str]:
    keys = _keys(lake)
    if not keys:
        return {}
    provider = "TemporaryAWSCredentialsProvider" if len(keys) == len(_KEYS) else "SimpleAWSCredentialsProvider"
    names = {name: hadoop for name, (_, hadoop) in _KEYS.items()}
    login = {_PREFIX + names[name]: value for name, value in keys.items()}
    return {**login, f"{_PREFIX}aws.credentials.provider": _HADOOP + provider}


_KEYS: Final = {
    "s3_access_key": ("AWS_ACCESS_KEY_ID", "access.key"),
    "s3_secret_key": ("AWS_SECRET_ACCESS_KEY", "secret.key"),
    "s3_session_token": ("AWS_SESSION_TOKEN", "session.token"),
}
"""Setting -> variable of delta-rs, option of S3A."""


def _keys(lake: LakeSettings) -> dict[str, str]:
    """Return the given keys by setting.

    Raises:
        ConfigError: only a part of a login is given.
    """
    found = {name: value.get_secret_value() for name in _KEYS if (value := getattr(lake, name)) is not None}
    if found and not {"s3_access_key", "s3_secret_key"} <= found.keys():
        message = (
            f"lake.{' and lake.'.join(found)} alone does not log in to the object store. Set lake.s3_access_key and "
            "lake.s3_secret_key, or no key for the login of the environment."
        )
        raise ConfigError(message)
    return found


def use_s3(lake: LakeSettings) -> None:
    """Let delta-rs in this process use the store of these settings, if the tables are there.

    Raises:
        ConfigError: only a part of a login is given.
    """
    if not is_s3(lake.root):
        return
    values = {"AWS_REGION": lake.s3_region} if lake.s3_region else {}
    values |= {_KEYS[name][0]: value for name, value in _keys(lake).items()}
    if lake.s3_endpoint is not None:
        address = urlsplit(lake.s3_endpoint.rstrip("/"))
        if address.scheme == "http":
            values["AWS_ALLOW_HTTP"] = "true"
        host = address.netloc if lake.s3_path_style else f"{urlsplit(lake.root).netloc}.{address.netloc}"
        values["AWS_ENDPOINT_URL"] = f"{address.scheme}://{host}"
        values["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not lake.s3_path_style).lower()
    os.environ.update(values)
    _given.update(values)


def given_variables() -> frozenset[str]:
    """Return the variables that `use_s3` set in this process; its children get the settings in files instead."""
    return frozenset(_given)


def store_text(error: BaseException | str) -> str:
    """Return in one line what delta-rs's client, which writes a tree of causes, says of an error: the outermost and innermost."""
    lines = [line.strip(" \t↳") for line in _COLOUR.sub("", str(error)).splitlines()]
    lines = [line.removeprefix("Kernel error -> ") for line in lines if line] or ["no message"]
    return ": ".join(lines[:: max(1, len(lines) - 1)])[:300].rstrip(".")


@contextmanager
def store_errors(root: str) -> Iterator[None]:
    """Give errors of delta-rs's client in the block a sentence, if the tables are in an object store.

    Raises:
        UnavailableError: the store does not answer, or does not accept a request.
    """
    try:
        yield
    except OSError as error:
        if not is_s3(root):
            raise
        message = (
            f"Cannot use the tables at {root}: {store_text(error)}. Wait until the object store answers, or check lake.root, "
            "lake.s3_endpoint, the keys and the rights to the bucket. Then start again."
        )
        raise UnavailableError(message) from error


def put_object(uri: str, name: str, content: bytes, options: Mapping[str, str] | None = None) -> None:
    """Write one object under a place, whole or not at all; one of this name is replaced.

    `options` are those of delta-rs's client, such as timeouts. Through pyarrow, delta-rs gets a buffer that it does not take.
    """
    from deltalake.fs import DeltaStorageHandler

    stream: Any = DeltaStorageHandler(uri, options=dict(options or {}))._handler.open_output_stream(name, None)
    stream.write(content)
    stream.close()
