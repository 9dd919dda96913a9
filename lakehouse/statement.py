"""Accept only a single read-only DuckDB statement: allow-lists over DuckDB's own parse tree and words.

A query can contain commands (`WITH x AS (COPY …)` writes a file) and functions that run the text they get. Comments nest, so
the words are those of DuckDB's tokenizer. The checked statement is what runs: an EXPLAIN is put together again from its parts.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ingest.contract.errors import TidegateError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["check_query"]

_QUERIES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Kinds of queries in a parse tree that hold no command."""

_TABLE_FUNCTIONS: Final = frozenset(
    {
        "generate_series", "histogram", "histogram_values", "icu_calendar_names", "json_each", "json_tree", "pg_timezone_names",
        "pragma_database_size", "pragma_platform", "pragma_show", "pragma_table_info", "pragma_version", "range", "repeat",
        "repeat_row", "summary", "unnest",
    }
)  # fmt: skip
"""Functions that give rows from their arguments, or say what is in the database; those named `duckdb_…` do so too."""


def check_query(connection: "DuckDBPyConnection", sql: str) -> str:
    """The statement to run for this text, which is one query that only reads.

    Raises:
        TidegateError: it is not, in a sentence.
        duckdb.Error: it is not valid SQL for DuckDB.
    """
    import duckdb

    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "none"
        message = f"`tidegate sql` runs one query at a time, but got {count}."
        raise TidegateError(message)
    kind = statements[0].type.name
    if kind == "SELECT":
        _check_tree(connection, sql)
        return sql
    words = _words(sql)
    if kind == "EXPLAIN":
        options, query = _explained(sql, words)
        return f"{options} {check_query(connection, query)}"
    # A PIVOT that looks for its columns by itself is a query in several steps, of which DuckDB shows no tree.
    if kind == "MULTI" and words[0].text.upper() in {"PIVOT", "SELECT", "FROM"}:
        _check_words(connection, words)
        return sql
    raise _refused(kind)


@dataclass(frozen=True, slots=True)
class _Word:
    """One word or sign of a statement, and where it begins, in bytes."""

    text: str
    start: int


def _words(sql: str) -> list[_Word]:
    """The words of a statement without its comments."""
    import duckdb

    data = sql.encode()
    tokens = [*duckdb.tokenize(sql), (len(data), None)]
    return [
        _Word(data[start:end].decode(errors="replace").strip(), start)
        for (start, kind), (end, _) in pairwise(tokens)
        if kind != duckdb.token_type.comment
    ]


def _explained(sql: str, words: list[_Word]) -> tuple[str, str]:
    """An EXPLAIN with its options, and the statement behind it."""
    at = 2 if words[1].text.upper() == "ANALYZE" else 1
    if words[at].text == "(":
        at = next(place for place, word in enumerate(words) if word.text == ")") + 1
    return " ".join(word.text for word in words[:at]), sql.encode()[words[at].start :].decode()


def _check_tree(connection: "DuckDBPyConnection", sql: str) -> None:
    """Refuse a query that holds a command, or a function of rows that is not listed."""
    answer = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    tree = msgspec.json.decode(answer[0][0])
    if tree["error"]:
        message = f"`tidegate sql` cannot tell whether this query only reads: {tree.get('error_message')}"
        raise TidegateError(message)
    waiting: list[Any] = [tree["statements"]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            kind = str(item.get("type"))
            if ("cte_map" in item or kind.endswith("_NODE")) and kind not in _QUERIES:
                raise _refused(kind.partition("_")[0], " inside a query")
            if kind == "TABLE_FUNCTION":
                _check_function(str(item["function"].get("function_name")))
            waiting += item.values()


def _check_words(connection: "DuckDBPyConnection", words: list[_Word]) -> None:
    """Refuse a statement that calls a function of rows that is not listed."""
    query = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro', 'pragma')"
    known = {name for (name,) in connection.execute(query).fetchall()}
    for word, following in pairwise(words):
        name = word.text.strip('"').lower()
        if following.text == "(" and name in known:
            _check_function(name)


def _check_function(name: str) -> None:
    if name.lower() not in _TABLE_FUNCTIONS and not name.lower().startswith("duckdb_"):
        raise _refused(name, "(), which may read files or run commands")


def _refused(what: str, more: str = "") -> TidegateError:
    return TidegateError(
        f"`tidegate sql` only reads, but this is {what}{more}. Write a query (SELECT, FROM, WITH, DESCRIBE). To change "
        "tables, use commands such as `tidegate correct`."
    )
