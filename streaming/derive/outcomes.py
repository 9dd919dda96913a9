"""Outcome records of the gateways, read from Kafka by Spark as a batch, as sums per device and minute. Only JVM expressions.

A record that is not an outcome is counted and skipped.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ingest.contract.reading import RECORD_VERSION
from ingest.kafka_settings import KafkaSettings
from ingest.security import jvm_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["OUTCOME_SCHEMA", "OutcomeSums", "count_outcomes", "read_outcomes"]

_COUNT: Final = (
    "STRUCT<minute BIGINT, received BIGINT, device STRING, accepted BIGINT, partial BIGINT, dead_lettered MAP<STRING, BIGINT>, "
    "ignored MAP<STRING, BIGINT>, gap BIGINT, reordered BIGINT, shared BIGINT, restarts BIGINT, retained BIGINT>"
)
OUTCOME_SCHEMA: Final = (
    f"v INT, gateway STRING, epoch BIGINT, first BIGINT, upto BIGINT, counts ARRAY<{_COUNT}>, began BIGINT"
)
"""ingest.contract.outcome.OutcomeRecord in Spark's words; a test compares the two."""

# Years 2000 to 2200, in minutes.
_MINUTE_FROM, _MINUTE_TO = 15_778_080, 120_968_640
_SUM: Final = "aggregate(map_values({0}), 0L, (total, each) -> total + each)"
_SOUND: Final = (
    f"r._corrupt IS NULL AND r.v = {RECORD_VERSION} AND r.gateway IS NOT NULL AND r.epoch IS NOT NULL AND r.upto IS NOT NULL "
    f"AND r.counts IS NOT NULL AND forall(r.counts, c -> coalesce(c.minute BETWEEN {_MINUTE_FROM} AND {_MINUTE_TO} "
    "AND c.received >= 0 AND coalesce(c.accepted, 0) >= 0, false))"
)


@dataclass(slots=True)
class OutcomeSums:
    """Sums per device and minute, held in memory until `release`, and what the derivation must know of them.

    `first` and `upto` are gateway -> epoch -> the first and the last number counted; `poison` the records that were none.
    """

    sums: "DataFrame"
    upto: dict[str, dict[str, int]] = field(default_factory=dict)
    minutes: set[datetime] = field(default_factory=set)
    poison: int = 0
    first: dict[str, dict[str, int]] = field(default_factory=dict)

    def release(self) -> None:
        """Forget the rows."""
        self.sums.unpersist()


def read_outcomes(
    spark: "SparkSession", settings: KafkaSettings, topic: str, starts: dict[int, int], ends: dict[int, int]
) -> "DataFrame":
    """The raw values of a range of the topic: one column `value`. Records that Kafka no longer has are an error."""
    options = {
        **{f"kafka.{key}": value for key, value in jvm_conf(settings).items()},
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {str(part): starts.get(part, 0) for part in ends}}),
        "endingOffsets": json.dumps({topic: {str(part): end for part, end in ends.items()}}),
        "failOnDataLoss": "true",
        "kafka.max.poll.records": "10000",
        "kafka.fetch.max.wait.ms": "5",
        "fetchOffset.numRetries": "1",
        "kafka.default.api.timeout.ms": "15000",
        "kafka.request.timeout.ms": "10000",
    }
    return spark.read.format("kafka").options(**options).load().select("value")


def _outcome_sums(values: "DataFrame") -> "DataFrame":
    """Per device, minute and gateway epoch: what was counted, the largest `upto`; a null gateway counts poison records."""
    options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt')"
    parsed = values.selectExpr(
        f"from_json(CAST(value AS STRING), '{OUTCOME_SCHEMA}, _corrupt STRING', {options}) AS r"
    ).selectExpr(f"coalesce({_SOUND}, false) AS sound", "r")
    counts = parsed.selectExpr(
        "IF(sound, r.gateway, NULL) AS gateway",
        "IF(sound, r.epoch, NULL) AS epoch",
        "IF(sound, coalesce(r.first, 0L), NULL) AS first",
        "IF(sound, r.upto, NULL) AS upto",
        "explode_outer(IF(sound, r.counts, NULL)) AS c",
    ).selectExpr(
        "gateway", "epoch", "first", "upto",
        "coalesce(c.device, '') AS device",
        "timestamp_seconds(c.minute * 60) AS minute",
        "coalesce(c.accepted, 0L) AS accepted",
        f"coalesce({_SUM.format('c.dead_lettered')}, 0L) AS counted_dead",
        f"coalesce({_SUM.format('c.ignored')}, 0L) AS ignored",
        "coalesce(c.partial, 0L) AS counted_partial",
        "coalesce(c.gap, 0L) AS gap",
        "coalesce(c.reordered, 0L) AS reordered",
        "coalesce(c.shared, 0L) AS shared",
        "coalesce(c.restarts, 0L) AS restarts",
        "coalesce(c.retained, 0L) AS retained",
    )  # fmt: skip
    from pyspark.sql import functions as F

    names = (
        "accepted", "counted_dead", "ignored", "counted_partial", "gap", "reordered", "shared", "restarts", "retained",
    )  # fmt: skip
    return counts.groupBy("device", "minute", "gateway", "epoch").agg(
        F.min("first").alias("first"),
        F.max("upto").alias("upto"),
        F.count("*").alias("records"),
        *(F.sum(name).alias(name) for name in names),
    )


def count_outcomes(values: "DataFrame") -> OutcomeSums:
    """Read once, keep the sums, and ask them what was counted up to where: one Spark job."""
    from pyspark.sql import functions as F

    sums = _outcome_sums(values.coalesce(1)).persist()
    try:
        told = (
            sums.groupBy("gateway", "epoch")
            .agg(F.min("first"), F.max("upto"), F.expr("collect_set(unix_seconds(minute))"), F.sum("records"))
            .collect()
        )
    except BaseException:
        sums.unpersist()
        raise
    counted = OutcomeSums(sums)
    for gateway, epoch, first, upto, minutes, records in told:
        if gateway is None:
            counted.poison += int(records)
            continue
        counted.first.setdefault(gateway, {})[str(epoch)] = int(first)
        counted.upto.setdefault(gateway, {})[str(epoch)] = int(upto)
        counted.minutes |= {_utc(seconds) for seconds in minutes}
    return counted


def _utc(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
