"""What a PromQL expression asks for: its selectors, and where each stands."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

RATE_INTERVAL = timedelta(seconds=61)
"""Stands for `$__rate_interval` while an expression is parsed; nobody writes 61 s."""


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """(label, operator, value); a label may be matched twice."""
    window: timedelta | None
    function: str | None
    """The call whose direct argument it is."""
    grouped: frozenset[str]
    """Labels by which an aggregation around it groups."""


class PromQL:
    """promql-parser behind three questions."""

    @staticmethod
    def filled(expr: str) -> str:
        """Grafana's own variables replaced; those of a dashboard stay, since they stand within strings."""
        known = {"__rate_interval": f"{RATE_INTERVAL.seconds}s", "__range": "3599s", "__interval": "15s"}
        return re.sub(r"\$(__\w+)", lambda match: known.get(match[1], match[0]), expr)

    def selectors(self, expr: str) -> list[Selector]:
        """All selectors of an expression.

        Raises:
            ValueError: it is no PromQL.
        """
        import promql_parser

        return list(_selectors(promql_parser.parse(self.filled(expr)), ()))

    def labels(self, expr: str) -> dict[str, set[str]]:
        """Metric -> labels that the expression needs of it, by matchers and by groups."""
        found: dict[str, set[str]] = {}
        for each in self.selectors(expr):
            found.setdefault(each.metric, set()).update((name for name, _, _ in each.matchers), each.grouped)
        return found


def _selectors(node: Any, above: tuple[Any, ...]) -> Iterator[Selector]:
    import promql_parser

    if isinstance(node, promql_parser.VectorSelector):
        yield _selector(node, above)
    for child in _children(node):
        yield from _selectors(child, (*above, node))


def _children(node: Any) -> list[Any]:
    names = ("expr", "param", "lhs", "rhs", "vector_selector")
    return [child for name in names if (child := getattr(node, name, None)) is not None] + list(
        getattr(node, "args", ())
    )


def _selector(node: Any, above: tuple[Any, ...]) -> Selector:
    import promql_parser

    ranged = above and isinstance(above[-1], promql_parser.MatrixSelector)
    outer = above[-2 if ranged else -1 :][0] if len(above) >= (2 if ranged else 1) else None
    grouped: set[str] = set()
    for each in above:
        modifier = getattr(each, "modifier", None) if isinstance(each, promql_parser.AggregateExpr) else None
        if modifier is not None and modifier.type == promql_parser.AggModifierType.By:
            grouped |= set(modifier.labels)
    operators = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    return Selector(
        metric=node.name,
        matchers=tuple(
            (each.name, operators[str(each.op).split(".")[-1]], each.value) for each in node.matchers.matchers
        ),
        window=above[-1].range if ranged else None,
        function=outer.func.name if isinstance(outer, promql_parser.Call) else None,
        grouped=frozenset(grouped),
    )


@pytest.fixture(scope="session")
def promql() -> PromQL:
    """Reads PromQL."""
    pytest.importorskip("promql_parser", reason="needs the dependency group `readers`")
    return PromQL()


@pytest.fixture(scope="session")
def every_query() -> Callable[[Mapping[str, Any]], list[tuple[str, str]]]:
    """`every_query(dashboard)` -> (panel's title, expression) of all panels."""

    def queries(dashboard: Mapping[str, Any]) -> list[tuple[str, str]]:
        return [
            (panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", ())
        ]

    return queries
