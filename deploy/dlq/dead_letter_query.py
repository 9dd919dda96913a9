"""Query of dead letters in the table, combined with the journal of redrives. It needs no JVM and no server.

The id of a letter is `<partition>-<offset>` of its record in `telemetry.dead-letters`; for rejections by Spark the name of the
other topic comes first. A person's WHERE can use every column of the table, and `id` and `redriven_as`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from deploy.dlq.journal import read_journal
from ingest.contract.errors import UnavailableError
from ingest.contract.topics import DEAD_LETTERS
from lakehouse.query import duckdb_literal, run_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from gateway.redrive import DeadLetter, Identity, Part

__all__ = [
    "find_dead_letters",
    "list_newest_letters",
    "query_dead_letters",
    "show_letter",
    "stored_identities",
    "stored_parts",
    "summarize",
]

_LETTERS: Final = f"""
    WITH letters AS (
        SELECT d.* EXCLUDE (attempt, redriven_at),
            CASE WHEN d.source_topic = '{DEAD_LETTERS}' THEN '' ELSE d.source_topic || '-' END
                || d.partition || '-' || d."offset" AS id,
            d.attempt + coalesce(j.attempts, 0) AS attempt,
            coalesce(CASE WHEN j.ending <> 'refused' THEN j."at" END, d.redriven_at) AS redriven_at,
            j.ending AS redriven_as
        FROM dead_letters d LEFT JOIN redrive_journal j
            ON j.source_topic = d.source_topic AND j.partition = d.partition AND j."offset" = d."offset"
            AND j.epoch IS NOT DISTINCT FROM d.gateway_epoch AND j.number IS NOT DISTINCT FROM d.message_number
    )"""  # noqa: S608 - the name of a topic is a constant

_SUMMARY: Final = """
    SELECT count(*) AS letters, count(redriven_at) AS redriven, reason, device, mqtt_topic,
        max(received_at) AS last_received_at, arg_max(id, (received_at, "offset")) AS last_id,
        arg_max(coalesce(path || ': ', '') || coalesce(got, ''), (received_at, "offset")) AS last_got
    FROM letters WHERE {where} GROUP BY ALL ORDER BY letters DESC, last_received_at DESC LIMIT {limit}"""

_ROWS: Final = """
    SELECT id, received_at, reason, device, mqtt_topic, path, got, wanted, payload_bytes, redriven_as
    FROM letters WHERE {where} ORDER BY received_at DESC, "offset" DESC LIMIT {limit}"""

_FOUND: Final = """
    SELECT id, source_topic, partition, "offset", stage, reason, path, partial, gateway, gateway_epoch, message_number,
        epoch_us(received_at), mqtt_topic, payload, payload_bytes, device, message_id, coalesce(retain, false), trace,
        CASE WHEN may_have_waited THEN coalesce(epoch_us(waited_since), 0) END
    FROM letters WHERE ({where}) AND {open} AND {after} AND landed_at <= to_timestamp({asked_at})
    ORDER BY {order} LIMIT {limit}"""

_ORDER: Final = (
    'received_at, coalesce(gateway_epoch, 0), coalesce(message_number, 0), "offset", partition, source_topic'
)
PAGE_LETTERS: Final = 500
"""Held in memory at once, payloads included."""

_PARTS: Final = """
    SELECT gateway, gateway_epoch, message_number, device, metric, "index" FROM readings
    WHERE received_at BETWEEN make_timestamptz({first}) AND make_timestamptz({last})
        AND received_at IN (SELECT make_timestamptz(received_us) FROM wanted)"""

DELIVERIES_APART_US: Final = 30 * 86_400 * 1_000_000
"""Time between deliveries of one message: a broker keeps it for a session's expiry (a week by default), a gateway receives it
soon after.
"""
_IDENTIFIED: Final = """
    SELECT r.device, r.message_id, r.metric, r."index" FROM readings r
    SEMI JOIN wanted w ON w.device = r.device AND w.message_id = r.message_id
    WHERE r.received_at BETWEEN make_timestamptz({first}) AND make_timestamptz({last})"""


def join_conditions(where: str | None, *, reason: str | None = None, device: str | None = None) -> str | None:
    """One condition in SQL of a person's own and of what columns must be; None where there is none."""
    named = {"reason": reason, "device": device}
    wanted = [f"{column} = {duckdb_literal(value)}" for column, value in named.items() if value is not None]
    return " AND ".join([*wanted, *([f"({where})"] if where is not None else [])]) or None


