"""An S3 server (moto) with a bucket, and a faulty connection to it; `from tests.support.bucket import Bucket`."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from deploy.local.ports import choose_port
from lakehouse.lake_settings import LakeSettings

NAME = "lake"
_HOP = ("connection", "content-length", "expect", "host", "keep-alive", "transfer-encoding")
"""Headers of one connection."""
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


class FaultyConnection:
    """A server that passes requests on to a bucket and notes its puts: path -> whether all had the condition that none exists.

    With `lose_next` it answers 500 to the next put of a commit that the bucket took. With `careless` it passes no condition on,
    like a store that does not know them.
    """

    def __init__(self, bucket: Bucket, *, careless: bool = False) -> None:
        self.lose_next, self.lost, self.careless = False, 0, careless
        self.puts: dict[str, bool] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                left_out = (*_HOP, *(["if-none-match"] if outer.careless else []))
                given = {name: text for name, text in self.headers.items() if name.lower() not in left_out}
                if self.command == "PUT":
                    path = self.path.partition("?")[0]
                    outer.puts[path] = self.headers.get("If-None-Match") == "*" and outer.puts.get(path, True)
                status, headers, content = ask(bucket.endpoint, self.command, self.path, given, body)
                if outer.lose_next and self.command == "PUT" and "_delta_log/" in self.path and status == HTTPStatus.OK:
                    outer.lose_next, outer.lost = False, outer.lost + 1
                    status, headers, content = HTTPStatus.INTERNAL_SERVER_ERROR, [], b""
                self.send_response(status)
                for name, text in headers:
                    if name.lower() not in _HOP and name.lower() not in ("date", "server"):
                        self.send_header(name, text)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(content)))
                else:
                    self.send_header("Content-Length", dict(headers).get("Content-Length", "0"))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

            def log_message(self, *given: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
