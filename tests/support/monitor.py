"""The monitor's page without a socket, and small tables for what it asks of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client import CollectorRegistry

from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from monitoring.metrics.monitor import MonitorMetrics
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.app import Page, make_page
from monitoring.page.assets import Assets
from monitoring.page.page_api import PageApi
from monitoring.page.snapshot_broadcaster import SnapshotBroadcaster


@dataclass
class Answered:
    """One answer of the app."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class PageStage:
    """A page with a board to publish on; `ask` sends one request to it without a network."""

    board: SnapshotBroadcaster
    page: Page
    metrics: MonitorMetrics
    registry: CollectorRegistry

    def ask(
        self,
        target: str,
        *,
        method: str = "GET",
        host: str | None = "127.0.0.1:9470",
        headers: Sequence[tuple[str, str]] = (),
        chunks: Sequence[bytes] = (b"",),
        server: str = "127.0.0.1",
        client: str = "127.0.0.1",
    ) -> Answered:
        """The app's answer; `chunks` is the body as it arrives."""
        listed = [*headers] if host is None else [("host", host), *headers]
        return asyncio.run(_ask(self.page.app, target, method, listed, list(chunks), server, client))


async def _ask(
    app: Any,
    target: str,
    method: str,
    headers: list[tuple[str, str]],
    chunks: list[bytes],
    server: str,
    client: str,
) -> Answered:
    parts = urlsplit(target)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": (client, 50000), "server": (server, 9470),
    }  # fmt: skip
    told: list[dict[str, Any]] = []
    left = [*chunks]

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.sleep(3600)
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left)}

    async def send(message: Any) -> None:
        told.append(dict(message))

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in told[0]["headers"]}
    return Answered(told[0]["status"], found, b"".join(message.get("body", b"") for message in told[1:]))


def _nothing(*_arguments: Any) -> dict[str, Any]:
    return {}


@pytest.fixture
def make_page_stage(registry: CollectorRegistry) -> Callable[..., PageStage]:
    """`make_page_stage(answers={...}, assets=folder, **settings)`."""

    def make(*, answers: Mapping[str, Any] | None = None, assets: Path | None = None, **settings: Any) -> PageStage:
        board, metrics = SnapshotBroadcaster(), MonitorMetrics(registry)
        given = {"device": _nothing, "devices": _nothing, "dead_letters": _nothing, "dead_letter": _nothing}
        given |= {"topics": _nothing, "topic": _nothing}
        page = make_page(
            MonitoringSettings(**settings),
            board,
            PageApi(**{**given, "redrive": _nothing, **(answers or {})}),
            registry=registry,
            metrics=metrics,
            healthy=lambda: (True, "looked 0 s ago"),
            assets=Assets(assets) if assets else None,
        )
        return PageStage(board, page, metrics, registry)

    return make


class SmallLake:
    """All tables under one root; `put` adds rows and fills what a test does not care about."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        ensure_tables(self.root, ALL_TABLES.values(), log_retention_hours=24)

    def put(self, table: str, *rows: Mapping[str, Any]) -> None:
        """Append rows."""
        schema = pa.schema(DeltaTable(f"{self.root}/{table}").schema().to_arrow())
        whole = [{field.name: row.get(field.name, _default(field)) for field in schema} for row in rows]
        columns = {field.name: pa.array([row[field.name] for row in whole], field.type) for field in schema}
        write_deltalake(f"{self.root}/{table}", pa.table(columns, schema=schema), mode="append")


def _default(field: Any) -> Any:
    if field.nullable:
        return None
    if pa.types.is_timestamp(field.type):
        return datetime.now(UTC)
    if pa.types.is_date(field.type):
        return datetime.now(UTC).date()
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return ""
    if pa.types.is_boolean(field.type):
        return False
    return 0


@pytest.fixture
def small_lake(tmp_path: Path) -> SmallLake:
    """Empty tables, all of them."""
    return SmallLake(tmp_path / "tables")
