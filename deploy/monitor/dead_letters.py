"""Dead letters for the page: counted, listed, and one with its bytes. What devices sent is text of an answer, and stays text."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deploy.dlq.explain import mark_payload
from deploy.dlq.letters import ask_letters, show_letter
from deploy.dlq.next_steps import next_step
from deploy.monitor.texts import epoch, since, sql_text
from lakehouse.catalog import table_names
from lakehouse.render import plain

__all__ = ["ID", "letters_of", "list_dead_letters", "show_dead_letter", "unknown_letters"]

ID: Final = re.compile(r"[A-Za-z0-9._-]{1,300}")
"""A topic's name, a partition, an offset: nothing that could end a text in SQL."""
SUMMARY_SECONDS: Final = 7 * 86_400.0
MOST_PAYLOAD_BYTES: Final = 256 * 1024

_ROWS: Final = """
SELECT id, reason, stage, device, mqtt_topic, received_at, path, got, wanted, partial, redriven_as
FROM letters WHERE {where} ORDER BY received_at DESC, "offset" DESC LIMIT {limit}"""

_KNOWN: Final = "SELECT id FROM letters WHERE id IN ({ids})"

_SUMMARY: Final = """
SELECT reason, device, mqtt_topic, count(*) AS count, arg_max(id, (received_at, "offset")) AS last_id
FROM letters WHERE {where} GROUP BY ALL ORDER BY count DESC, last_id DESC LIMIT {limit}"""


def list_dead_letters(root: str, reason: str | None, device: str | None, limit: int) -> dict[str, Any]:
    """The last week's letters: how many of each kind, and the newest one by one."""
    if "dead_letters" not in table_names(root):
        return {"summary": [], "letters": []}
    where = _where(reason, device)
    summary = ask_letters(root, _SUMMARY.format(where=where, limit=int(limit))).to_pylist()
    return {"summary": summary, "letters": letters_of(root, reason=reason, device=device, limit=limit)}


def unknown_letters(root: str, ids: Sequence[str]) -> list[str]:
    """Those of the ids that no letter has, in their order."""
    if not ids or "dead_letters" not in table_names(root):
        return list(ids)
    listed = ", ".join(map(sql_text, ids))
    found = {row["id"] for row in ask_letters(root, _KNOWN.format(ids=listed)).to_pylist()}
    return [each for each in ids if each not in found]


def letters_of(root: str, *, reason: str | None = None, device: str | None = None, limit: int) -> list[dict[str, Any]]:
    """The newest letters, of one reason or device where it is given."""
    found = ask_letters(root, _ROWS.format(where=_where(reason, device), limit=int(limit))).to_pylist()
    return [{**row, "received_at": epoch(row["received_at"])} for row in found]


def show_dead_letter(root: str, letter: str) -> dict[str, Any]:
    """One letter: its facts, its bytes for people and for programs, and what to do next.

    Raises:
        UnavailableError: there is none of this id.
    """
    row = show_letter(root, letter)
    payload: bytes = row.pop("payload", None) or b""
    facts = {name: _fact(value) for name, value in row.items() if name not in ("payload_text", "date")}
    return {
        **facts,
        "payload_lines": mark_payload(payload, row["path"], row["got"]),
        "payload_base64": base64.b64encode(payload[:MOST_PAYLOAD_BYTES]).decode("ascii"),
        "next": next_step(row["reason"]),
    }


def _fact(value: Any) -> Any:
    at = epoch(value)
    return plain(value) if at is None else at


def _where(reason: str | None, device: str | None) -> str:
    wanted: Mapping[str, str | None] = {"reason": reason, "device": device}
    terms = [f"{name} = {sql_text(text)}" for name, text in wanted.items() if text is not None]
    return " AND ".join([f"received_at >= {since(SUMMARY_SECONDS)}", *terms])
