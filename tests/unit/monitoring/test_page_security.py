"""Who may ask the page for what: host names, methods, sizes, the token, files that are none of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitoring.page.request_guard import HEADERS, MOST_BODY_BYTES

Make = Callable[..., Any]
ROUTES = ("/", "/assets/app.js", "/metrics", "/healthz", "/api/status", "/api/history", "/nowhere", "/runbooks/None")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:9470",
        "localhost:9470",
        "LOCALHOST",
        "localhost.",
        "[::1]:9470",
        "127.8.9.1",
        "ops.example",
    ],
)
def test_names_of_this_machine_and_those_that_were_allowed_may_ask(make_page_stage: Make, host: str) -> None:
    stage = make_page_stage(page_hosts=("ops.example",))
    assert stage.ask("/api/history", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:9470", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.7",
     "evil.example#127.0.0.1", "127.0.0.1@evil.example", "[::2]:9470", "0x7f.1", "2130706433", "ops.example.evil"],
)  # fmt: skip
def test_a_name_that_somebody_else_points_here_is_refused_everywhere(make_page_stage: Make, host: str | None) -> None:
    stage = make_page_stage(page_hosts=("ops.example",))
    for route in ROUTES:
        answer = stage.ask(route, host=host)
        if route in ("/metrics", "/healthz"):
            assert answer.status == 200, "Prometheus and Kubernetes have names of their own for this machine"
            continue
        assert answer.status == 403, route
        assert "monitoring.page_hosts" in json.loads(answer.body)["error"]


def test_two_host_headers_are_no_host(make_page_stage: Make) -> None:
    answer = make_page_stage().ask("/api/history", headers=[("host", "localhost")])
    assert answer.status == 403


def test_the_address_that_the_connection_came_to_may_be_named(make_page_stage: Make) -> None:
    stage = make_page_stage(host="0.0.0.0")  # noqa: S104 - nothing is bound
    assert stage.ask("/api/history", host="10.1.2.3:9470", server="10.1.2.3").status == 200
    assert stage.ask("/api/history", host="10.1.2.4:9470", server="10.1.2.3").status == 403
    assert stage.ask("/api/history", host="0.0.0.0:9470", server="10.1.2.3").status == 403


@pytest.mark.parametrize("path", ["/metrics/", "//metrics", "/metrics/../api/history", "/healthzz", "/METRICS"])
def test_only_metrics_and_health_are_for_any_name(make_page_stage: Make, path: str) -> None:
    assert make_page_stage().ask(path, host="evil.example").status == 403


def test_another_sites_script_does_not_read_metrics_either(make_page_stage: Make) -> None:
    headers = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]
    assert make_page_stage().ask("/metrics", headers=headers).status == 403


def test_every_answer_carries_the_headers_and_none_lets_another_origin_in(make_page_stage: Make) -> None:
    stage = make_page_stage()
    answers = [stage.ask(route, headers=[("origin", "http://evil.example")]) for route in ROUTES]
    answers.append(stage.ask("/api/status", host="evil.example"))
    answers.append(stage.ask("/api/redrive", method="OPTIONS", headers=[("origin", "http://evil.example")]))
    for answer in answers:
        assert HEADERS.items() <= {_title(name): value for name, value in answer.headers.items()}.items()
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "cache-control" in answer.headers


def _title(name: str) -> str:
    return next((known for known in HEADERS if known.lower() == name), name)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_script_takes_nobodys_place_and_its_links_are_followed(make_page_stage: Make, site: str) -> None:
    stage = make_page_stage()
    for mode in ("cors", "no-cors"):
        headers = [("sec-fetch-site", site), ("sec-fetch-mode", mode)]
        assert stage.ask("/api/stream", headers=headers).status == 403
        assert stage.ask("/assets/app.js", headers=headers).status == 403
    assert stage.ask("/", headers=[("sec-fetch-site", site), ("sec-fetch-mode", "navigate")]).status == 200
    assert stage.ask("/healthz", headers=[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")]).status == 200
    assert stage.ask("/", headers=[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]).status == 200


def test_the_policy_runs_no_script_but_our_own(make_page_stage: Make) -> None:
    policy = make_page_stage().ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"])
def test_other_methods_are_refused(make_page_stage: Make, method: str) -> None:
    assert make_page_stage().ask("/api/status", method=method).status == 405


@pytest.mark.parametrize("route", ["/", "/api/status", "/api/dead-letter?id=0-1", "/metrics"])
def test_what_only_shows_takes_no_post(make_page_stage: Make, route: str) -> None:
    assert make_page_stage().ask(route, method="POST").status == 405


@pytest.mark.parametrize("length", [str(MOST_BODY_BYTES + 1), "9" * 400, "-1", "x", ""])
def test_a_body_that_says_it_is_too_long_is_not_read(make_page_stage: Make, length: str) -> None:
    answer = make_page_stage().ask("/api/redrive", method="POST", headers=[("content-length", length)])
    assert answer.status == 413


def test_a_body_that_grows_too_long_is_cut_off(make_page_stage: Make, token: Any) -> None:
    stage = make_page_stage(page_token_file=token.file)
    chunks = [b"x" * 8192] * 100
    answer = stage.ask("/api/redrive", method="POST", headers=token.given, chunks=chunks)
    assert answer.status == 413


class Token:
    """A token and its file."""

    def __init__(self, file: Path, text: str) -> None:
        self.path, self.file = file, str(file)
        self.write(text)

    def write(self, text: str) -> None:
        self.text = text
        self.path.write_text(f"{text}\n", encoding="utf-8")

    @property
    def given(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.text}")]


@pytest.fixture
def token(tmp_path: Path) -> Token:
    return Token(tmp_path / "token", "s3cret-of-the-page")


BODY = [b'{"ids": ["0-1"], "dry_run": true}']


def test_without_a_token_file_the_page_only_shows(make_page_stage: Make, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for file in (None, str(tmp_path / "missing"), str(tmp_path / "empty"), str(tmp_path)):
        stage = make_page_stage(page_token_file=file, answers={"redrive": lambda *_: pytest.fail("it redrove")})
        answer = stage.ask("/api/redrive", method="POST", headers=[("authorization", "Bearer ")], chunks=BODY)
        assert answer.status == 403
        assert "monitoring.page_token_file" in json.loads(answer.body)["error"]
        stage.registry._names_to_collectors.clear()


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer s3cret-of-the-pag", "Bearer s3cret-of-the-page2", "Basic s3cret-of-the-page",
     "s3cret-of-the-page", "Bearer \xff\xfe", "Bearer S3CRET-OF-THE-PAGE"],
)  # fmt: skip
def test_a_wrong_token_is_told_so(make_page_stage: Make, token: Token, given: str) -> None:
    stage = make_page_stage(page_token_file=token.file, answers={"redrive": lambda *_: pytest.fail("it redrove")})
    answer = stage.ask("/api/redrive", method="POST", headers=[("authorization", given)], chunks=BODY)
    assert answer.status == 401
    assert token.text not in answer.body.decode()


def test_the_token_lets_a_redrive_through_and_a_new_one_holds_at_once(make_page_stage: Make, token: Token) -> None:
    asked: list[Any] = []
    redrive = lambda ids, dry_run: asked.append((ids, dry_run)) or {"letters": 1}  # noqa: E731
    stage = make_page_stage(page_token_file=token.file, answers={"redrive": redrive})
    old = token.given
    assert stage.ask("/api/redrive", method="POST", headers=old, chunks=BODY).status == 200
    assert asked == [(["0-1"], True)]
    token.write("another")
    assert stage.ask("/api/redrive", method="POST", headers=old, chunks=BODY).status == 401
    assert stage.ask("/api/redrive", method="POST", headers=token.given, chunks=BODY).status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"{}", b'{"ids": [], "dry_run": true}', b'{"ids": "0-1", "dry_run": true}',
     b'{"ids": [1], "dry_run": true}', b'{"ids": ["0-1"]}', b'{"ids": ["0-1"], "dry_run": "no"}',
     b'{"ids": ["' + b"x" * 2000 + b'"], "dry_run": true}', b"[" * 20000, b"\xff\xfe"],
)  # fmt: skip
def test_a_body_that_is_no_request_is_told_what_is_wanted(make_page_stage: Make, token: Token, body: bytes) -> None:
    stage = make_page_stage(page_token_file=token.file, answers={"redrive": lambda *_: pytest.fail("it redrove")})
    answer = stage.ask("/api/redrive", method="POST", headers=token.given, chunks=[body])
    assert answer.status == 400
    assert '"dry_run"' in json.loads(answer.body)["error"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of assets with things around it that are none."""
    assets = tmp_path / "page" / "assets"
    (assets / "deep").mkdir(parents=True)
    (assets / "app.js").write_text("export {};")
    (assets / "deep" / "x.css").write_text("a{}")
    (assets / "notes.py").write_text("secret = 1")
    (assets / ".hidden.js").write_text("secret")
    (tmp_path / "page" / "outside.js").write_text("secret")
    (assets / "link.js").symlink_to(tmp_path / "page" / "outside.js")
    return assets


