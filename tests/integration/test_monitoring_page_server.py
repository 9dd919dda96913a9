"""The page over real connections: streams, their bounds, and the end of a server that is being followed."""

import errno
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local.monitor_client import ask_monitor
from deploy.local.status import monitored_status
from deploy.settings import Settings
from ingest.contract.errors import UnavailableError
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page import snapshot_broadcaster as stream
from monitoring.page.page_api import PageError
from monitoring.page.server import MOST_CONNECTIONS, WORKER_THREADS, PageServer

Wait = Callable[..., Any]


class Served:
    """A page on a real port."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.server = PageServer(stage.page.app, host="127.0.0.1", port=0)
        self.number = 0

    def publish(self, **more: Any) -> None:
        self.number += 1
        self.stage.board.publish({"at": time.time(), "number": self.number, "point": {"lag": 1.0}, **more})

    def get(self, target: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def close(self) -> None:
        self.stage.page.close()
        self.server.close()

    @property
    def viewers(self) -> float:
        return float(self.stage.registry.get_sample_value("tidegate_monitor_page_viewers") or 0)


class Viewer:
    """A browser that follows; `read` takes the next event of the stream."""

    def __init__(self, served: Served, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=20)
        self._connection.request("GET", "/api/stream", headers=headers)
        self.answer = self._connection.getresponse()

    def read(self) -> dict[str, Any]:
        name = ""
        while True:
            line = self.answer.readline()
            if not line:
                raise EOFError
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                assert name == "snapshot"
                found: dict[str, Any] = json.loads(line[6:])
                return found

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture
def served(make_page_stage: Callable[..., Any]) -> Iterator[Served]:
    page = Served(make_page_stage())
    yield page
    page.close()


def test_two_viewers_see_the_same_snapshots_at_once(served: Served, wait_until: Wait) -> None:
    served.publish()
    viewers = [Viewer(served), Viewer(served)]
    for viewer in viewers:
        assert viewer.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert viewer.answer.getheader("x-content-type-options") == "nosniff"
        assert viewer.read()["number"] == 1, "the newest at once, not with the next look"
    assert served.viewers == 2
    for number in (2, 3):
        served.publish()
        assert [viewer.read()["number"] for viewer in viewers] == [number, number]
    viewers[0].close()
    wait_until(lambda: served.publish() or served.viewers == 1)
    viewers[1].close()
    wait_until(lambda: served.publish() or served.viewers == 0)


def test_status_and_history_are_what_was_published(served: Served) -> None:
    status, _, body = served.get("/api/status")
    assert (status, "just started" in json.loads(body)["error"]) == (503, True)
    assert json.loads(served.get("/api/history")[2]) == {"at": [], "series": {}}
    served.publish(text="</script>\u2028'\"")
    served.publish(text="</script>\u2028'\"")
    status, headers, body = served.get("/api/status")
    assert (status, headers["content-type"], body.isascii()) == (200, "application/json", True)
    assert json.loads(body)["text"] == "</script>\u2028'\""
    history = json.loads(served.get("/api/history")[2])
    assert history["series"] == {"lag": [1.0, 1.0]}
    assert len(history["at"]) == 2


def test_the_end_waits_for_nobody_who_follows(served: Served) -> None:
    served.publish()
    viewers = [Viewer(served) for _ in range(10)]
    for viewer in viewers:
        viewer.read()
    deaf = socket.create_connection(("127.0.0.1", served.server.port))
    deaf.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    began = time.monotonic()
    served.close()
    assert time.monotonic() - began < 10
    assert not served.server._thread.is_alive()
    for viewer in viewers:
        with pytest.raises((EOFError, ConnectionError)):
            viewer.read()
    deaf.close()
    again = PageServer(served.stage.page.app, host="127.0.0.1", port=served.server.port)
    again.close()


def test_the_end_waits_for_no_question_that_hangs(make_page_stage: Callable[..., Any]) -> None:
    never, asked = threading.Event(), threading.Event()

    def hang(_device: str) -> dict[str, Any]:
        asked.set()
        never.wait(60)
        return {}

    served = Served(make_page_stage(answers={"device": hang}))
    thread = threading.Thread(target=lambda: _quietly(lambda: served.get("/api/device?device=x")), daemon=True)
    thread.start()
    assert asked.wait(20)
    assert served.get("/healthz")[0] == 200, "nobody else waits for it"
    began = time.monotonic()
    served.close()
    assert time.monotonic() - began < 10
    never.set()
    thread.join(20)


def test_questions_that_hang_hold_up_no_scrape_and_are_told_so(
    make_page_stage: Callable[..., Any], wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitoring.page.app.QUESTION_SECONDS", 0.5)
    never, asked, began = threading.Event(), threading.Semaphore(0), []

    def hang(device: str) -> dict[str, Any]:
        began.append(device)
        asked.release()
        never.wait(60)
        return {}

    served = Served(make_page_stage(answers={"device": hang}))
    found: list[tuple[int, bytes]] = []

    def ask(name: str) -> None:
        status, _, body = served.get(f"/api/device?device={name}")
        found.append((status, body))

    threads = [threading.Thread(target=ask, args=(f"d{number}",), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(WORKER_THREADS):
        assert asked.acquire(timeout=20)
    assert served.get("/metrics")[0] == 200, "while every thread for questions is held"
    assert served.get("/healthz")[0] == 200
    for thread in threads:
        thread.join(20)
    assert found == [(503, b'{"error":"No answer within 0.5 s. Try again later."}')] * 6
    never.set()
    wait_until(lambda: served.get("/api/devices")[0] == 200)
    assert len(began) == WORKER_THREADS, "what nobody waits for any more is not asked"
    served.close()


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except (OSError, http.client.HTTPException):
        return


def test_fifty_may_follow_and_the_next_is_told_so(served: Served, wait_until: Wait) -> None:
    served.publish()
    with ExitStack() as cleanup:
        for _ in range(stream.MOST_VIEWERS):
            viewer = Viewer(served)
            cleanup.callback(viewer.close)
            viewer.read()
        status, _, body = served.get("/api/stream")
        assert (status, json.loads(body)["error"]) == (
            503,
            "50 browsers have this page open, which is the limit. Close one and reload.",
        )
        assert served.get("/api/status")[0] == 200
        viewer.close()
        wait_until(lambda: served.publish() or served.viewers < stream.MOST_VIEWERS)
        again = Viewer(served)
        assert again.read()["number"] == served.number
        again.close()


def test_a_viewer_that_takes_nothing_is_dropped_and_the_others_see_on(
    served: Served, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Pieces that the one who reads takes well within the time, on a busy machine too.
    monkeypatch.setattr(stream, "SEND_SECONDS", 2.0)
    served.publish()
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", served.server.port))
    deaf.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    well = Viewer(served)
    well.read()
    wait_until(lambda: served.viewers == 2)

    def publish_and_read() -> bool:
        served.publish(text="x" * 400_000)
        assert well.read()["number"] == served.number
        return served.viewers == 1

    wait_until(publish_and_read)
    deaf.close()
    well.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_who_is_slow_skips_to_the_newest(served: Served) -> None:
    served.publish()
    viewer = Viewer(served)
    viewer.read()
    for _ in range(500):
        served.publish(text="x" * 50_000)
    seen = [viewer.read()["number"]]
    while seen[-1] != served.number:
        seen.append(viewer.read()["number"])
    assert seen == sorted(seen)
    assert len(seen) < 400
    viewer.close()


def test_too_many_questions_at_once_are_told_to_come_again(
    make_page_stage: Callable[..., Any], wait_until: Wait
) -> None:
    go = threading.Event()
    served = Served(make_page_stage(answers={"device": lambda _device: {"done": go.wait(30)}}))
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(served.get("/api/device?device=x")[0])) for _ in range(40)]
    for thread in threads:
        thread.start()
    wait_until(lambda: 503 in found)
    go.set()
    for thread in threads:
        thread.join(30)
    assert set(found) == {200, 503}
    assert found.count(200) >= 16
    served.close()


def test_a_fault_of_ours_is_logged_and_is_no_page_of_it(
    make_page_stage: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_device: str) -> dict[str, Any]:
        raise ZeroDivisionError("inner words")

    def refuse(_search: str, _limit: int) -> dict[str, Any]:
        raise PageError(503, "Kafka does not answer.")

    served = Served(make_page_stage(answers={"device": fail, "devices": refuse}))
    status, headers, body = served.get("/api/device?device=x")
    assert (status, b"inner words" in body) == (500, False)
    assert headers["x-content-type-options"] == "nosniff"
    assert "inner words" in caplog.text
    assert json.loads(served.get("/api/devices")[2]) == {"error": "Kafka does not answer."}
    count = served.stage.registry.get_sample_value("tidegate_monitor_page_requests_total", {"code": "5xx"})
    assert count == 2
    served.close()


def test_a_port_that_is_taken_is_an_os_error(served: Served) -> None:
    with pytest.raises(OSError, match="in use"):
        PageServer(served.stage.page.app, host="127.0.0.1", port=served.server.port)


@pytest.mark.parametrize(
    "request_",
    [b"GET / HTTP/1.1\r\n\r\n", b"GET /assets/../../settings.py HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02",
     b"GET /assets/%2e%2e/%2e%2e/settings.py HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
     b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n",
     b"POST /api/redrive HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999999999999999\r\n\r\n",
     b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000],
)  # fmt: skip
def test_raw_requests_of_all_kinds_are_refused_and_the_next_is_served(served: Served, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as raw:
        answer = b""
        try:
            # It may be refused, and the connection ended, before it was sent.
            raw.sendall(request_)
            raw.shutdown(socket.SHUT_WR)
            while chunk := raw.recv(65536):
                answer += chunk
        except OSError as error:
            assert isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN
    assert answer == b"" or int(answer.split(b" ")[1]) in (400, 403, 404, 413, 431)
    assert b"class MonitoringSettings" not in answer
    assert served.get("/healthz")[0] == 200


def test_clients_that_never_finish_a_request_take_nobodys_place(served: Served) -> None:
    served.publish()
    viewer = Viewer(served)
    slow = []
    try:
        for number in range(MOST_CONNECTIONS + 50):
            slow.append(socket.create_connection(("127.0.0.1", served.server.port), timeout=20))
            slow[-1].sendall(b"GET /api/status HTTP/1.1\r\nHost: local" if number % 2 else b"")
        assert served.get("/api/status")[0] == 200
        assert slow[0].recv(1) == b"", "the oldest had to go"
        served.publish()
        assert [viewer.read()["number"], viewer.read()["number"]] == [1, 2], "who follows is not touched"
    finally:
        for connection in slow:
            connection.close()
        viewer.close()


def test_a_request_that_comes_byte_by_byte_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.page.server.REQUEST_SECONDS", 0.3)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for begun in (b"", b"GET /hea", whole + b"GET /hea"):
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as slow:
            slow.sendall(begun)
            answer = b""
            while received := slow.recv(4096):
                answer += received
            assert answer.startswith(b"HTTP/1.1 200" if begun.startswith(whole) else b"")


def test_a_stream_needs_a_login_and_ends_when_its_token_changes(
    make_page_stage: Callable[..., Any], wait_until: Wait, tmp_path: Path
) -> None:
    token = tmp_path / "read-token"
    token.write_text("a-token-of-readers\n")
    served = Served(make_page_stage(read_token_file=str(token)))
    try:
        served.publish()
        assert served.get("/api/stream")[0] == 401
        login = {"Authorization": "Bearer a-token-of-readers"}
        cookie = served.get("/api/login", "POST", **login)[1]["set-cookie"].partition(";")[0]
        viewers = [Viewer(served, **login), Viewer(served, Cookie=cookie)]
        assert [viewer.read()["number"] for viewer in viewers] == [1, 1]
        token.write_text("another\n")
        served.publish()
        for viewer in viewers:
            with pytest.raises(EOFError):
                viewer.read()
            viewer.close()
        wait_until(lambda: served.viewers == 0, what="no viewer")
    finally:
        served.close()


def test_status_logs_in_with_the_token_that_this_user_may_read(
    make_page_stage: Callable[..., Any], tmp_path: Path
) -> None:
    token = tmp_path / "read-token"
    token.write_text("a-token-of-readers\n")
    served = Served(make_page_stage(read_token_file=str(token)))
    try:
        served.publish()
        settings = MonitoringSettings(page_port=served.server.port, read_token_file=str(token))
        assert (ask_monitor(settings, timeout_seconds=10) or {})["number"] == 1
        wrong = settings.model_copy(update={"read_token_file": str(tmp_path / "none")})
        assert ask_monitor(wrong, timeout_seconds=10) is None
        with pytest.raises(UnavailableError, match=r"that you may read the file monitoring\.read_token_file\.$"):
            monitored_status(Settings().model_copy(update={"monitoring": wrong}))
    finally:
        served.close()
