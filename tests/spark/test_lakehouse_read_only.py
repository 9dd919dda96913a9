"""SQL of other people only reads: statements that do more are refused wherever SQL comes in, before anything of them runs."""

import hashlib
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry

from ingest.contract.errors import TidegateError
from ingest.kafka_settings import KafkaSettings
from lakehouse.create import ensure_tables
from lakehouse.derived_tables import ALL_TABLES
from lakehouse.lake_settings import LakeSettings
from lakehouse.query import run_spark_sql
from lakehouse.requests import Request
from lakehouse.session import LakeSession
from lakehouse.spark_statement import ReadOnlyError, read_query, reading_session
from monitoring.metrics.stream import StreamMetrics
from streaming.background_tasks import handle_request
from streaming.kafka_source import LandedTopics
from streaming.sql.golden import GoldenData, run_golden
from streaming.sql.stream_folder import StreamFile
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

DATA = Path(__file__).parents[1] / "data"
HOSTILE = tomllib.loads((DATA / "hostile-sql.toml").read_text("utf-8"))
FRIENDLY = tomllib.loads((DATA / "friendly-sql.toml").read_text("utf-8"))
REFUSED = [(sql, "only reads") for kind in ("writes", "commands", "files", "code") for sql in HOSTILE[kind]]
REFUSED += [(case["sql"], case["says"]) for case in HOSTILE["parsed"]]
CANARY = "the canary's words"


@dataclass
class Place:
    """Tables, a folder and a file that no query of a person may touch, and each way in which SQL comes in."""

    spark: Any
    folder: Path
    writer: WriterContext

    @property
    def root(self) -> str:
        return self.writer.root

    def filled(self, sql: str) -> str:
        places = {"root": self.root, "victim": str(self.folder / "victim"), "secret": str(self.folder / "secret.txt")}
        for name, path in places.items():
            sql = sql.replace(f"{{{name}}}", path)
        return sql

    def ask_sql(self, sql: str) -> Any:
        return run_spark_sql(self.spark, self.root, sql)

    def plan(self, sql: str) -> Any:
        return self._request("plan", sql)

    def apply(self, sql: str) -> Any:
        return self._request("apply", sql)

    def test(self, sql: str) -> Any:
        file = StreamFile("mine", "mine.sql", f"-- sink: table\n{sql}", [], shipped=False)
        return run_golden(self.spark, "mine", GoldenData({"readings": [{}]}, []), {"mine": file}, "mine.test.jsonl")

    def _request(self, kind: str, sql: str) -> Any:
        return handle_request(
            self.writer, Request(f"streams.{kind}", {"name": "mine", "text": f"-- sink: table\n{sql}"})
        )

    def tree(self) -> dict[str, Any]:
        """Every file and folder with its content."""
        found: dict[str, Any] = {}
        for parent, folders, files in os.walk(self.folder):
            found |= {os.path.join(parent, name): "" for name in folders}
            for path in (Path(parent) / name for name in files):
                found[str(path)] = (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        return found


@pytest.fixture(scope="module")
def place(lake: LakeSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("place")
    root = str(folder / "tables")
    ensure_tables(root, ALL_TABLES.values(), log_retention_hours=24)
    sites = lake.spark.sql("SELECT 'd1' AS device, 'north' AS site")
    sites.write.format("delta").save(f"{root}/sites")
    (folder / "victim").mkdir()
    (folder / "victim" / "kept.parquet").write_text(CANARY)
    (folder / "secret.txt").write_text(f"{CANARY}\n")
    topics = LandedTopics("readings", "dead-letters", "outcomes")
    metrics = StreamMetrics(CollectorRegistry(), query="land", tables=ALL_TABLES, topics=topics.names)
    settings = StreamSettings(checkpoint=str(folder / "checkpoint" / "land"))
    # Nothing listens there: a statement is refused before Kafka is asked.
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    return Place(
        lake.spark, folder, WriterContext(lake.spark, kafka, settings, LakeSettings(root=root), metrics, topics)
    )


def test_the_tables_of_statements_are_large_enough() -> None:
    assert len({sql for sql, _ in REFUSED}) == len(REFUSED) >= 60
    assert len(FRIENDLY["streams"] + FRIENDLY["queries"]) >= 60


@pytest.mark.parametrize(("sql", "says"), REFUSED, ids=[sql[:60] for sql, _ in REFUSED])
def test_a_statement_that_does_more_than_read_is_refused_everywhere(place: Place, sql: str, says: str) -> None:
    before = place.tree()
    ways: list[Callable[[str], Any]] = [place.ask_sql, place.plan, place.test, place.apply]
    for way in ways:
        with pytest.raises(TidegateError, match=says) as refused:
            way(place.filled(sql))
        assert CANARY not in str(refused.value)
        assert os.environ["PATH"] not in str(refused.value)
        assert place.tree() == before, way.__name__
    assert DeltaTable(f"{place.root}/readings").version() == 0


@pytest.fixture(scope="module")
def viewed(place: Place) -> Any:
    """A session in which the tables have views, as for `sql`."""
    session = reading_session(place.spark)
    for name in ("readings", "latest", "sites"):
        session.read.format("delta").load(f"{place.root}/{name}").createOrReplaceTempView(name)
    return session


@pytest.mark.parametrize("sql", FRIENDLY["streams"] + FRIENDLY["queries"])
def test_a_query_that_reads_is_accepted(viewed: Any, sql: str) -> None:
    assert read_query(viewed, sql).frame().columns


@pytest.mark.parametrize("sql", FRIENDLY["streams"])
def test_a_statement_that_reads_is_a_streams_own(place: Place, sql: str) -> None:
    before = place.tree()
    planned = place.plan(sql)
    assert [source["name"] for source in planned["sources"]] == ["readings"]
    assert planned["tables"] == (["sites"] if "sites" in sql else [])
    assert planned["checkpoint"] == "new"
    assert place.tree() == before


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("device, upper(text)", "has no explicit name"),
        ("device AS `a.b`", "has no explicit name"),
        ("device, metric AS Device", "is twice in the SELECT"),
        ("device, INTERVAL '1' HOUR AS pause", "tables can't store"),
    ],
)
def test_columns_that_no_sink_can_write_are_refused_everywhere(place: Place, columns: str, says: str) -> None:
    for way in (place.plan, place.test, place.apply):
        with pytest.raises(TidegateError, match=says):
            way(f"SELECT {columns} FROM readings")


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select * from `Readings` r join devices d on r.device = d.device", ["readings", "devices"]),
        ("SELECT 1 FROM readings, devices WHERE a IN (1, 2)", ["readings", "devices"]),
        ("WITH a AS (SELECT * FROM readings) SELECT * FROM a JOIN Other USING (device)", ["readings", "other"]),
        ("WITH a AS (SELECT 1) SELECT * FROM (WITH b AS (SELECT * FROM A) SELECT * FROM b), a, b", ["b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT * FROM r, s", ["s"]),
        ("SELECT (SELECT max(x) FROM t2) FROM (SELECT device FROM readings) s, t3", ["t2", "readings", "t3"]),
        ("SELECT * FROM x WHERE a IN (SELECT a FROM y) AND EXISTS (SELECT 1 FROM z)", ["x", "y", "z"]),
        ("SELECT 'from nowhere', extract(hour FROM t) -- from here\nFROM readings /* FROM x */", ["readings"]),
        ("SELECT a IS DISTINCT FROM b FROM readings", ["readings"]),
        ("SELECT * FROM range(3)", []),
        ("SELECT * FROM STREAM readings", ["readings"]),
        ("SELECT a FROM x UNION ALL SELECT b FROM y UNION ALL SELECT c FROM x", ["x", "y"]),
    ],
)
def test_the_relations_of_a_query_are_found_in_the_order_of_the_text(
    lake: LakeSession, sql: str, names: list[str]
) -> None:
    assert list(read_query(reading_session(lake.spark), sql).relations) == names


