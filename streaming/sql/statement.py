"""What a statement says without Spark: is it one query, and which relations does it read."""

import re
from itertools import pairwise
from typing import Final

from ingest.contract.errors import ConfigError

__all__ = ["check_statement", "relations"]

_TERM: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/"  # comments
    r"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\""  # text
    r"|`(?:[^`]|``)+`|[A-Za-z_][A-Za-z0-9_]*|\S",
    re.DOTALL,
)
_WRITES: Final = frozenset(
    {"insert", "delete", "update", "merge", "drop", "create", "alter", "truncate", "set", "cache", "refresh", "use"}
)
_RUNS_CODE: Final = frozenset({"reflect", "java_method", "try_reflect"})
_ENDS_FROM: Final = frozenset(
    {"where", "group", "having", "order", "limit", "select", "union", "except", "intersect", "on", "using", "window"}
)


def check_statement(body: str, where: str) -> None:
    """Refuse what is no single query.

    Raises:
        ConfigError: it is none.
    """
    terms = _terms(body)
    first = terms[0].lower() if terms else ""
    if first not in ("select", "with") or ";" in terms:
        message = (
            f"{where}: the statement begins with {first!r}" if ";" not in terms else f"{where}: a second statement"
        )
        msg = f"{message}; wanted one query: SELECT …, or WITH … SELECT …."
        raise ConfigError(msg)
    for before, term in zip(["", *terms], terms, strict=False):
        if term.lower() in _WRITES and before in ("", ")"):
            msg = f"{where}: {term} changes something; wanted one query: SELECT …, or WITH … SELECT …."
            raise ConfigError(msg)
    for term, after in pairwise(terms):
        if term.lower() in _RUNS_CODE and after == "(":
            msg = f"{where}: {term} calls any code of the JVM; wanted Spark's own functions."
            raise ConfigError(msg)


def relations(body: str) -> list[str]:
    """The names after FROM and JOIN that the statement does not define itself, in order, each once."""
    terms = _terms(body)
    own = {
        _plain(terms[i - 1])
        for i, term in enumerate(terms)
        if term.lower() == "as" and i + 1 < len(terms) and terms[i + 1] == "(" and i > 0
    }
    found: list[str] = []
    for name in _named(terms):
        if name not in own and name not in found:
            found.append(name)
    return found


def _named(terms: list[str]) -> list[str]:
    """Every relation named in a FROM clause: after FROM, JOIN, and each comma of the clause."""
    found: list[str] = []
    clauses: list[int] = []
    depth = 0
    expected = False
    for index, term in enumerate(terms):
        word = term.lower()
        if term == "(":
            depth += 1
            expected = False
            continue
        if term == ")":
            clauses = [at for at in clauses if at < depth]
            depth -= 1
            expected = False
            continue
        if word == "from" and not _inside_call(terms, index):
            clauses.append(depth)
            expected = True
        elif word == "join" or (term == "," and clauses and clauses[-1] == depth):
            expected = True
        elif word in _ENDS_FROM and clauses and clauses[-1] == depth:
            clauses.pop()
            expected = False
        elif expected and word not in ("lateral", "stream"):
            following = terms[index + 1] if index + 1 < len(terms) else ""
            if following == "." or (following == "(" and term[0] != "`"):
                found.append(term + following)
            else:
                found.append(_plain(term))
            expected = False
    return found


def _inside_call(terms: list[str], index: int) -> bool:
    """`extract(hour FROM event_time)`, `trim(both 'x' FROM text)` and IS DISTINCT FROM name no relation."""
    if terms[index - 1].lower() == "distinct":
        return True
    depth = 0
    for at in range(index - 1, -1, -1):
        if terms[at] == ")":
            depth += 1
        elif terms[at] == "(":
            if depth == 0:
                return at > 0 and terms[at - 1].lower() in ("extract", "trim", "substring", "substr", "overlay")
            depth -= 1
    return False


def _terms(body: str) -> list[str]:
    return [term for term in _TERM.findall(body) if not term.startswith(("--", "/*"))]


def _plain(term: str) -> str:
    return term.strip("`").replace("``", "`").lower()
