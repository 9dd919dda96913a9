"""Text of other people in SQL: as bytes, so that nothing in it can be anything but a value."""

__all__ = ["duckdb_literal"]


def duckdb_literal(text: str) -> str:
    """An expression of DuckDB that is this text: digits of a hexadecimal number, which it folds to a constant.

    `run_sql` takes no parameters and looks for tables' names in what it is given: in this it finds none.
    """
    return f"decode(unhex('{text.encode('utf-8', 'replace').hex()}'))"
