"""Shape of a planned query: what decides whether its checkpoint survives a change, and what cannot be streamed."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import ConfigError
from streaming.sql.definition_changes import CheckpointShape
from streaming.sql.header import StreamDefinition
from streaming.sql.statement import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_columns", "check_streamable", "shape_of"]

_COLUMN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_UNWRITABLE: Final = ("void", "interval", "variant", "timestamp_ntz")
_REMEMBERS: Final = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit")


def shape_of(
    definition: StreamDefinition,
    rows: "DataFrame",
    *,
    sources: tuple[str, ...],
    tables: tuple[str, ...],
    partitions: int,
) -> CheckpointShape:
    """The shape of a definition whose streaming frame is `rows`."""
    watermark = definition.watermark
    return CheckpointShape(
        body=" ".join(definition.body.split()),
        sources=sources,
        tables=tables,
        state=tuple(_state(rows._jdf.queryExecution().analyzed())),
        columns=tuple((field.name, field.dataType.simpleString()) for field in rows.schema.fields),
        sinks=definition.sinks,
        key=definition.key,
        watermark=(watermark.column, watermark.delay) if watermark else None,
        late=definition.late,
        trigger_seconds=definition.trigger_seconds,
        partitions=partitions,
    )


def check_columns(columns: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse columns (name, type) that no sink can write.

    Raises:
        ConfigError: in one sentence.
    """
    names = []
    for name, kind in columns:
        if not _COLUMN.fullmatch(name):
            msg = f"{where}: the column {name!r} has no explicit name; wanted `… AS name` in the SELECT."
            raise ConfigError(msg)
        if any(word in kind for word in _UNWRITABLE):
            msg = f"{where}: the column {name} has type {kind}, which tables can't store; wanted a CAST."
            raise ConfigError(msg)
        if name.lower() in names:
            msg = f"{where}: the column {name} is twice in the SELECT; wanted each name once."
            raise ConfigError(msg)
        names.append(name.lower())


def check_streamable(definition: StreamDefinition, shape: CheckpointShape, rows: "DataFrame", where: str) -> None:
    """Refuse what Spark or a sink would refuse once it runs.

    Raises:
        ConfigError: in one sentence.
    """
    check_columns(shape.columns, where)
    names = [name for name, _ in shape.columns]
    if definition.key is not None and definition.key not in names:
        msg = f"{where}: key is {definition.key!r}, which is not a column of the SELECT: {', '.join(names)}."
        raise ConfigError(msg)
    if not rows.isStreaming:
        msg = f"{where}: the query does not read a stream; wanted `readings` or a stream with a topic after FROM."
        raise ConfigError(msg)
    if shape.stateful and definition.watermark is None:
        msg = (
            f"{where}: the query keeps state ({shape.state[0]}) without a time limit; wanted a line such as "
            "`-- watermark: event_time 2 minutes` and that column in the window or join."
        )
        raise ConfigError(msg)
    if shape.stateful and definition.late == "correct":
        msg = (
            f"{where}: late=correct is for streams without state, where no row is late; wanted late=drop. Windows of a stream "
            "drop and count rows that come after their watermark; `tidegate streams rewind` rebuilds the windows. The tables "
            "rollups_1m, rollups_5m and rollups_1h correct themselves."
        )
        raise ConfigError(msg)
    if shape.stateful and definition.trigger_seconds is None:
        msg = f"{where}: realtime is for streams without state; wanted `-- trigger: 1 second`."
        raise ConfigError(msg)
    if shape.stateful and definition.backfill == "delta":
        msg = f"{where}: backfill=delta is for streams without state; wanted earliest (all that Kafka has) or latest."
        raise ConfigError(msg)
    _ask_spark(rows, where)


def _ask_spark(rows: "DataFrame", where: str) -> None:
    from pyspark.errors import AnalysisException

    jvm: Any = rows.sparkSession._jvm
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), append)
    except AnalysisException as error:
        msg = f"{where}: Spark can't run the query as a stream: {first_line(error)}"
        raise ConfigError(msg) from error


def _state(plan: Any) -> Iterator[str]:
    for node in _nodes(plan):
        name = node.nodeName()
        if not node.isStreaming():
            continue
        if name == "Aggregate":
            yield _aggregate(node)
        elif name == "Join" and node.left().isStreaming() and node.right().isStreaming():
            condition = node.condition()
            yield f"join of two streams on {condition.get().sql() if condition.isDefined() else 'nothing'}"
        elif name in _REMEMBERS:
            columns = ", ".join(attribute.name() for attribute in _items(node.output()))
            yield f"{name.lower()} of {columns}"


def _aggregate(node: Any) -> str:
    keys = [_key(expression, node) for expression in _items(node.groupingExpressions())]
    grouped = {expression.sql() for expression in _items(node.groupingExpressions())}
    values = []
    for expression in _items(node.aggregateExpressions()):
        inner = expression.child() if expression.nodeName() == "Alias" else expression
        if inner.sql() not in grouped:
            values.append(f"{inner.sql()} {expression.dataType().simpleString()}")
    return f"aggregate by {', '.join(keys)}: {', '.join(values)}"


def _key(expression: Any, node: Any) -> str:
    """Return a key with its type; a window also with its length, which is in the projection below."""
    text = f"{expression.sql()} {expression.dataType().simpleString()}"
    if expression.sql() not in ("window", "session_window"):
        return text
    spans = [
        digits
        for child in _nodes(node)
        if child.nodeName() in ("Project", "Expand")
        for each in _items(child.expressions())
        for digits in re.findall(r"[0-9]{4,}|INTERVAL '[^']*' [A-Z ]+", each.sql())
    ]
    return f"{text} ({' '.join(dict.fromkeys(spans))})"


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node, each before its children; a plan may be deeper than Python's stack."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(_items(node.children()))


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]
