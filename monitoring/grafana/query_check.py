"""Check of the dashboards: send every query to a Prometheus, as Grafana would, and report those without a result."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from monitoring.scrape import OPENER

__all__ = ["EXPECTED_EMPTY", "ONLY_WITH", "EmptyQuery", "ask_prometheus", "empty_queries"]

Ask = Callable[[str], list[Any]]
"""PromQL -> the `result` of an instant query; a ValueError holds Prometheus' error."""
NOTHING: Final = "no series"
_REFUSED: Final = (400, 422)
"""HTTP codes with which Prometheus answers a query that it does not understand, or that fails."""
_OF_GRAFANA: Final = {"__rate_interval": "1m", "__range": "15m", "__interval": "15s"}

_NO_SYS: Final = "the broker reports no figures under $SYS"
_NO_SQL: Final = "there is no SQL-defined stream"
EXPECTED_EMPTY: Final[Mapping[str, str]] = {
    "Rejected messages": "no message was rejected recently",
    "Error rate": "no request failed",
    "Certificates expire in": "no server uses TLS",
    "Days until the disk is full": "the forecast of a disk begins after three hours",
    "SQL stream lag": _NO_SQL,
    "SQL stream rows": _NO_SQL,
    "SQL stream errors": _NO_SQL,
    "SQL stream last batch": _NO_SQL,
    "variable stream": _NO_SQL,
    "Clients": _NO_SYS,
    "PUBLISH packets": _NO_SYS,
    "Broker bytes": _NO_SYS,
    "Messages held": _NO_SYS,
}
"""Panels and variables that may be empty in a healthy run, and why."""
ONLY_WITH: Final[Mapping[str, tuple[str, str]]] = {
    "tidegate-bench": ("tidegate_bench_runs_planned", "no benchmark runs with --metrics-port"),
}
"""Dashboard -> a series without which the whole dashboard is empty, and why that is allowed."""


@dataclass(frozen=True, slots=True)
class EmptyQuery:
    """A query that gave no series, or no number; `why` is the error of Prometheus, or why an empty result is expected."""

    dashboard: str
    panel: str
    expr: str
    why: str = ""
    expected: bool = False


def empty_queries(dashboards: tuple[Mapping[str, Any], ...], ask: Ask) -> list[EmptyQuery]:
    """Return all queries without a result, including the expected ones."""
    found = []
    for dashboard in dashboards:
        values = _values(dashboard)
        for panel, expr in _queries(dashboard):
            why = _fault(ask, _filled(expr, values))
            if why is not None:
                reason = _expected(dashboard["uid"], panel, ask) if why == NOTHING else None
                found.append(EmptyQuery(dashboard["uid"], panel, expr, reason or why, expected=reason is not None))
    return found


def _expected(dashboard: str, panel: str, ask: Ask) -> str | None:
    """Return why a panel may be empty; None if it may not."""
    series, why = ONLY_WITH.get(dashboard, ("", ""))
    return why if series and not ask(series) else EXPECTED_EMPTY.get(panel)


def ask_prometheus(base_url: str, *, timeout_seconds: float = 10.0) -> Ask:
    """Return a function that queries over HTTP.

    Raises (the returned function):
        ValueError: Prometheus refuses the query.
        OSError: no answer.
    """

    def ask(expr: str) -> list[Any]:
        body = urllib.parse.urlencode({"query": expr}).encode()
        request = urllib.request.Request(f"{base_url.rstrip('/')}/api/v1/query", data=body)  # noqa: S310 - the caller's own
        try:
            with OPENER.open(request, timeout=timeout_seconds) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            if error.code not in _REFUSED:
                raise
            raise ValueError(error.read().decode("utf-8", "replace")[:300]) from error
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            msg = "its answer is not Prometheus' own"
            raise OSError(msg) from error

    return ask


def _values(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """Return the value of each variable when the viewer chose nothing: all."""
    variables = dashboard["templating"]["list"]
    return _OF_GRAFANA | {each["name"]: each["allValue"] for each in variables if each["type"] == "query"}


def _filled(expr: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], match[0]), expr)


def _queries(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in dashboard["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.findall(r"label_values\((.+), (\w+)\)", variable["query"])[0]
            yield f"variable {variable['name']}", f"count by ({label}) ({series})"


def _fault(ask: Ask, expr: str) -> str | None:
    """Return what is wrong with the result; None if there is a number."""
    try:
        series = ask(expr)
    except ValueError as error:
        return f"refused: {error}"
    if not series:
        return NOTHING
    if all(math.isnan(float(each["value"][1])) for each in series):
        return "no number"
    return None
