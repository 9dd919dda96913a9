"""Accept only a Spark statement that reads: an allow-list over the parsed plan, before Spark analyses any of it.

Spark runs a command as soon as `sql()` gets it, and commands, files and code have many spellings: quoted, inside WITH, after a
pipe. So the plan decides, not the text. Every object of the plan is visited, in whatever field it is. A class, relation or
function that is not in the list is rejected. The checked plan is what runs, because the text is parsed only once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ingest.contract.errors import TidegateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CheckedQuery", "ReadOnlyError", "read_query", "reading_session"]

MOST_CHARACTERS: Final = 1_000_000
MOST_OBJECTS: Final = 100_000
DEEPEST: Final = 1_000
"""Bounds of a query: its text, the objects of its plan and how deep these are nested."""

_CONF: Final = {
    "spark.sql.runSQLOnFiles": "false",
    # ${env:…}, ${system:…} and ${spark.…} would show the environment and passwords in the settings.
    "spark.sql.variable.substitute": "false",
}
_CATALYST: Final = "org.apache.spark.sql.catalyst."
_PLANS: Final = frozenset(
    f"{_CATALYST}plans.logical.{name}"
    for name in (
        "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
        "LimitAll", "LocalLimit", "NearestByJoin", "Offset", "OneRowRelation", "Pivot", "Project",
        "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union", "UnresolvedHint", "UnresolvedWith",
        "Unpivot", "WithWindowDefinition",
    )
)  # fmt: skip
_UNRESOLVED: Final = frozenset(
    f"{_CATALYST}analysis.{name}"
    for name in (
        "MultiAlias", "NamedStreamingRelation", "UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue",
        "UnresolvedFunction", "UnresolvedGenerator", "UnresolvedHaving", "UnresolvedInlineTable", "UnresolvedOrdinal",
        "UnresolvedPipeAggregateOrdinal", "UnresolvedQualify", "UnresolvedRegex", "UnresolvedRelation",
        "UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases",
        "UnresolvedTableValuedFunction",
    )
)  # fmt: skip
_EXPRESSIONS: Final = frozenset(
    f"{_CATALYST}expressions.{name}"
    for name in (
        "Add", "Alias", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CaseWhen", "Cast", "Coalesce",
        "Collate", "Concat", "CreateNamedStruct", "Cube", "CurrentDate", "CurrentTime", "CurrentTimestamp", "CurrentUser",
        "Divide", "EqualNullSafe", "EqualTo", "Exists", "GreaterThan", "GreaterThanOrEqual", "GroupingSets", "ILike", "In",
        "InSubquery", "IntegralDivide", "IsNotNull", "IsNull", "LambdaFunction", "LateralSubquery", "LessThan",
        "LessThanOrEqual", "Like", "LikeAll", "LikeAny", "ListQuery", "Lower", "Multiply", "NamedArgumentExpression",
        "Not", "NotLikeAll", "NotLikeAny", "Or", "Overlay", "PipeExpression", "PipeOperator", "RLike", "Remainder",
        "Rollup", "ScalarSubquery", "SemiStructuredExtract", "ShiftLeft", "ShiftRight", "ShiftRightUnsigned",
        "SortOrder", "SpecifiedWindowFrame", "StringLocate", "StringTrim", "StringTrimLeft", "StringTrimRight",
        "Substring", "Subtract", "TimestampAdd", "TimestampDiff", "UnaryMinus", "UnaryPositive",
        "UnresolvedNamedLambdaVariable", "UnresolvedWindowExpression", "WindowExpression", "WindowSpecDefinition",
        "WindowSpecReference", "aggregate.AggregateExpression", "aggregate.AnyValue", "aggregate.First",
        "aggregate.Last",
    )
)  # fmt: skip
_NODES: Final = _PLANS | _UNRESOLVED | _EXPRESSIONS
_LEAVES: Final = frozenset(
    f"{_CATALYST}{name}"
    for name in (
        "AliasIdentifier", "FunctionIdentifier", "analysis.UnresolvedCollation", "expressions.Ascending$",
        "expressions.CurrentRow$", "expressions.Descending$", "expressions.ExprId", "expressions.Literal",
        "expressions.NullsFirst$", "expressions.NullsLast$", "expressions.NumericEvalContext",
        "expressions.RangeFrame$", "expressions.RowFrame$", "expressions.UnboundedFollowing$",
        "expressions.UnboundedPreceding$", "expressions.UnresolvedCollation", "expressions.UnspecifiedFrame$",
        "expressions.aggregate.Complete$", "plans.logical.JoinHint", "plans.logical.SampleMethod$Bernoulli$",
        "plans.logical.SampleMethod$System$", "streaming.Unassigned$", "plans.logical.LocalRelation",
    )
)  # fmt: skip
"""Classes whose objects hold no part of a plan; the rows of a LocalRelation are constants of VALUES."""

_GROUPS: Final = frozenset(
    f"{name}_funcs"
    for name in (
        "agg", "array", "bitwise", "collection", "conditional", "conversion", "csv", "datetime", "generator", "hash",
        "json", "lambda", "map", "math", "predicate", "sketch", "st", "string", "struct", "url", "variant", "vector",
        "window",
    )
)  # fmt: skip
"""Groups of Spark's built-in functions that compute from their arguments alone.

