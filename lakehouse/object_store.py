"""Login and address of the object store of tables at `s3a://BUCKET/…`, for delta-rs in this process.

delta-rs finds them in the variables `AWS_…` of the process. Spark's client inherits the login; `stream.extra` sets its address.
"""

import os
from typing import Final
from urllib.parse import urlsplit

from ingest.contract.errors import ConfigError
from lakehouse.lake_settings import LakeSettings

__all__ = ["is_s3", "use_s3"]

SCHEMES: Final = ("s3a", "s3")

_KEYS: Final = {
    "s3_access_key": "AWS_ACCESS_KEY_ID",
    "s3_secret_key": "AWS_SECRET_ACCESS_KEY",
    "s3_session_token": "AWS_SESSION_TOKEN",
}
"""Setting -> variable of delta-rs."""


def is_s3(uri: str) -> bool:
    """Return whether a place is in an object store that is reached by the S3 protocol."""
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme in SCHEMES


def use_s3(lake: LakeSettings) -> None:
    """Let delta-rs in this process use the store of these settings, if the tables are there.

    Raises:
        ConfigError: only a part of a login is given.
    """
    if not is_s3(lake.root):
        return
    values = {"AWS_REGION": lake.s3_region} if lake.s3_region else {}
    values |= {_KEYS[name]: value for name, value in _keys(lake).items()}
    if lake.s3_endpoint is not None:
        address = urlsplit(lake.s3_endpoint.rstrip("/"))
        if address.scheme == "http":
            values["AWS_ALLOW_HTTP"] = "true"
        host = address.netloc if lake.s3_path_style else f"{urlsplit(lake.root).netloc}.{address.netloc}"
        values["AWS_ENDPOINT_URL"] = f"{address.scheme}://{host}"
        values["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not lake.s3_path_style).lower()
    os.environ.update(values)


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
