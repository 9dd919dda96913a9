"""Who may read the page and who may write: tokens, sessions, users whom a proxy names, and addresses that guess."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.types import Scope

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.page_api import PageError
from monitoring.page.page_login import FAILED_SECONDS, MOST_ADDRESSES, MOST_FAILED, SESSION_SECONDS, PageLogin, Role
from monitoring.page.page_tokens import exposure_fault

Make = Callable[..., Any]
Pairs = Sequence[tuple[str, str]]
READ, WRITE = "token-of-readers-4711", "token-of-writers-0815"
BODY = [b'{"ids": ["0-1"], "dry_run": true}']
OPEN = ("/", "/assets/app.js", "/assets/login.js", "/healthz", "/runbooks/TidegateKafkaUnreachable", "/api/session")
CLOSED = ("/metrics", "/api/status", "/api/stream", "/api/history", "/api/devices", "/api/topics", "/api/nowhere",
          "/nowhere", "//api/status", "/assets", "/healthz/")  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Settings with one token for readers and one for writers, in private files."""
    found = {}
    for name, token in (("read_token_file", READ), ("page_token_file", WRITE)):
        file = tmp_path / name
        file.write_text(f"{token}\nnot this line\n")
        file.chmod(0o600)
        found[name] = str(file)
    return found


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def redrive(stage: Any, headers: Pairs, **more: Any) -> Any:
    return stage.ask("/api/redrive", method="POST", headers=headers, chunks=BODY, **more)


def log_in(stage: Any, token: str, headers: Pairs = (), **more: Any) -> Any:
    return stage.ask("/api/login", method="POST", headers=[*bearer(token), *headers], **more)


def cookie_of(answer: Any) -> list[tuple[str, str]]:
    return [("cookie", answer.headers["set-cookie"].partition(";")[0])]


def session(stage: Any, headers: Pairs = ()) -> Any:
    return json.loads(stage.ask("/api/session", headers=headers).body)


def test_what_shows_data_needs_a_login_and_the_pages_own_files_do_not(
    make_page_stage: Make, files: dict[str, str]
) -> None:
    stage = make_page_stage(**files)
    for path in OPEN:
        assert stage.ask(path).status == 200, path
    for path in CLOSED:
        answer = stage.ask(path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        assert "needs a login" in json.loads(answer.body)["error"]
        assert answer.headers["x-frame-options"] == "DENY"
    assert stage.ask("/metrics", headers=bearer(READ)).status == 200


def test_a_reader_reads_and_only_a_writer_writes(make_page_stage: Make, files: dict[str, str]) -> None:
    asked: list[Any] = []
    stage = make_page_stage(**files, answers={"redrive": lambda ids, dry_run: asked.append(ids) or {}})
    for token in (READ, WRITE):
        assert stage.ask("/api/history", headers=bearer(token)).status == 200
    refused = redrive(stage, bearer(READ))
    assert (refused.status, asked) == (403, [])
    assert "may only read" in json.loads(refused.body)["error"]
    assert redrive(stage, bearer(WRITE)).status == 200
    assert asked == [["0-1"]]


def test_a_session_has_the_rights_of_its_token_and_no_script_or_other_site_gets_it(
    make_page_stage: Make, files: dict[str, str]
) -> None:
    stage = make_page_stage(**files, answers={"redrive": lambda *_: {}})
    for token, role, status in ((READ, "read", 403), (WRITE, "write", 200)):
        answer = log_in(stage, token)
        assert json.loads(answer.body) == {"login": True, "role": role, "session": True}
        given = answer.headers["set-cookie"]
        assert given.startswith("tidegate-page-9470=")
        assert given.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
        assert token not in given
        assert stage.ask("/api/history", headers=cookie_of(answer)).status == 200
        assert redrive(stage, cookie_of(answer)).status == status
        assert session(stage, cookie_of(answer)) == {"login": True, "role": role, "session": True}
    assert session(stage) == {"login": True, "role": "none", "session": False}


def test_behind_tls_the_cookie_is_secure(make_page_stage: Make, files: dict[str, str]) -> None:
    stage = make_page_stage(**files, page_hosts=("ops.example",))
    headers = [("origin", "https://ops.example"), ("sec-fetch-site", "same-origin")]
    answer = log_in(stage, READ, headers, host="ops.example")
    assert answer.headers["set-cookie"].endswith("; Secure")
    renewed = stage.ask("/api/session", method="POST", headers=[*cookie_of(answer), *headers], host="ops.example")
    assert renewed.headers["set-cookie"].endswith("; Secure")


def test_an_open_page_renews_its_session_and_a_logout_ends_it(make_page_stage: Make, files: dict[str, str]) -> None:
    stage = make_page_stage(**files)
    given = cookie_of(log_in(stage, READ))
    answer = stage.ask("/api/session", method="POST", headers=given)
    assert stage.ask("/api/history", headers=cookie_of(answer)).status == 200
    assert "set-cookie" not in stage.ask("/api/session", headers=given).headers
    assert "set-cookie" not in stage.ask("/api/session", method="POST").headers
    ended = stage.ask("/api/logout", method="POST", headers=cookie_of(answer)).headers["set-cookie"]
    assert ended == "tidegate-page-9470=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    "forge",
    [
        lambda value: value.replace("read.", "write.", 1),
        lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"),
        lambda value: value.rpartition(".")[0] + ".",
        lambda value: value.replace(".", ".9", 1),
        lambda value: "read.99999999999." + value.rpartition(".")[2],
        lambda value: "none" + value[4:],
        lambda _: "write.x.y",
        lambda _: "",
        lambda _: "write.١٢٣." + "0" * 64,
        lambda _: "write." + "9" * 5000 + ".0",
    ],
)
def test_a_forged_session_is_none(make_page_stage: Make, files: dict[str, str], forge: Callable[[str], str]) -> None:
    stage = make_page_stage(**files)
    name, _, value = cookie_of(log_in(stage, READ))[0][1].partition("=")
    forged = [("cookie", f"{name}={forge(value)}".encode().decode("latin-1"))]
    assert stage.ask("/api/history", headers=forged).status == 401
    assert redrive(stage, forged).status == 401