@pytest.mark.parametrize(
    "name",
    ["../outside.js", "..%2foutside.js", "%2e%2e/outside.js", "deep/../../outside.js", "/etc/passwd", "//etc/passwd",
     "deep", "", "notes.py", ".hidden.js", "link.js", "app.js%00.css", "app.js/", "deep//x.css", "./app.js", "APP.JS",
     "..\\outside.js", "app.js\x00", "C:\\x.js", "x" * 3000 + ".js"],
)  # fmt: skip
def test_nothing_but_an_asset_is_an_asset(make_page_stage: Make, folder: Path, name: str) -> None:
    answer = make_page_stage(assets=folder).ask(f"/assets/{name}")
    assert answer.status == 404
    assert b"secret" not in answer.body


def test_an_asset_has_its_type_and_is_sent_once(make_page_stage: Make, folder: Path) -> None:
    stage = make_page_stage(assets=folder)
    first = stage.ask("/assets/app.js")
    assert (first.status, first.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert stage.ask("/assets/deep/x.css").headers["content-type"] == "text/css; charset=utf-8"
    again = stage.ask("/assets/app.js", headers=[("if-none-match", first.headers["etag"])])
    assert (again.status, again.body) == (304, b"")
    (folder / "app.js").write_text("export const changed = 1;")
    changed = stage.ask("/assets/app.js", headers=[("if-none-match", first.headers["etag"])])
    assert (changed.status, changed.body) == (200, b"export const changed = 1;")


@pytest.mark.parametrize("name", ["..%2f..%2fsettings", "../settings", "%2e%2e", "x.md", "a/b", "X%00", "x" * 500])
def test_nothing_but_a_runbook_is_a_runbook(make_page_stage: Make, name: str) -> None:
    stage = make_page_stage()
    assert stage.ask(f"/runbooks/{name}").status == 404
    assert stage.ask(f"/api/runbook?name={name}").status == 404


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/device", 400), ("/api/device?device=", 400), (f"/api/device?device={'x' * 1025}", 400),
        ("/api/devices?limit=0", 400), ("/api/devices?limit=501", 400), ("/api/devices?limit=-1", 400),
        ("/api/devices?limit=000001000000", 400), ("/api/devices?limit=0050", 400),
        (f"/api/devices?limit=000001{'0' * 5000}", 400), ("/api/devices?limit=", 400), ("/api/devices?limit=50%0A", 400),
        ("/api/devices?limit=1e3", 400), ("/api/devices?limit=%D9%A1", 400), (f"/api/devices?limit={'9' * 900}", 400),
        ("/api/devices", 200), ("/api/devices?limit=500&search=", 200), ("/api/dead-letter", 400),
    ],
)  # fmt: skip
def test_parameters_have_bounds(make_page_stage: Make, target: str, status: int) -> None:
    assert make_page_stage().ask(target).status == status