def test_nothing_is_filled_into_a_query(place: Place) -> None:
    (row,) = place.ask_sql(
        "SELECT '${env:PATH}' AS a, '${system:user.home}' AS b, '${spark.app.name}' AS c"
    ).to_pylist()
    assert row == {"a": "${env:PATH}", "b": "${system:user.home}", "c": "${spark.app.name}"}


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT raise_error('out of ' || site) AS a FROM sites", "out of north"),
        ("SELECT 1 / (length(site) - 5) AS a FROM sites", "DIVIDE_BY_ZERO"),
        ("SELECT measure(site) AS a FROM sites", "INTERNAL_ERROR"),
    ],
)
def test_a_query_that_fails_while_it_runs_says_why_in_a_sentence(place: Place, sql: str, says: str) -> None:
    with pytest.raises(TidegateError, match=says) as failed:
        place.ask_sql(sql)
    assert "\n" not in str(failed.value)


def test_a_query_leaves_no_view_to_the_next(place: Place) -> None:
    assert place.ask_sql("SELECT site FROM sites").to_pylist() == [{"site": "north"}]
    assert not place.spark.catalog.tableExists("sites")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 3000 + "1" + ")" * 3000 + " AS a",
        "SELECT " + "abs(" * 700 + "1" + ")" * 700 + " AS a",
        "SELECT " + " + ".join(["1"] * 990) + " AS a",
        "SELECT * FROM (" * 450 + "SELECT 1 AS a" + ")" * 450,
        "SELECT 1 AS a FROM readings WHERE device IN ('" + "x" * 1_000_000 + "')",
    ],
    ids=["parentheses", "calls", "sum", "subqueries", "text"],
)
def test_a_query_that_is_too_large_is_refused_with_a_sentence(place: Place, sql: str) -> None:
    session = reading_session(place.spark)
    try:
        read_query(session, sql).frame()
    except ReadOnlyError as error:
        assert "or split it" in str(error)