XML, Avro and Protobuf are not among them: these functions open files that their arguments name (schemas, DTDs).
"""

_FUNCTIONS: Final = frozenset(
    {
        "aes_decrypt", "aes_encrypt", "assert_true", "bitmap_bit_position", "bitmap_bucket_number", "bitmap_count",
        "current_catalog", "current_database", "current_schema", "current_user", "monotonically_increasing_id", "raise_error",
        "session_user", "spark_partition_id", "try_aes_decrypt", "typeof", "user", "uuid", "version",
    }
)  # fmt: skip
"""Allowed functions of the group of miscellaneous functions, which also holds `reflect`."""

_TABLE_FUNCTIONS: Final = frozenset(
    {
        "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range", "stack",
        "variant_explode", "variant_explode_outer",
    }
)  # fmt: skip


class ReadOnlyError(TidegateError):
    """A statement that is not one query that only reads."""


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """One checked query: its plan, and the names of the relations it reads, lower case, in the order of the text."""

    session: "SparkSession"
    plan: Any
    relations: tuple[str, ...]

    def frame(self) -> "DataFrame":
        """Return the answer, once each relation has a view in the session; Spark's own errors pass.

        Raises:
            ReadOnlyError: the query is too deep for Spark.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import DataFrame

        jvm: Any = self.session._jvm
        try:
            rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.session._jsparkSession, self.plan)
        except Py4JJavaError as error:
            raise _overflow(error) from error
        return DataFrame(rows, self.session)


def reading_session(spark: "SparkSession") -> "SparkSession":
    """A session for queries of other people: no path is a table, no variable is filled in, no view is left behind."""
    session = spark.newSession()
    for key, value in _CONF.items():
        session.conf.set(key, value)
    return session


def read_query(session: "SparkSession", sql: str) -> CheckedQuery:
    """Parse and check one query.

    Args:
        session: of `reading_session`.
        sql: Spark's SQL.

    Raises:
        ReadOnlyError: it writes, is a command, reads a file, calls code, or is too large; one sentence.
        ParseException: it is not SQL; Spark's words.
    """
    if len(sql) > MOST_CHARACTERS:
        raise _too_large(len(sql), "characters", MOST_CHARACTERS)
    plan = _parsed(session, sql)
    relations = _Walk(session).relations(plan)
    return CheckedQuery(session, plan, relations)


