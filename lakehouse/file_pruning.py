"""Choose the files of a table that a query needs, by the conditions on times that DuckDB's plan pushes down to the scan.

A plan says per scan what every wanted row fulfils, with `now()` and arithmetic worked out. What is not understood here
only means that a file is opened in vain: DuckDB checks every condition itself.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from lakehouse.scan import FileScan

__all__ = ["needed_files"]

_COMPARISON: Final = (
    r'\(?"?(?P<column>\w+)"? (?P<sign>>=|<=|=|>|<) '
    r"'(?P<time>[0-9]{4}-[0-9: .+-]+)'::TIMESTAMP WITH TIME ZONE\)?"
)
_CONJUNCTION: Final = re.compile(r"\(*(?:{0})(?: AND (?:{0}))*\)*".format(re.sub(r"\?P<\w+>", "?:", _COMPARISON)))


_LEAVES: Final = frozenset(
    {"READ_PARQUET", "PYTHON_ARROW_SCAN", "DUMMY_SCAN", "CTE_SCAN", "REC_CTE_SCAN", "DELIM_SCAN", "RANGE"}
)
"""Known sources of rows in a plan. Others may be answers that the planner found in the files it was given, `EMPTY_RESULT` among
them: other files may give other answers.
"""


def needed_files(plan: str, scan: FileScan) -> list[str]:
    """The files that can hold a row that some scan of the plan wants.

    Args:
        plan: of `EXPLAIN (FORMAT json)`; each scan of Parquet files in it must be one of this table. It may have been made
            for some of the files only.
        scan: the table.
    """
    nodes = json.loads(plan)
    if not _leaves(nodes) <= _LEAVES:
        return list(scan.files)
    wanted: set[int] = set()
    for conditions in _scans(nodes):
        wanted |= {i for i in range(len(scan.files)) if _may_hold(scan, i, conditions)}
    return [file for i, file in enumerate(scan.files) if i in wanted]


_Condition = tuple[str, str, int]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _leaves(nodes: list[dict[str, Any]]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        found |= _leaves(node["children"]) if node.get("children") else {node["name"].strip()}
    return found


def _scans(nodes: list[dict[str, Any]]) -> Iterator[list[_Condition]]:
    for node in nodes:
        if node["name"].strip() == "READ_PARQUET":
            told = node.get("extra_info", {}).get("Filters", [])
            yield [found for text in ([told] if isinstance(told, str) else told) for found in _conditions(text)]
        yield from _scans(node.get("children", []))


def _conditions(text: str) -> Iterator[_Condition]:
    """The comparisons of one condition of the plan; none where it is anything but comparisons joined by AND."""
    if _CONJUNCTION.fullmatch(text.removeprefix("optional: ")) is None:
        return
    for match in re.finditer(_COMPARISON, text):
        try:
            time = datetime.fromisoformat(match["time"])
        except ValueError:  # a year that Python does not know
            continue
        yield match["column"], match["sign"], (time - _EPOCH) // timedelta(microseconds=1)


def _may_hold(scan: FileScan, file: int, conditions: list[_Condition]) -> bool:
    for column, sign, time in conditions:
        lows, highs = scan.ranges.get(column, ((), ()))
        low, high = (lows[file], highs[file]) if lows and highs else (None, None)
        if sign in (">", ">=", "=") and high is not None and high < time:
            return False
        if sign in ("<", "<=", "=") and low is not None and low > time:
            return False
    return True
