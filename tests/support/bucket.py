"""An S3 server (moto) with a bucket; `from tests.support.bucket import Bucket`."""

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import pytest
from pydantic import SecretStr

from deploy.local.ports import choose_port
from lakehouse.lake_settings import LakeSettings

NAME = "lake"
_LINE = re.compile(r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP')


@dataclass(frozen=True)
class Bucket:
    """The running server; `log` holds one line per request."""

    endpoint: str
    log: Path

    def lake(self, folder: str, bucket: str = NAME) -> LakeSettings:
        """Settings of tables in a folder of a bucket."""
        return _settings(self.endpoint, f"s3a://{bucket}/{folder}")

    def make(self, name: str) -> None:
        """Create a bucket."""
        assert ask(self.endpoint, "PUT", f"/{name}")[0] == HTTPStatus.OK

    def requests(self) -> Counter[str]:
        """Requests so far, by method."""
        return Counter(match["method"] for match in _LINE.finditer(self.log.read_text(errors="replace")))


def _settings(endpoint: str, root: str) -> LakeSettings:
    return LakeSettings(
        root=root,
        s3_endpoint=endpoint,
        s3_access_key=SecretStr("bucket-user"),
        s3_secret_key=SecretStr("bucket-secret-key"),
    )


def server_program() -> str | None:
    """Return moto's server: that of this environment, else one in PATH."""
    own = Path(sys.executable).with_name("moto_server")
    return str(own) if own.is_file() else shutil.which("moto_server")


@pytest.fixture(scope="session")
def bucket_port() -> int:
    """Port of the server, known before it starts: Spark's session of the tests gets it at its own start."""
    return choose_port(0)[0]


@pytest.fixture(scope="session")
def bucket_settings(bucket_port: int) -> LakeSettings:
    """Settings that reach the bucket when its server runs."""
    return _settings(f"http://127.0.0.1:{bucket_port}", f"s3a://{NAME}")


@pytest.fixture(scope="session")
def bucket(
    bucket_settings: LakeSettings, bucket_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bucket]:
    """The server with an empty bucket `lake`."""
    program = server_program()
    if program is None:
        pytest.skip("moto is not installed: make test installs it")
    bucket = Bucket(str(bucket_settings.s3_endpoint), tmp_path_factory.mktemp("bucket") / "requests.log")
    with bucket.log.open("wb") as log:
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(bucket_port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not _answers(bucket):
            assert server.poll() is None, bucket.log.read_text(errors="replace")
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)
        bucket.make(NAME)
        yield bucket
    finally:
        server.kill()
        server.wait()


def _answers(bucket: Bucket) -> bool:
    try:
        ask(bucket.endpoint, "GET", "/")
    except OSError:
        return False
    return True


def ask(
    endpoint: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send one request; return status, headers and body of the answer."""
    connection = HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
