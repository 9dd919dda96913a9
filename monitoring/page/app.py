"""Routes of the page. Each handler checks its arguments, and returns the answer or one sentence about an error."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from monitoring.metrics.monitor import MonitorMetrics
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.assets import Assets
from monitoring.page.page_api import PageApi, PageError
from monitoring.page.page_login import PageLogin, Role
from monitoring.page.request_guard import MOST_BODY_BYTES, RequestGuard, error_response
from monitoring.page.runbooks import runbook_html, runbook_page
from monitoring.page.server import Workers
from monitoring.page.snapshot_broadcaster import SnapshotBroadcaster, SnapshotViewers, encode_ascii_json
from monitoring.page.topic_request import topic_request

__all__ = ["Page", "make_page"]

MOST_ROWS: Final = 500
MOST_TEXT: Final = 1024
MOST_LETTERS: Final = 500
QUESTION_SECONDS: Final = 30.0
REDRIVE_SECONDS: Final = 600.0
SCRAPE_SECONDS: Final = 10.0
BODY_SECONDS: Final = 10.0

_NUMBER: Final = re.compile("[1-9][0-9]{0,2}")

logger = logging.getLogger("tidegate.monitoring.page")


@dataclass(frozen=True, slots=True)
class Page:
    """The app, and `close`, which ends its streams; call it before closing the server."""

    app: ASGIApp
    close: Callable[[], None]


def make_page(
    settings: MonitoringSettings,
    board: SnapshotBroadcaster,
    answers: PageApi,
    *,
    registry: CollectorRegistry,
    metrics: MonitorMetrics,
    healthy: Callable[[], tuple[bool, str]],
    assets: Assets | None = None,
) -> Page:
    """Return the page of one monitor."""
    viewers, login = SnapshotViewers(board, metrics.viewers), PageLogin(settings)
    routes = _Routes(login, board, answers, registry, healthy, viewers, assets or Assets())
    app = Starlette(
        routes=routes.listed(),
        exception_handlers={PageError: _told, HTTPException: _told_by_http, Exception: _fault},
    )
    hosts = {settings.host, *settings.page_hosts} - {"0.0.0.0", "::"}  # noqa: S104 - taken out, not bound

    def count(status: int) -> None:
        metrics.requests.labels(f"{status // 100}xx").inc()

    return Page(RequestGuard(app, hosts=hosts, login=login, count=count), viewers.close)


async def _told(_request: Request, error: Exception) -> Response:
    return error_response(error) if isinstance(error, PageError) else error_response(PageError(500, "Internal error."))


async def _told_by_http(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "Page not found.", 405: "Method not allowed for this page."}.get(status, "Request rejected.")
    return error_response(PageError(status, sentence))


async def _fault(request: Request, error: Exception) -> Response:
    logger.error("internal error of the page at %s", request.url.path, exc_info=error)
    return error_response(PageError(500, "Internal error of the page: see the monitor's log."))


class _Routes:
    def __init__(
        self,
        login: PageLogin,
        board: SnapshotBroadcaster,
        answers: PageApi,
        registry: CollectorRegistry,
        healthy: Callable[[], tuple[bool, str]],
        viewers: SnapshotViewers,
        assets: Assets,
    ) -> None:
        self._login, self._board, self._answers = login, board, answers
        self._registry, self._healthy, self._viewers, self._assets = registry, healthy, viewers, assets
        self._workers = Workers()
        # Scrapes have their own thread: Prometheus must see the monitor even while the tables hang.
        self._scrapes = Workers("metrics", threads=1)
        # Kafka has its own threads: a Kafka that hangs must not delay answers from the tables.
        self._looks = Workers("topics", threads=2)

    def listed(self) -> list[Route]:
        return [
            Route("/", self.index),
            Route("/assets/{name:path}", self.asset),
            Route("/metrics", self.metrics),
            Route("/healthz", self.healthz),
            Route("/runbooks/{name}", self.runbook),
            Route("/api/session", self.session, methods=["GET", "POST"]),
            Route("/api/login", self.log_in, methods=["POST"]),
            Route("/api/logout", self.log_out, methods=["POST"]),
            Route("/api/runbook", self.runbook_json),
            Route("/api/status", self.status),
            Route("/api/stream", self.stream),
            Route("/api/history", self.history),
            Route("/api/device", self.device),
            Route("/api/devices", self.devices),
            Route("/api/dead-letters", self.dead_letters),
            Route("/api/dead-letter", self.dead_letter),
            Route("/api/redrive", self.redrive, methods=["POST"]),
            Route("/api/topics", self.topics),
            Route("/api/topic", self.topic),
        ]

    async def index(self, request: Request) -> Response:
        return self._assets.response("index.html", request.headers)

    async def asset(self, request: Request) -> Response:
        return self._assets.response(request.path_params["name"], request.headers)

    async def metrics(self, _request: Request) -> Response:
        text = await self._scrapes.run(partial(generate_latest, self._registry), patience_seconds=SCRAPE_SECONDS)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(self, _request: Request) -> Response:
        ok, words = self._healthy()
        return PlainTextResponse(f"{words}\n", 200 if ok else 503)

    async def session(self, request: Request) -> Response:
        cookie = self._login.renewed(request.scope)
        # A POST renews: it has the origin, by which the cookie stays secure.
        given = cookie if request.method == "POST" else None
        return self._session_response(self._login.role(request.scope), given, has_session=cookie is not None)

    async def log_in(self, request: Request) -> Response:
        try:
            role, cookie = self._login.log_in(request.scope)
        except PageError as error:
            logger.warning("login failed from %s: %s", request.client.host if request.client else "", error)
            raise
        return self._session_response(role, cookie, has_session=True)

    async def log_out(self, request: Request) -> Response:
        return self._session_response(Role.NOBODY, self._login.log_out(request.scope), has_session=False)

    def _session_response(self, role: Role, cookie: str | None, *, has_session: bool) -> Response:
        answer = _json_response({"login": self._login.is_needed, "role": role.word, "session": has_session})
        if cookie is not None:
            answer.headers["Set-Cookie"] = cookie
        return answer

    async def runbook(self, request: Request) -> Response:
        return HTMLResponse(runbook_page(request.path_params["name"]))

    async def runbook_json(self, request: Request) -> Response:
        name = _text(request, "name")
        return _json_response({"name": name, "html": runbook_html(name)})

    async def status(self, _request: Request) -> Response:
        if (encoded := self._board.encoded) is None:
            raise PageError(503, "The monitor has just started and has no snapshot yet. Try again in a moment.")
        return _json_response(encoded)

    async def stream(self, request: Request) -> Response:
        return self._viewers.response(lambda: self._login.still_reads(request.scope))

    async def history(self, _request: Request) -> Response:
        return _json_response(self._board.history())

    async def device(self, request: Request) -> Response:
        return await self._answer(partial(self._answers.device, _text(request, "device")))

    async def devices(self, request: Request) -> Response:
        search, limit = _text(request, "search", ""), _limit(request, 100)
        return await self._answer(partial(self._answers.devices, search, limit))

    async def dead_letters(self, request: Request) -> Response:
        reason, device = _text(request, "reason", "") or None, _text(request, "device", "") or None
        limit, before = _limit(request, 50), _text(request, "before", "") or None
        return await self._answer(partial(self._answers.dead_letters, reason, device, limit, before))

    async def dead_letter(self, request: Request) -> Response:
        return await self._answer(partial(self._answers.dead_letter, _text(request, "id")))

    async def redrive(self, request: Request) -> Response:
        who = self._login.check_write(request.scope)
        ids, dry_run = _wanted(await _body(request))
        logger.info("%s requested a redrive of %d dead letters%s", who, len(ids), " (dry run)" if dry_run else "")
        return await self._answer(partial(self._answers.redrive, ids, dry_run), patience_seconds=REDRIVE_SECONDS)

    async def topics(self, _request: Request) -> Response:
        return _json_response(await self._looks.run(self._answers.topics, patience_seconds=QUESTION_SECONDS))

    async def topic(self, request: Request) -> Response:
        question = partial(self._answers.topic, topic_request(request.query_params))
        return _json_response(await self._looks.run(question, patience_seconds=QUESTION_SECONDS))

    async def _answer(
        self, question: Callable[[], dict[str, Any]], *, patience_seconds: float | None = None
    ) -> Response:
        return _json_response(await self._workers.run(question, patience_seconds=patience_seconds or QUESTION_SECONDS))


def _json_response(value: object) -> Response:
    """Return a value as JSON; bytes are JSON already."""
    body = value if isinstance(value, bytes) else encode_ascii_json(value)
    return Response(body, media_type="application/json")


def _text(request: Request, name: str, default: str | None = None) -> str:
    """Return a query parameter.

    Raises:
        PageError: the parameter is missing or too long.
    """
    given = request.query_params.get(name, default)
    if given is None or (default is None and not given):
        raise PageError(400, f"Missing parameter: add ?{name}=.")
    if len(given) > MOST_TEXT:
        raise PageError(400, f"?{name}= is too long: at most {MOST_TEXT} characters are allowed.")
    return given


def _limit(request: Request, default: int) -> int:
    text = request.query_params.get("limit", str(default))
    if not _NUMBER.fullmatch(text) or int(text) > MOST_ROWS:
        raise PageError(400, f"Invalid ?limit=: use a number from 1 to {MOST_ROWS}.")
    return int(text)


async def _body(request: Request) -> bytes:
    """Return the body; never read more than is allowed."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                found += chunk
                if len(found) > MOST_BODY_BYTES:
                    raise PageError(413, f"The request body is too large: at most {MOST_BODY_BYTES} bytes are allowed.")
    except (TimeoutError, ClientDisconnect):
        raise PageError(400, f"The request body did not arrive within {BODY_SECONDS:g} s.") from None
    return bytes(found)


def _wanted(body: bytes) -> tuple[list[str], bool]:
    """Return the ids of the dead letters to redrive, and whether this is a dry run.

    Raises:
        PageError: the body has another form.
    """
    sentence = (
        f'Invalid body: send {{"ids": [1 to {MOST_LETTERS} ids of dead letters], "dry_run": true or false}} as JSON.'
    )
    try:
        found = json.loads(body)
        ids, dry_run = found["ids"], found["dry_run"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PageError(400, sentence) from None
    texts = isinstance(ids, list) and all(isinstance(each, str) and len(each) <= MOST_TEXT for each in ids)
    if not texts or not isinstance(dry_run, bool) or not 1 <= len(ids) <= MOST_LETTERS:
        raise PageError(400, sentence)
    return ids, dry_run
