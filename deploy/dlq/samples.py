"""Dead letters as sample messages for a draft of a route."""

from typing import Final

from deploy.dlq.dead_letter_query import query_dead_letters
from gateway.suggest.message_families import SampleMessage
from gateway.topic_filters import compile_filter
from ingest.contract.reasons import Reason
from lakehouse.query import duckdb_literal

__all__ = ["dead_samples"]

_WHOLE: Final = """
    SELECT mqtt_topic, payload, epoch_us(received_at) AS received_us FROM letters
    WHERE mqtt_topic IS NOT NULL AND octet_length(payload) = payload_bytes AND payload_bytes > 0 AND redriven_at IS NULL
        AND {where}
    QUALIFY row_number() OVER (PARTITION BY mqtt_topic ORDER BY received_at DESC, "offset" DESC) <= {each}
    ORDER BY received_at DESC, "offset" DESC LIMIT {most}"""
_EACH_TOPIC: Final = 5
_MOST: Final = 100


def dead_samples(root: str, topic: str | None) -> list[SampleMessage]:
    """The newest letters whose payload was kept whole, a few of each topic.

    Args:
        root: of the tables.
        topic: a topic or topic filter; of a topic those like it come too, since they show which level is the device.
            None: all that no route or decoder takes.
    """
    if topic is None:
        where = f"reason IN ({duckdb_literal(Reason.NO_ROUTE)}, {duckdb_literal(Reason.UNDECODED)})"
        return _ask(root, where)
    wanted = compile_filter(topic)
    if "+" in topic or "#" in topic or wanted.names:
        return [sample for sample in _ask(root, "true") if wanted.match(sample.topic) is not None]
    own = _ask(root, f"mqtt_topic = {duckdb_literal(topic)}")
    levels = topic.split("/")
    head = "/".join(levels[: 2 if levels[0] == "" else 1])
    alike = (
        f"reason IN ({duckdb_literal(Reason.NO_ROUTE)}, {duckdb_literal(Reason.UNDECODED)})"
        f" AND mqtt_topic <> {duckdb_literal(topic)}"
        f" AND starts_with(mqtt_topic, {duckdb_literal(head + '/')}) AND len(string_split(mqtt_topic, '/')) = {len(levels)}"
    )
    return own + (_ask(root, alike) if own and len(levels) > 1 else [])


def _ask(root: str, where: str) -> list[SampleMessage]:
    found = query_dead_letters(root, _WHOLE.format(where=where, each=_EACH_TOPIC, most=_MOST)).to_pylist()
    return [SampleMessage(row["mqtt_topic"], row["payload"], row["received_us"]) for row in found]
