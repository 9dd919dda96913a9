"""Spark's generated classes are made once, not at each turn of landing and derivations."""

import time
from typing import Any

from ingest.contract.reading import Reading
from lakehouse.lake_settings import LakeSettings
from streaming.derive.deriver import Deriver, arrival_derivations
from streaming.derive.rollups import RollupDerivation
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

ROUNDS = 6


def test_a_warm_stream_generates_no_class(lander: Any, record: Any) -> None:
    """Landing, rollups, ledger, latest and devices in turn are more classes than Spark keeps by itself (100).

    Compiled anew at every turn they cost a third of a core, and p95 of publish to row doubled (DECISIONS.md).
    """
    spark = lander.lake.spark
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    started = lander.start()
    writer = WriterContext(
        spark, lander.kafka, StreamSettings(checkpoint=str(lander.checkpoint)), LakeSettings(root=lander.root),
        lander.metrics, lander.topics,
    )  # fmt: skip
    deriver = Deriver([RollupDerivation(writer), *arrival_derivations(writer)])
    made = []
    try:
        for number in range(ROUNDS):
            before, now = compiled.getCount(), int(time.time() * 1e6)
            lander.send(
                *(
                    record(
                        10 * number + i, device=f"d{i}", received_us=now, readings=[Reading("t", value=1.0 * number)]
                    )
                    for i in range(5)
                )
            )
            started.query.processAllAvailable()
            deriver.run_pass()
            made.append(compiled.getCount() - before)
    finally:
        started.landing.stop()
        started.query.stop()
        started.landing.close()
    assert 0 in made[-3:], f"classes generated per round: {made}"