def _parsed(session: "SparkSession", sql: str) -> Any:
    """The plan, parsed under this session's settings: the parser takes those of the thread's active session."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = session._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        return session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    except Py4JJavaError as error:
        raise _overflow(error) from error
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


class _Walk:
    """Visits every object of a plan."""

    def __init__(self, session: "SparkSession") -> None:
        self._jvm: Any = session._jvm
        self._known: set[str] = set()
        self._found: list[tuple[int, str]] = []
        self._waiting: list[tuple[Any, frozenset[str], int]] = []

    def relations(self, plan: Any) -> tuple[str, ...]:
        """Names of what the plan reads, without those that a WITH defines."""
        from py4j.java_gateway import JavaObject

        self._waiting = [(plan, frozenset(), 0)]
        objects = 0
        while self._waiting:
            item, own, depth = self._waiting.pop()
            if not isinstance(item, JavaObject):
                continue  # text, a number, true, null
            objects += 1
            if objects > MOST_OBJECTS:
                raise _too_large(objects, "parts", MOST_OBJECTS)
            if depth > DEEPEST:
                raise _too_large(depth, "levels", DEEPEST)
            self._visit(item, own, depth + 1)
        return tuple(dict.fromkeys(name for _, name in sorted(self._found)))

    def _visit(self, item: Any, own: frozenset[str], depth: int) -> None:
        name = item.getClass().getName()
        if name in _NODES:
            self._visit_node(item, name.rpartition(".")[2], own, depth)
        elif name.startswith("scala.collection."):
            values = item.iterator()
            while values.hasNext():
                self._waiting.append((values.next(), own, depth))
        elif name.startswith(("scala.Some", "scala.Tuple")):
            self._wait_for(item, own, depth)
        elif not _is_leaf(name):
            raise _refused(name.rpartition(".")[2].strip("$").rpartition("$")[2], "is not allowed in a query")

    def _visit_node(self, item: Any, kind: str, own: frozenset[str], depth: int) -> None:
        if kind == "UnresolvedWith":
            self._visit_with(item, own, depth)
            return
        if kind == "UnresolvedRelation":
            self._visit_relation(item, own)
            return
        if kind == "UnresolvedFunction":
            self._check_function(_texts(item.nameParts()))
        elif kind == "UnresolvedGenerator":
            name = item.name()
            parts = [part.get() for part in (name.catalog(), name.database()) if part.isDefined()]
            self._check_function([*parts, name.funcName()])
        elif kind == "UnresolvedTableValuedFunction":
            parts = _texts(item.name())
            if len(parts) != 1 or parts[0].lower() not in _TABLE_FUNCTIONS:
                listed = ", ".join(sorted(_TABLE_FUNCTIONS))
                raise _refused(".".join(parts), f"is not one of the table functions ({listed})")
        self._wait_for(item, own, depth)

    def _wait_for(self, item: Any, own: frozenset[str], depth: int) -> None:
        for at in range(item.productArity()):
            self._waiting.append((item.productElement(at), own, depth))

    def _visit_with(self, item: Any, own: frozenset[str], depth: int) -> None:
        """Visit a WITH: a name counts for what follows it, and for itself if the WITH is recursive."""
        defined = item.cteRelations().iterator()
        while defined.hasNext():
            definition = defined.next()
            following = own | {str(definition._1()).lower()}
            self._waiting.append((definition._2(), following if item.allowRecursion() else own, depth))
            own = following
        self._waiting.append((item.child(), own, depth))

    def _visit_relation(self, item: Any, own: frozenset[str]) -> None:
        parts = _texts(item.multipartIdentifier())
        if len(parts) != 1:
            raise _refused(".".join(parts), "is not the plain name of a table or view")
        if not item.options().isEmpty():
            raise _refused(parts[0], "has options")
        if parts[0].lower() not in own:
            at = item.origin().startIndex()
            self._found.append((at.get() if at.isDefined() else 0, parts[0].lower()))

    def _check_function(self, parts: list[str]) -> None:
        name = parts[-1].lower()
        if len(parts) == 1 and name in self._known:
            return
        if len(parts) != 1 or not (name in _FUNCTIONS or self._group(name) in _GROUPS):
            raise _refused(
                ".".join(parts), "is not the plain name of a built-in function that computes from its arguments"
            )
        self._known.add(name)

    def _group(self, name: str) -> str | None:
        """The group of a built-in function; None where it is not one."""
        some, catalyst = self._jvm.scala.Some, self._jvm.org.apache.spark.sql.catalyst
        wanted = catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
        found = catalyst.analysis.FunctionRegistry.builtin().lookupFunction(wanted)
        return str(found.get().getGroup()) if found.isDefined() else None


def _is_leaf(name: str) -> bool:
    """Return whether objects of this class hold no part of a plan: types, values, kinds of joins, directions of sorting."""
    if name in _LEAVES or name.startswith(("scala.None$", "scala.Enumeration$")):
        return True
    package, _, _ = name.rpartition(".")
    return package.startswith(("org.apache.spark.sql.types", "org.apache.spark.unsafe.types", "java.")) or (
        package == f"{_CATALYST}plans"
    )


def _texts(parts: Any) -> list[str]:
    return [str(parts.apply(at)) for at in range(parts.size())]


def _refused(subject: str, why: str) -> ReadOnlyError:
    return ReadOnlyError(
        f"A query only reads, but {subject} {why}. Write one query (SELECT, FROM, WITH) over tables and views. To change "
        "tables, use commands such as `tidegate correct`."
    )


def _too_large(count: int, of: str, most: int) -> ReadOnlyError:
    return ReadOnlyError(f"The query has {count:,} {of}; the limit is {most:,}. Make it shorter, or split it.")


def _overflow(error: Any) -> Exception:
    """Return the error for a query that is too deep for Spark's stack or not a query for its parser; else the error itself."""
    thrown = str(error.java_exception)
    if "StackOverflowError" in thrown:
        return ReadOnlyError("The query is nested too deeply for Spark. Write it with less nesting, or split it.")
    if "SqlScriptingException" in thrown:
        return _refused("a script", f"is not a query ({thrown.partition(': ')[2].splitlines()[0].strip()})")
    return error if isinstance(error, Exception) else TidegateError(str(error))
