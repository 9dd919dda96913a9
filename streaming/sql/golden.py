"""Test of a stream with golden data: it runs on given rows, as one batch and without Kafka, and its output is compared.

Lines of `<name>.test.jsonl`, each one object:
    {"in": "readings", "row": {"device": "d1", "metric": "temperature", "value": 21.5, "event_time": "2026-05-01T12:00:00Z"}}
    {"out": {"device": "d1", "value": 21.5}}
`in` names a source: `readings`, another stream, or a static table. Missing fields are null; a reading without times is of
2026-01-01. In one batch a window comes out complete, and no row is late.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ingest.contract.errors import ConfigError
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.frames import local_rows
from lakehouse.tables import spark_ddl
from streaming.sql.header import StreamDefinition, parse_definition
from streaming.sql.output_frame import TIME_FORMAT, new_session, run_statement
from streaming.sql.shape import check_columns
from streaming.sql.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming.sql.stream_folder import StreamFile

__all__ = ["Comparison", "GoldenData", "read_golden", "run_golden"]

_OPTIONS: Final = {"timestampFormat": TIME_FORMAT, "ignoreNullFields": "true"}
_DEFAULTS: Final = {
    "device": "'d1'",
    "metric": "'value'",
    "event_time": "coalesce(received_at, timestamp'2026-01-01T00:00:00Z')",
    "received_at": "event_time",
    "kafka_time": "received_at",
    "landed_at": "received_at",
    "time_source": "'device'",
    "index": "0",
    "date": "CAST(received_at AS DATE)",
}


@dataclass(frozen=True, slots=True)
class GoldenData:
    """Rows per source, and the rows that are expected, as JSON objects."""

    given: Mapping[str, list[dict[str, Any]]]
    expected: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Missing and surplus rows as JSON texts, each as often as it differs; `rows` is the number of output rows."""

    rows: int
    missing: list[str]
    unexpected: list[str]

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not self.missing and not self.unexpected


def read_golden(lines: Iterable[str], where: str) -> GoldenData:
    """The lines of a file.

    Raises:
        ConfigError: a line is none of the two kinds; names it.
    """
    given: dict[str, list[dict[str, Any]]] = {}
    expected = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            message = f"{where}, line {number}: not JSON ({error})."
            raise ConfigError(message) from error
        if isinstance(found, dict) and set(found) == {"in", "row"} and isinstance(found["row"], dict):
            given.setdefault(str(found["in"]), []).append(found["row"])
        elif isinstance(found, dict) and set(found) == {"out"} and isinstance(found["out"], dict):
            expected.append(found["out"])
        else:
            message = f'{where}, line {number}: wanted {{"in": SOURCE, "row": {{…}}}} or {{"out": {{…}}}}.'
            raise ConfigError(message)
    return GoldenData(given, expected)


def run_golden(
    spark: "SparkSession", name: str, data: GoldenData, streams: "Mapping[str, StreamFile]", where: str
) -> Comparison:
    """Run one stream on the data.

    Raises:
        ConfigError: the definition is wrong, or a row has a field that its source has not.
    """
    definition = parse_definition(name, streams[name].text, file=streams[name].where)
    rows = _frame(spark, definition, data.given, streams, where, ())
    check_columns([(field.name, field.dataType.simpleString()) for field in rows.schema.fields], streams[name].where)
    got = rows.select(_as_json(rows.columns).alias("row"))
    wanted = _parsed(spark, data.expected, rows.schema, where, "out")
    wanted = wanted.select(_as_json(rows.columns).alias("row"))
    have, want = (Counter(row["row"] for row in frame.collect()) for frame in (got, wanted))
    return Comparison(have.total(), sorted((want - have).elements()), sorted((have - want).elements()))


def _frame(
    spark: "SparkSession",
    definition: StreamDefinition,
    given: Mapping[str, list[dict[str, Any]]],
    streams: "Mapping[str, StreamFile]",
    where: str,
    above: tuple[str, ...],
) -> "DataFrame":
    session = new_session(spark, partitions=1)
    for source in read_statement(session, definition.body, f"{definition.name}.sql").relations:
        schema = _schema(spark, source, given, streams, where, (*above, definition.name))
        rows = _parsed(session, given.get(source, []), schema, where, source)
        if source == "readings":
            rows = _completed(rows)
        rows.createOrReplaceTempView(source)
    return run_statement(session, definition)


def _schema(
    spark: "SparkSession",
    source: str,
    given: Mapping[str, list[dict[str, Any]]],
    streams: "Mapping[str, StreamFile]",
    where: str,
    above: tuple[str, ...],
) -> StructType:
    """Return the schema of a table by its definition, of another stream by its statement, else by the rows themselves."""
    if source in ALL_TABLES:
        return _struct(spark_ddl(ALL_TABLES[source]).replace(" NOT NULL", ""))
    if source in streams and source not in above:
        other = parse_definition(source, streams[source].text, file=streams[source].where)
        return _frame(spark, other, {}, streams, where, above).schema
    if source not in given:
        message = f'{where}: no rows for {source!r}; wanted lines {{"in": "{source}", "row": {{…}}}}.'
        raise ConfigError(message)
    texts = local_rows(spark, [(json.dumps(row),) for row in given[source]], "row string")
    merged = {key: value for row in given[source] for key, value in row.items() if value is not None}
    kinds = texts.select(F.schema_of_json(json.dumps(merged)).alias("kind")).first()
    assert kinds is not None  # noqa: S101
    return _struct(str(kinds["kind"]).removeprefix("STRUCT<").removesuffix(">"))


def _struct(ddl: str) -> StructType:
    kind = StructType.fromDDL(ddl)
    assert isinstance(kind, StructType)  # noqa: S101
    return kind


def _parsed(
    session: "SparkSession", rows: list[dict[str, Any]], schema: StructType, where: str, source: str
) -> "DataFrame":
    for row in rows:
        if unknown := sorted(set(row) - set(schema.names)):
            message = f"{where}: {source} has no column {unknown[0]!r}; its columns are: {', '.join(schema.names)}."
            raise ConfigError(message)
    texts = local_rows(session, [(json.dumps(row),) for row in rows], "text string")
    return texts.select(F.from_json("text", schema, {"mode": "FAILFAST"}).alias("r")).select("r.*")


def _completed(rows: "DataFrame") -> "DataFrame":
    for column, default in _DEFAULTS.items():
        rows = rows.withColumn(column, F.coalesce(F.col(column), F.expr(default)))
    return rows


def _as_json(columns: list[str]) -> Any:
    return F.to_json(F.struct(*columns), _OPTIONS)
