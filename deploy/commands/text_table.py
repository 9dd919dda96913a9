"""Text tables: rows under column names, each column as wide as its widest cell."""

from collections.abc import Iterable, Sequence

__all__ = ["text_table"]


def text_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, names first; no line ends in spaces."""
    lines = [list(names), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