def summarize(root: str, where: str | None, limit: int) -> "pa.Table":
    """Letters counted by reason, device and topic, most first, with the newest of each."""
    return query_dead_letters(root, _SUMMARY.format(where=where or "true", limit=limit))


def list_newest_letters(root: str, where: str, limit: int) -> "pa.Table":
    """The letters themselves, newest first."""
    return query_dead_letters(root, _ROWS.format(where=where, limit=limit))


def show_letter(root: str, letter_id: str) -> dict[str, Any]:
    """All that is known of one letter.

    Raises:
        UnavailableError: there is none of this id.
    """
    found = query_dead_letters(
        root, f"FROM letters WHERE id = {duckdb_literal(letter_id)} ORDER BY landed_at DESC LIMIT 1"
    ).to_pylist()
    if not found:
        message = f"There is no dead letter {letter_id}. `tidegate dlq ls --where true` lists them with their ids."
        raise UnavailableError(message)
    return dict(found[0])


def find_dead_letters(
    root: str, where: str | None, limit: int | None, *, again: bool = False
) -> "Iterator[list[DeadLetter]]":
    """The letters to redrive that are in the table now, in the order received, page by page.

    Args:
        root: of the tables.
        where: SQL over the columns.
        limit: at most so many.
        again: also those that were redriven already.
    """
    from gateway.redrive import DeadLetter

    asked_at, left, after = time.time(), limit, "true"
    while left is None or left > 0:
        query = _FOUND.format(
            where=where or "true",
            open="true" if again else "redriven_at IS NULL",
            after=after,
            asked_at=asked_at,
            order=_ORDER,
            limit=PAGE_LETTERS if left is None else min(left, PAGE_LETTERS),
        )
        page = [DeadLetter(*values) for values in _rows(query_dead_letters(root, query))]
        if page:
            yield page
        if len(page) < PAGE_LETTERS:
            return
        after, left = _behind(page[-1]), None if left is None else left - len(page)


def _behind(last: "DeadLetter") -> str:
    place = (
        f"{last.epoch or 0}, {last.number or 0}, {last.offset}, {last.partition}, {duckdb_literal(last.source_topic)}"
    )
    at = f"make_timestamptz({last.received_us})"
    return f"received_at >= {at} AND row({_ORDER}) > row({at}, {place})"


def stored_parts(root: str, letters: "Iterable[DeadLetter]") -> "dict[str, set[Part]]":
    """Return the parts of these letters' messages that are in `readings`, by `DeadLetter.message`."""
    import pyarrow as pa

    moments = sorted({letter.received_us for letter in letters})
    if not moments:
        return {}
    query = _PARTS.format(first=moments[0], last=moments[-1])
    wanted = pa.table({"received_us": pa.array(moments, pa.int64())})
    found: dict[str, set[Part]] = {}
    for row in _rows(run_sql(root, query, extra_tables={"wanted": wanted})):
        gateway, epoch, number, *part = row
        found.setdefault(f"{gateway}:{epoch}:{number}", set()).add((part[0], part[1], part[2]))
    return found


def stored_identities(
    root: str, wanted: "Iterable[Identity]", first_us: int, last_us: int
) -> "dict[Identity, set[Part]]":
    """The parts that are in `readings` under these identities, of messages received about then."""
    import pyarrow as pa

    devices, message_ids = zip(*wanted, strict=True)
    table = pa.table({"device": pa.array(devices, pa.string()), "message_id": pa.array(message_ids, pa.string())})
    query = _IDENTIFIED.format(first=first_us - DELIVERIES_APART_US, last=last_us + DELIVERIES_APART_US)
    found: dict[Identity, set[Part]] = {}
    for device, message_id, metric, index in _rows(run_sql(root, query, extra_tables={"wanted": table})):
        found.setdefault((device, message_id), set()).add((device, metric, index))
    return found


def _rows(table: "pa.Table") -> Iterable[Sequence[Any]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def query_dead_letters(root: str, query: str) -> "pa.Table":
    """The answer to a query over `letters`: the columns of dead_letters, id, attempt, redriven_at and redriven_as."""
    return run_sql(root, f"{_LETTERS} {query}", extra_tables={"redrive_journal": read_journal(root)})