def test_a_new_token_ends_the_sessions_of_the_old_one(make_page_stage: Make, files: dict[str, str]) -> None:
    stage = make_page_stage(**files)
    given = cookie_of(log_in(stage, READ))
    Path(files["read_token_file"]).write_text("another\n")
    assert stage.ask("/api/history", headers=given).status == 401
    assert stage.ask("/api/history", headers=cookie_of(log_in(stage, "another"))).status == 200
    Path(files["read_token_file"]).unlink()
    assert stage.ask("/api/history", headers=bearer("another")).status == 401, "a missing file lets nobody in"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def scope(*headers: tuple[str, str], client: str = "10.0.0.9", path: str = "/api/status") -> Scope:
    found = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": "http", "path": path, "headers": found, "client": (client, 1), "method": "GET"}


def test_a_session_ends_after_its_time_and_so_does_its_stream(files: dict[str, str]) -> None:
    clock = Clock()
    login = PageLogin(MonitoringSettings(**files), now=clock)
    role, cookie = login.log_in(scope(*bearer(READ)))
    asked = scope(("cookie", cookie.partition(";")[0]))
    assert role is Role.READER
    clock.now += SESSION_SECONDS - 1
    assert login.still_reads(asked)
    clock.now += 1
    assert not login.still_reads(asked)


def test_who_guesses_has_to_wait_and_others_do_not(files: dict[str, str]) -> None:
    clock = Clock()
    login = PageLogin(MonitoringSettings(**files), now=clock)
    session_of_guesser = login.log_in(scope(*bearer(READ)))[1].partition(";")[0]
    for _ in range(MOST_FAILED):
        with pytest.raises(PageError, match="missing or wrong"):
            login.log_in(scope(*bearer("guess")))
    for asked in (scope(*bearer(READ)), scope(*bearer("guess"))):
        with pytest.raises(PageError, match="Too many failed logins") as caught:
            login.check_read(asked)
        assert caught.value.status == 429
    login.check_read(scope(("cookie", session_of_guesser)))
    login.check_read(scope(*bearer(READ), client="10.0.0.10"))
    clock.now += FAILED_SECONDS
    login.check_read(scope(*bearer(READ)))


def test_one_client_has_one_count_for_all_its_addresses_and_few_counts_are_kept(files: dict[str, str]) -> None:
    login = PageLogin(MonitoringSettings(**files), now=Clock())
    for number in range(MOST_FAILED):
        with pytest.raises(PageError):
            login.log_in(scope(*bearer("guess"), client=f"2001:db8::{number:x}"))
    with pytest.raises(PageError, match="Too many"):
        login.log_in(scope(*bearer(READ), client="2001:db8::ffff"))
    for number in range(MOST_ADDRESSES + 50):
        with pytest.raises(PageError):
            login.log_in(scope(*bearer("guess"), client=f"10.1.{number // 256}.{number % 256}"))
    assert len(login._failed._counts) == MOST_ADDRESSES


