"""Comparison of copies with stored rows by the executors: the rules of streaming/duplicate_comparator.py as expressions of Spark.

The texts of a dead letter are the same except for the form of numbers with many digits.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ingest.contract.reasons import Reason
from streaming.duplicate_comparator import REDELIVERY, SHOWN_READINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IDENTITY", "JUDGED_COLUMNS", "judge_copies", "refused_records"]

IDENTITY: Final = ("device", "metric", "index", "message_id")
"""Columns that name a reading."""
JUDGED_COLUMNS: Final = (
    *IDENTITY, "partition", "offset", "value", "text", "unit", "device_time", "flags", "payload_hash", "gateway",
    "gateway_epoch", "message_number", "received_at",
)  # fmt: skip
"""Columns of stored rows and of copies; copies also have `position` and `partial`."""

# See duplicate_comparator for the reasons of each exception. `+ 0D` makes the negative zero equal to the other one.
_CONTENT: Final = """
    CASE WHEN array_contains(flags, 'corrected') THEN NULL WHEN startswith(message_id, 'rx:') THEN 'rx'
    ELSE to_json(named_struct('value', value + 0D, 'text', text, 'unit', unit, 'time',
        CASE WHEN array_contains(flags, 'relative_time') OR startswith(message_id, 'tg:') THEN NULL
        ELSE unix_micros(device_time) END)) END AS content"""
_MESSAGE: Final = "concat_ws(':', gateway, gateway_epoch, message_number) AS message"
_ARRIVED: Final = """
    CASE WHEN startswith(message_id, 'bs:') AND device_time IS NULL AND NOT array_contains(flags, 'may_have_waited')
        AND NOT array_contains(flags, 'retained') THEN unix_micros(received_at) END AS arrived"""
_KNOWN: Final = (
    *IDENTITY, "true AS is_known", "content AS k_content", "payload_hash AS k_payload", "message AS k_message",
    "value AS k_value", "struct(partition, offset) AS k_origin", "arrived AS k_arrived", "gateway AS k_gateway",
)  # fmt: skip
_MICROSECONDS: Final = REDELIVERY // timedelta(microseconds=1)
_REASON: Final = f"""
    CASE WHEN NOT known THEN '{Reason.UNCHECKED_DUPLICATE}' WHEN reused THEN '{Reason.CONFLICTING_DUPLICATE}'
    WHEN same_payload OR same_content THEN NULL WHEN other_content THEN '{Reason.CONFLICTING_DUPLICATE}'
    WHEN other_payload THEN '{Reason.UNCHECKED_DUPLICATE}' END AS reason"""


def judge_copies(copies: "DataFrame", known: "DataFrame") -> "DataFrame":
    """Return the copies that are not equal to a row of `known`, one row each, with their `reason`.

    Args:
        copies: rows that are stored already, JUDGED_COLUMNS with position and partial.
        known: the rows of the batch that stay, and stored rows, JUDGED_COLUMNS.
    """
    copy = copies.selectExpr("*", _CONTENT, _MESSAGE, _ARRIVED)
    other = known.selectExpr("*", _CONTENT, _MESSAGE, _ARRIVED).selectExpr(*_KNOWN)
    judged = copy.join(other, list(IDENTITY), "left").groupBy("partition", "offset", "position").agg(
        *(F.first(name).alias(name) for name in ("metric", "value", "text", "unit", "message_id", "partial")),
        F.expr("coalesce(bool_or(is_known), false) AS known"),
        F.expr("bool_or(k_payload = payload_hash AND k_message <> message) AS same_payload"),
        F.expr("bool_or(k_payload <> payload_hash) AS other_payload"),
        F.expr("bool_or(k_content = content) AS same_content"),
        F.expr("bool_or(k_content <> content) AS other_content"),
        F.expr("min_by(k_value, k_content = content) FILTER (WHERE k_value IS NOT NULL) AS stored_value"),
        F.expr("min(k_origin) AS origin"),
        F.expr("min(CASE WHEN k_gateway <=> gateway THEN abs(arrived - k_arrived) ELSE 0L END) AS apart"),
    )  # fmt: skip
    reused = f"coalesce((same_payload OR same_content) AND apart > {_MICROSECONDS}, false) AS reused"
    return judged.selectExpr("*", reused).selectExpr("*", _REASON).where("reason IS NOT NULL")


def refused_records(judged: "DataFrame") -> "DataFrame":
    """Return one row of CONFLICT_SCHEMA for each record of these copies; one with a copy of either kind is a conflict."""
    each = (
        "struct(position, reason, metric, value, text, unit, message_id, reused, apart, stored_value, origin, partial)"
    )
    records = judged.groupBy("partition", "offset").agg(F.expr(f"sort_array(collect_list({each})) AS found"))
    picked = records.selectExpr("partition", "offset", f"{_CHOSEN} AS chosen")
    shown = picked.selectExpr(
        "*", "chosen[0] AS one", f"slice(chosen, 1, {SHOWN_READINGS}) AS shown", f"{_MORE} AS more"
    )
    return shown.selectExpr(
        "one.reason AS reason", "partition", "offset", "concat('$.readings[', one.position, ']') AS path",
        f"concat_ws('; ', transform(shown, x -> {_GOT}), more) AS got", f"{_WANTED} AS wanted", "one.partial AS partial",
    )  # fmt: skip


_CONFLICTS: Final = f"filter(found, x -> x.reason = '{Reason.CONFLICTING_DUPLICATE}')"
_CHOSEN: Final = f"CASE WHEN size({_CONFLICTS}) > 0 THEN {_CONFLICTS} ELSE found END"
_MANY: Final = f"size(chosen) > {SHOWN_READINGS}"
_MORE: Final = f"CASE WHEN {_MANY} THEN concat(CAST(size(chosen) - {SHOWN_READINGS} AS STRING), ' more') END"


def _number(value: str) -> str:
    whole = f"abs({value}) < 1e15 AND {value} = floor({value})"
    return f"CASE WHEN {whole} THEN CAST(CAST({value} AS BIGINT) AS STRING) ELSE CAST({value} AS STRING) END"


_GOT: Final = (
    "concat(left(x.metric, 60), ' = ', left(coalesce(x.text, " + _number("x.value") + ", 'another text'), 60), "
    "CASE WHEN x.unit IS NULL OR x.unit = '' THEN '' ELSE concat(' ', left(x.unit, 20)) END)"
)
_STORED: Final = f"concat(left(x.metric, 60), ' = ', coalesce({_number('x.stored_value')}, 'another text'))"
_SECONDS: Final = "(one.apart DIV 1000000)"
_AGE: Final = (
    f"concat(CASE WHEN {_SECONDS} < 86400 THEN '' WHEN {_SECONDS} < 172800 THEN '1 day, ' "
    f"ELSE concat({_SECONDS} DIV 86400, ' days, ') END, {_SECONDS} % 86400 DIV 3600, ':', "
    f"lpad(CAST({_SECONDS} % 3600 DIV 60 AS STRING), 2, '0'), ':', lpad(CAST({_SECONDS} % 60 AS STRING), 2, '0'))"
)
_WANTED: Final = (
    f"CASE WHEN one.reason <> '{Reason.CONFLICTING_DUPLICATE}' THEN concat('a comparison with the stored row of ', "
    "one.message_id, ': the row is deleted or corrected, or there was no time left to look for it') "
    "WHEN one.reused THEN concat('another `boot` at each start: ', one.message_id, "
    f"' with the same content and no device time was received ', {_AGE}, ' earlier') "
    "ELSE concat('the content stored for ', one.message_id, ' from partition ', one.origin.partition, ' offset ', "
    f"one.origin.offset, ': ', concat_ws('; ', transform(shown, x -> {_STORED}), more)) END"
)
