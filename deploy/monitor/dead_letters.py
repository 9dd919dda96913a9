"""Dead letters for the page: counts, a list, and one with its bytes. Content from devices stays plain text in every answer."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from deploy.dlq.dead_letter_query import query_dead_letters, show_letter
from deploy.dlq.explain import mark_payload
from deploy.dlq.next_steps import next_step
from deploy.monitor.sql_times import epoch_seconds, since
from ingest.contract.reasons import Reason
from lakehouse.catalog import table_names
from lakehouse.query import duckdb_literal
from lakehouse.render import json_value

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["ID", "count_unread", "letters_of", "list_dead_letters", "show_dead_letter", "unknown_letters"]

ID: Final = re.compile(r"[A-Za-z0-9._-]{1,300}")
"""A topic's name, a partition and an offset: no character that could end a text in SQL."""
SUMMARY_SECONDS: Final = 7 * 86_400.0
MOST_PAYLOAD_BYTES: Final = 256 * 1024

DEVICES_OF_A_CAUSE: Final = 12

UNREAD: Final = (
    Reason.TOO_LARGE, Reason.BAD_ENCODING, Reason.BAD_JSON, Reason.TOO_DEEP, Reason.DUPLICATE_KEY, Reason.NOT_OBJECT,
    Reason.UNSUPPORTED_VERSION, Reason.UNDECODED, Reason.INTERNAL_ERROR,
)  # fmt: skip
"""Reasons of messages that could not be read, so that their sequence number is unknown."""

_ROWS: Final = """
SELECT id, reason, stage, device, mqtt_topic, received_at, path, got, wanted, partial, redriven_as
FROM letters WHERE {where} ORDER BY received_at DESC, "offset" DESC, id DESC LIMIT {limit}"""

_OLDER: Final = """
(received_at, "offset", id) < (SELECT row(received_at, "offset", id) FROM letters WHERE id = {before} LIMIT 1)"""

_KNOWN: Final = "SELECT id FROM letters WHERE id IN ({ids})"

_CAUSES: Final = """
SELECT * FROM (
    SELECT reason, device, count(*) AS letters, count(redriven_at) AS redriven, max(received_at) AS last_received_at,
        arg_max(mqtt_topic, (received_at, "offset")) AS mqtt_topic, count(DISTINCT device) AS devices,
        grouping(device) = 0 AS of_device
    FROM letters WHERE {where} GROUP BY GROUPING SETS ((reason), (reason, device))
)
QUALIFY row_number() OVER (PARTITION BY reason, of_device ORDER BY letters DESC, last_received_at DESC, device) <= {most}
ORDER BY letters DESC, last_received_at DESC, device"""

_UNREAD: Final = """
SELECT count(DISTINCT (gateway, gateway_epoch, message_number)) AS count
FROM letters WHERE {where} AND NOT partial AND reason IN ({reasons})"""


def list_dead_letters(
    root: str, reason: str | None, device: str | None, limit: int, before: str | None = None
) -> dict[str, Any]:
    """Return the last week's dead letters: counts by reason, for all reasons, and the newest ones older than `before`."""
    if "dead_letters" not in table_names(root):
        return {"causes": [], "letters": []}
    return {
        "causes": _causes(root, device),
        "letters": letters_of(root, reason=reason, device=device, limit=limit, before=before),
    }


def count_unread(root: str, device: str, seconds: float) -> int:
    """Return the number of the device's messages that were rejected before their sequence number was read."""
    where = f"device = {duckdb_literal(device)} AND received_at >= {since(seconds)}"
    reasons = ", ".join(map(duckdb_literal, UNREAD))
    return int(query_dead_letters(root, _UNREAD.format(where=where, reasons=reasons)).to_pylist()[0]["count"])


def _causes(root: str, device: str | None) -> list[dict[str, Any]]:
    """Return the counts by reason, highest first, each with the devices that have the most."""
    query = _CAUSES.format(where=_where(None, device), most=DEVICES_OF_A_CAUSE)
    rows = [
        {**row, "last_received_at": epoch_seconds(row["last_received_at"])}
        for row in query_dead_letters(root, query).to_pylist()
    ]
    of_device = ("device", "mqtt_topic", "letters", "redriven", "last_received_at")
    return [
        {name: cause[name] for name in ("reason", "devices", "letters", "redriven", "last_received_at")}
        | {
            "by_device": [
                {name: row[name] for name in of_device}
                for row in rows
                if row["of_device"] and row["reason"] == cause["reason"]
            ]
        }
        for cause in rows
        if not cause["of_device"]
    ]


def unknown_letters(root: str, ids: Sequence[str]) -> list[str]:
    """Return the ids without a dead letter, in their order."""
    if not ids or "dead_letters" not in table_names(root):
        return list(ids)
    listed = ", ".join(map(duckdb_literal, ids))
    found = {row["id"] for row in query_dead_letters(root, _KNOWN.format(ids=listed)).to_pylist()}
    return [each for each in ids if each not in found]


def letters_of(
    root: str, *, reason: str | None = None, device: str | None = None, limit: int, before: str | None = None
) -> list[dict[str, Any]]:
    """Return the newest dead letters, of one reason or device if given, and older than the dead letter `before`."""
    where = _where(reason, device)
    if before is not None:
        where += f" AND {_OLDER.format(before=duckdb_literal(before))}"
    found = query_dead_letters(root, _ROWS.format(where=where, limit=int(limit))).to_pylist()
    return [{**row, "received_at": epoch_seconds(row["received_at"])} for row in found]


def show_dead_letter(root: str, letter: str, settings: "Settings | None" = None) -> dict[str, Any]:
    """Return one dead letter: its facts, its bytes for people and for programs, and the next step.

    With `settings`, also return the `draft` of a route for its topic; None if the topic has a route or no draft reads it.

    Raises:
        UnavailableError: there is no dead letter of this id.
    """
    row = show_letter(root, letter)
    payload: bytes = row.pop("payload", None) or b""
    facts = {name: _fact(value) for name, value in row.items() if name not in ("payload_text", "date")}
    return {
        **facts,
        "payload_lines": mark_payload(payload, row["path"], row["got"]),
        "payload_base64": base64.b64encode(payload[:MOST_PAYLOAD_BYTES]).decode("ascii"),
        "next": next_step(row["reason"], row["mqtt_topic"]),
        "draft": None if settings is None else _draft(root, row, settings),
    }


def _draft(root: str, row: Mapping[str, Any], settings: "Settings") -> str | None:
    """Return the route that `tidegate route suggest` drafts for a dead letter, as TOML."""
    if row["reason"] not in (Reason.NO_ROUTE, Reason.UNDECODED) or not row["mqtt_topic"]:
        return None
    from deploy.dlq.samples import dead_samples
    from gateway.suggest.propose import propose_routes

    samples = dead_samples(root, row["mqtt_topic"])
    found = propose_routes(samples, settings.routes, settings.gateway)
    own = (one.toml for one in found if one.works and any(row["mqtt_topic"] == sample.topic for sample in one.samples))
    return next(own, None)


def _fact(value: Any) -> Any:
    at = epoch_seconds(value)
    return json_value(value) if at is None else at


def _where(reason: str | None, device: str | None) -> str:
    wanted: Mapping[str, str | None] = {"reason": reason, "device": device}
    terms = [f"{name} = {duckdb_literal(text)}" for name, text in wanted.items() if text is not None]
    return " AND ".join([f"received_at >= {since(SUMMARY_SECONDS)}", *terms])