def test_a_failed_login_is_in_the_log_and_no_token_is(
    make_page_stage: Make, files: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_page_stage(**files, answers={"redrive": lambda *_: {}})
    with caplog.at_level(logging.DEBUG):
        assert log_in(stage, "guess-of-somebody", client="10.9.8.7").status == 401
        log_in(stage, READ)
        redrive(stage, bearer(WRITE))
    assert "login failed from 10.9.8.7" in caplog.text
    assert "the holder of the page's token requested a redrive of 1 dead letters (dry run)" in caplog.text
    assert not [text for text in (READ, WRITE, "guess-of-somebody") if text in caplog.text]


PROXY = {
    "proxy_user_header": "X-Forwarded-User",
    "proxy_addresses": ("10.0.0.5", "fd00::/8"),
    "proxy_write_users": ("ada",),
}


@pytest.mark.parametrize("client", ["10.0.0.5", "::ffff:10.0.0.5", "fd00::1"])
def test_a_trusted_proxy_names_its_users(make_page_stage: Make, client: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = make_page_stage(**PROXY, answers={"redrive": lambda *_: {}})
    reader, writer = [("x-forwarded-user", "bob")], [("x-forwarded-user", "ada")]
    assert stage.ask("/api/history", headers=reader, client=client).status == 200
    assert redrive(stage, reader, client=client).status == 403
    with caplog.at_level(logging.INFO):
        assert redrive(stage, writer, client=client).status == 200
    assert "user 'ada' requested a redrive" in caplog.text


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("10.0.0.6", [("x-forwarded-user", "ada")]),
        ("127.0.0.1", [("x-forwarded-user", "ada")]),
        ("10.0.0.5", []),
        ("10.0.0.5", [("x-forwarded-user", "")]),
        ("10.0.0.5", [("x-forwarded-user", "bob"), ("x-forwarded-user", "ada")]),
        ("10.0.0.5", [("x_forwarded_user", "ada")]),
        ("not-an-address", [("x-forwarded-user", "ada")]),
    ],
)
def test_nobody_else_names_a_user(make_page_stage: Make, client: str, headers: Pairs) -> None:
    stage = make_page_stage(**PROXY)
    assert stage.ask("/api/history", headers=headers, client=client).status == 401
    assert redrive(stage, headers, client=client).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate"), ("origin", "http://127.0.0.1:3000")],
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("origin", "https://evil.example")],
        [("origin", "http://127.0.0.1:3000")],
        [("origin", "http://evil.example")],
        [("origin", "null")],
    ],
)
def test_a_form_of_another_site_or_port_uses_no_session(
    make_page_stage: Make, files: dict[str, str], headers: Pairs
) -> None:
    stage = make_page_stage(**files, answers={"redrive": lambda *_: pytest.fail("it redrove")})
    given = cookie_of(log_in(stage, WRITE))
    assert redrive(stage, [*given, *headers]).status == 403


def test_the_page_itself_uses_its_session(make_page_stage: Make, files: dict[str, str]) -> None:
    stage = make_page_stage(**files, answers={"redrive": lambda *_: {}})
    given = cookie_of(log_in(stage, WRITE))
    for own in (
        [("origin", "http://127.0.0.1:9470")],
        [("sec-fetch-site", "same-origin"), ("origin", "https://ops.lan")],
    ):
        assert redrive(stage, [*given, *own]).status == 200


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"proxy_user_header": "X-User"}, "set proxy_user_header and proxy_addresses together"),
        ({"proxy_addresses": ("10.0.0.5",)}, "set proxy_user_header and proxy_addresses together"),
        ({"proxy_write_users": ("ada",)}, "proxy_write_users needs proxy_user_header"),
        ({"proxy_user_header": "Authorization", "proxy_addresses": ("10.0.0.5",)}, "cannot name the user"),
        ({"proxy_user_header": "X User", "proxy_addresses": ("10.0.0.5",)}, "cannot name the user"),
        ({"proxy_user_header": "X-User", "proxy_addresses": ("proxy.lan",)}, "is not an address or a network"),
    ],
)
def test_half_a_proxy_is_refused(settings: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ValidationError, match=wanted):
        MonitoringSettings.model_validate(settings)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "ops.lan", "127.evil.example"])  # noqa: S104
def test_a_page_for_the_network_needs_a_login(host: str, files: dict[str, str]) -> None:
    told = exposure_fault(MonitoringSettings(host=host, page_token_file=files["page_token_file"]))
    assert told is not None
    for setting in ("monitoring.host", "monitoring.read_token_file", "monitoring.proxy_user_header", "proxy_addresses"):
        assert setting in told
    assert exposure_fault(MonitoringSettings(host=host, **files)) is None
    assert exposure_fault(MonitoringSettings.model_validate({"host": host, **PROXY})) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST."])
def test_a_page_on_loopback_needs_none(host: str) -> None:
    assert exposure_fault(MonitoringSettings(host=host)) is None


def test_a_token_file_that_others_read_that_is_empty_or_that_gives_readers_all_rights_is_refused(
    files: dict[str, str],
) -> None:
    settings, reads = MonitoringSettings(**files), Path(files["read_token_file"])
    for name, file in files.items():
        for mode in (0o604, 0o620, 0o602):
            Path(file).chmod(mode)
            assert exposure_fault(settings) == (
                f"monitoring.{name}: other users of this machine may read or change {file}. Run `chmod 600 {file}`."
            )
        Path(file).chmod(0o440)
        assert exposure_fault(settings) is None
        Path(file).chmod(0o600)
    reads.write_text(WRITE)
    assert "hold the same token" in (exposure_fault(settings) or "")
    reads.write_text("\n")
    assert "holds no token" in (exposure_fault(settings) or "")
    reads.unlink()
    assert "holds no token" in (exposure_fault(settings) or "")
