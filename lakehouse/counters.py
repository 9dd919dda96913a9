"""What a counter (an energy total, a number of pulses) gained between two readings, as a query over `readings`.

DuckDB and Spark read the same text. A counter only counts up; where its readings go down, one of four things happened:
- `dip`: it comes back. Within the next ten readings the old level is reached again (a reading of 0 that a fault gave, a
  meter that rounds). Nothing is gained until the old level is passed.
- `wrap`: it ran over its limit, a power of two or of ten, and went on from 0. Believed only where that is no more than four
  times its largest step of late, so that a reset close to a limit does not become a spike.
- `reset`: it began anew. Near 0 (a tenth of the old level or less) what it shows was gained since; else its level was set,
  and nothing is known to be gained. A level that is set is told from a dip once ten readings have not come back.
- nothing of these yet: the newest readings may still turn out to be a dip.
So the gain of a moment can change while the ten readings after it come in.
"""

from typing import Final

__all__ = ["COUNTER_DELTAS_SQL"]

_LIMITS: Final = tuple(
    sorted([2**bits for bits in (8, 12, 15, 16, 20, 24, 31, 32, 48, 63, 64)] + [10**n for n in range(3, 16)])
)
"""Where counters run over: widths of registers, and digits of displays."""

_LIMIT: Final = " ".join(f"WHEN previous <= {limit:.1f} THEN {limit:.1f}" for limit in _LIMITS)

COUNTER_DELTAS_SQL: Final = f"""\
WITH ordered AS (
  SELECT r.device, r.metric, r.event_time, r.value,
    row_number() OVER (
      PARTITION BY r.device, r.metric ORDER BY r.event_time, r.landed_at, r.partition, r.offset, r.index
    ) AS nth
  FROM readings AS r
  WHERE r.value IS NOT NULL
), stepped AS (
  SELECT *,
    lag(value) OVER (PARTITION BY device, metric ORDER BY nth) AS previous,
    value - lag(value) OVER (PARTITION BY device, metric ORDER BY nth) AS step,
    max(value) OVER (PARTITION BY device, metric ORDER BY nth ROWS BETWEEN 1 FOLLOWING AND 10 FOLLOWING) AS highest_next,
    count(value) OVER (PARTITION BY device, metric ORDER BY nth ROWS BETWEEN 1 FOLLOWING AND 10 FOLLOWING) AS next_count
  FROM ordered
), bounded AS (
  SELECT *,
    max(step) OVER (PARTITION BY device, metric ORDER BY nth ROWS BETWEEN 20 PRECEDING AND 1 PRECEDING) AS largest_step,
    CASE {_LIMIT} END AS ceiling
  FROM stepped
), judged AS (
  SELECT *,
    CASE
      WHEN previous IS NULL OR value >= previous THEN NULL
      WHEN value >= 0 AND value + ceiling - previous <= 4 * largest_step THEN 'wrap'
      WHEN highest_next >= previous THEN 'dip'
      WHEN value <= 0.1 * previous OR next_count >= 10 THEN 'reset'
      ELSE 'dip'
    END AS fall
  FROM bounded
), parted AS (
  SELECT *,
    sum(CASE WHEN fall IN ('wrap', 'reset') THEN 1 ELSE 0 END) OVER (
      PARTITION BY device, metric ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS part
  FROM judged
), leveled AS (
  SELECT *,
    max(value) OVER (
      PARTITION BY device, metric, part ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS level
  FROM parted
), passed AS (
  SELECT *, lag(level) OVER (PARTITION BY device, metric ORDER BY nth) AS passed FROM leveled
)
SELECT device, metric, event_time, value,
  CASE
    WHEN previous IS NULL THEN NULL
    WHEN fall = 'wrap' THEN greatest(value + ceiling - passed, 0)
    WHEN fall = 'reset' THEN CASE WHEN value <= 0.1 * previous THEN greatest(value, 0) ELSE 0 END
    ELSE greatest(value - passed, 0)
  END AS delta,
  CASE WHEN fall IN ('wrap', 'reset') THEN fall WHEN value < passed THEN 'dip' END AS event
FROM passed"""  # noqa: S608 - of constants of this module
"""Columns: device, metric, event_time, value, delta (null for the first reading), event (`reset`, `wrap`, `dip` or null)."""
