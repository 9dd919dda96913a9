"""What of DuckDB's SQL is one query that only reads."""

import re
from typing import Final

from ingest.contract.errors import TidegateError

__all__ = ["check_query"]

_COMMENTS: Final = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_EXPLAIN: Final = re.compile(_COMMENTS + r"EXPLAIN\s+(ANALYZE\s+)?(\([^)]*\)\s*)?", re.IGNORECASE | re.DOTALL)
_PIVOTING: Final = re.compile(_COMMENTS + r"(PIVOT|SELECT|FROM)\b", re.IGNORECASE | re.DOTALL)


def check_query(sql: str) -> None:
    """Whether this is one query that only reads.

    Raises:
        TidegateError: it is not, in a sentence.
        duckdb.Error: it is no SQL of DuckDB's.
    """
    import duckdb

    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        count = f"{len(statements)} statements" if statements else "none"
        message = f"`tidegate sql` answers one query at a time, and this is {count}."
        raise TidegateError(message)
    kind = statements[0].type.name
    if kind == "EXPLAIN" and (found := _EXPLAIN.match(sql)) is not None:
        check_query(sql[found.end() :])
    # A PIVOT that looks for its columns by itself is a query in several steps.
    elif kind != "SELECT" and not (kind == "MULTI" and _PIVOTING.match(sql)):
        message = (
            f"`tidegate sql` only reads, and this is {kind}. Write a query (SELECT, FROM, WITH, DESCRIBE); "
            "what changes tables are commands of their own, such as `tidegate correct`."
        )
        raise TidegateError(message)
