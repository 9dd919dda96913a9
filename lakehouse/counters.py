"""Gains of a counter (an energy total, a number of pulses) from one reading to the next, as a query over `readings`.

A counter only counts up. Where its readings fall, one rule decides, from all readings in the order of their time:
- `dip`: a step up, or a few of them, brings the old level back. Nothing is gained until the old level is passed. It does not
  matter how long the dip lasts. A fall by a tenth or less is a dip too.
- `reset`: the counter began again from 0, and the value that it shows is a gain. That value must be possible: at most 8 usual
  steps, more after a silence. If a step up brings the old level back later, the reset becomes a dip.
- `wrap`: it ran over its limit, a power of two (or a tenth, hundredth, thousandth of it) or of ten, and went on from 0. The limit
  must be within a hundredth of itself, or within 2 usual steps. A counter that also begins again far from any limit, as day
  counters do, has no wraps.
- `open`: the readings do not tell. It counts 0, and `pending` has the amount. Such is a fall to a value too high for a reset (one
  of two inverters is off, a meter was replaced), a step up of over 64 usual steps that more than doubles the value or is over
  16 times the largest other one (each for as long as the value had not changed), a dip that ends by a step that counting may
  have made, and one that ends far above the old level: by over 64 usual steps for each usual gap since (of two inverters that
  were off, the larger one came back).

So the true gain lies between sum(delta) and sum(delta) + sum(pending), up to 8 usual steps for a reset that becomes a dip later.
Nothing is stored: late readings and corrections change the answer by the same rule.

A usual step is the geometric mean of the counter's other steps up, a usual gap the mean time between its readings. A fall and the
rise behind it, up to the next fall, make a valley. Where a valley is a dip, the valley before it takes it in, and all are looked
at again: so dips within dips are found.
"""

from typing import Final

__all__ = ["COUNTER_DELTAS_SPARK", "COUNTER_DELTAS_SQL", "LIMITS", "PASSES"]

LIMITS: Final = tuple(
    sorted(
        {2.0**bits for bits in (8, 12, 15, 16, 20, 24, 31, 32, 48, 63, 64)}
        | {2.0**bits / scale for bits in (16, 24, 31, 32) for scale in (10, 100, 1000)}
        | {10.0**digits for digits in range(3, 16)}
    )
)
"""Values at which counters wrap: widths of registers, also in tenths to thousandths, and digits of displays."""

PASSES: Final = 4
"""Largest depth of nested dips that is found; dips next to each other count once."""

_SERIES: Final = "PARTITION BY device, metric"
_TIMES: Final = "PARTITION BY r.device, r.metric ORDER BY r.event_time, r.landed_at, r.partition, r.offset, r.index"
_ROWS: Final = f"{_SERIES} ORDER BY nth"
_BEFORE: Final = f"{_ROWS} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_BEHIND: Final = f"{_ROWS} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
_SO_FAR: Final = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _largest(column: str) -> str:
    """SQL of a column in the row of a valley's largest step up, by its size per usual gap."""
    return f"max_by({column}, CASE WHEN value > previous THEN ((value - previous) / gaps, -nth) END)"


_READINGS: Final = f"""\
stepped AS (
  SELECT r.device, r.metric, r.event_time, r.value,
    row_number() OVER ({_TIMES}) AS nth,
    lag(r.value) OVER ({_TIMES}) AS previous,
    lag(r.event_time) OVER ({_TIMES}) AS previous_time
  FROM readings AS r
  WHERE abs(r.value) < 1e300 AND NOT coalesce(array_contains(r.flags, 'retained'), false)
), turning AS (
  SELECT device, metric, event_time, value, nth, previous,
    {{micros}}(event_time) AS micros,
    {{micros}}(event_time) - {{micros}}(previous_time) AS gap,
    CASE WHEN value > previous THEN ln(value - previous) END AS own,
    coalesce(max(CASE WHEN value <> previous THEN 2 * nth + CASE WHEN value > previous THEN 1 ELSE 0 END END) OVER ({_BEFORE}), 1)
      AS turned
  FROM stepped
), measured AS (
  SELECT device, metric, event_time, value, nth, previous, gap, own, micros,
    greatest((max(micros) OVER ({_SERIES}) - min(micros) OVER ({_SERIES})) / greatest(count(*) OVER ({_SERIES}) - 1, 1), 1.0)
      AS usual_gap,
    {{others}} AS usual,
    sum(CASE WHEN value < previous AND turned % 2 = 1 THEN 1 ELSE 0 END) OVER ({_ROWS} {_SO_FAR}) AS valley
  FROM turning
), placed AS (
  SELECT device, metric, event_time, value, nth, previous, own, usual, valley,
    coalesce(greatest(gap / usual_gap, 1.0), 1.0) AS gaps,
    micros / usual_gap AS moment,
    (micros - gap) / usual_gap AS moment_before
  FROM measured
), pass_0 AS (
  SELECT device, metric, valley, TRUE AS is_head, valley AS head,
    min(value) AS low,
    max_by(value, nth) AS top,
    max(CASE WHEN value < previous THEN nth END) AS bottom,
    max_by(gaps, CASE WHEN value < previous THEN nth END) AS silence,
    sum(
      CASE WHEN value > previous AND coalesce(value - previous > 64 * usual, TRUE) THEN value - previous ELSE 0.0 END
    ) AS jumped,
    {_largest("value - previous")} AS size,
    {_largest("previous")} AS begin,
    {_largest("gaps")} AS size_gaps,
    {_largest("moment")} AS size_at,
    {_largest("usual")} AS size_usual,
    min(moment_before) AS began,
    CAST(NULL AS DOUBLE) AS goal,
    CAST(NULL AS DOUBLE) AS doubt,
    CAST(NULL AS DOUBLE) AS needed,
    CAST(NULL AS DOUBLE) AS missing
  FROM placed
  GROUP BY device, metric, valley
)"""  # noqa: S608 - of constants of this module
"""Readings with their valley, `gaps` (usual gaps since the reading before, at least 1) and `usual` step; then the valleys."""


def _others(own: str) -> str:
    """SQL of the geometric mean of a series' steps up but the row's own; `own` has the steps' logarithms."""
    count = f"(count({own}) OVER ({_SERIES}) - CASE WHEN {own} IS NULL THEN 0 ELSE 1 END)"
    total = f"(sum({own}) OVER ({_SERIES}) - coalesce({own}, 0.0))"
    return f"CASE WHEN {count} > 0 THEN exp({total} / {count}) END"


def _pass(source: str, target: str) -> str:
    """SQL in which each valley takes in the dips behind it; rows below `goal` are those of a dip."""
    group = f"{_SERIES}, head"
    largest = "CASE WHEN size IS NOT NULL THEN (size / size_gaps, -begin) END"
    carried = "".join(
        f",\n    max_by({column}, {largest}) OVER ({group}) AS {column}"
        for column in ("size", "begin", "size_gaps", "size_at", "size_usual")
    )
    return f"""\
{target}_peaks AS (
  SELECT *, CASE WHEN is_head THEN lag(top) OVER (PARTITION BY device, metric, is_head ORDER BY valley) END AS peak FROM {source}
), {target}_depths AS (
  SELECT *,
    peak - low AS depth,
    low >= 0.9 * peak AS is_shallow,
    CASE WHEN low >= 0.9 * peak THEN peak ELSE 0.9 * peak END AS new_goal
  FROM {target}_peaks
), {target}_steps AS (
  SELECT *,
    jumped >= 0.5 * depth
      OR coalesce(size >= 0.9 * depth AND begin <= low + 0.1 * depth, FALSE)
      OR coalesce(size >= 0.5 * depth AND size > 4 * size_usual * size_gaps, FALSE) AS is_step,
    coalesce(4 * size_usual * (size_at - began), 1e300) AS expected
  FROM {target}_depths
), {target}_dips AS (
  SELECT *, coalesce(top >= new_goal AND (is_shallow OR is_step), FALSE) AS is_dip FROM {target}_steps
), {target}_heads AS (
  SELECT *,
    max(CASE WHEN is_dip THEN new_goal END) OVER ({group}) AS outer_goal,
    sum(CASE WHEN is_head AND NOT is_dip THEN 1 ELSE 0 END) OVER ({_SERIES} ORDER BY valley {_SO_FAR}) AS new_head
  FROM {target}_dips
), {target}_rests AS (
  SELECT device, metric, valley, low, bottom, silence, began,
    is_head AND NOT is_dip AS is_head,
    new_head AS head,
    greatest(goal, outer_goal) AS goal,
    CASE WHEN is_head THEN top END AS top,
    CASE
      WHEN NOT is_head THEN 0.0
      WHEN NOT is_dip THEN jumped
      WHEN jumped - depth > expected THEN jumped - depth
      ELSE 0.0
    END AS jumped,
    CASE WHEN NOT is_head THEN NULL WHEN NOT is_dip THEN size WHEN size - depth > expected THEN size - depth END AS size,
    CASE WHEN is_dip THEN peak ELSE begin END AS begin,
    CASE WHEN is_dip THEN 1.0 ELSE size_gaps END AS size_gaps,
    size_at, size_usual,
    CASE WHEN is_dip AND (NOT is_shallow OR silence > 2) THEN peak ELSE doubt END AS doubt,
    CASE
      WHEN is_dip AND NOT is_shallow THEN size / (4 * size_gaps)
      WHEN is_dip AND silence > 2 THEN low / (8 * silence)
      ELSE needed
    END AS needed,
    CASE WHEN is_dip AND is_shallow AND silence <= 2 AND NOT is_step THEN depth ELSE missing END AS missing
  FROM {target}_heads
), {target} AS (
  SELECT device, metric, valley, low, bottom, silence, began, is_head, head, goal, doubt, needed, missing,
    max(top) OVER ({group}) AS top,
    sum(jumped) OVER ({group}) AS jumped{carried}
  FROM {target}_rests
)"""  # noqa: S608 - of constants of this module


def _gains(valleys: str) -> str:
    """SQL of the view, from the readings and the valleys."""
    limit = " ".join(f"WHEN peak <= {limit!r} THEN {limit!r}" for limit in LIMITS)
    return f"""\
falls AS (
  SELECT device, metric, valley, low, bottom, silence, goal, doubt, needed, missing, is_head,
    CASE WHEN is_head THEN lag(top) OVER (PARTITION BY device, metric, is_head ORDER BY valley) END AS peak
  FROM {valleys}
), joined AS (
  SELECT p.device, p.metric, p.event_time, p.value, p.nth, p.previous, p.own, p.gaps, f.peak, f.low, f.silence, f.doubt, f.needed,
    f.missing, p.moment,
    coalesce(f.goal, p.value) > p.value AS is_dip,
    coalesce(f.goal, p.previous) > p.previous AND p.value > p.previous AS is_return,
    coalesce(p.nth = f.bottom, FALSE) AS is_bottom
  FROM placed AS p
  JOIN falls AS f ON p.device = f.device AND p.metric = f.metric AND p.valley = f.valley
), cleaned AS (
  SELECT *, CASE WHEN NOT is_return THEN own END AS counted, CASE {limit} END AS ceiling,
    CASE WHEN NOT is_return AND value > previous THEN (value - previous) / gaps END AS pace,
    greatest(
      moment - coalesce(max(CASE WHEN value <> previous THEN moment END) OVER ({_BEFORE}), min(moment) OVER ({_SERIES})), gaps)
      AS elapsed
  FROM joined
), weighed AS (
  SELECT *, {_others("counted")} AS usual, greatest(max(pace) OVER ({_BEFORE}), max(pace) OVER ({_BEHIND})) AS swiftest
  FROM cleaned
), limited AS (
  SELECT *, ceiling - peak <= greatest(0.01 * ceiling, 2 * coalesce(usual, 0.0)) AS is_near FROM weighed
), habitual AS (
  SELECT *,
    coalesce(
      bool_or(is_bottom AND NOT is_dip AND NOT is_return AND NOT is_near AND low < 0.9 * peak AND low <= 8 * usual * gaps)
        OVER ({_SERIES}), FALSE) AS resets
  FROM limited
), named AS (
  SELECT *,
    CASE
      WHEN is_dip OR is_return OR previous IS NULL THEN NULL
      WHEN value > previous AND value > 2 * greatest(previous, 0.0) AND coalesce(value - previous > 64 * usual * gaps, TRUE)
        THEN 'open'
      WHEN value > previous AND value - previous > 64 * usual * elapsed AND value - previous > 16 * swiftest * elapsed THEN 'open'
      WHEN NOT is_bottom OR peak IS NULL THEN NULL
      WHEN low >= 0 AND is_near AND NOT resets AND low + ceiling - peak <= coalesce(8 * usual * gaps, 0.0) THEN 'wrap'
      WHEN low > 0 AND low >= 0.9 * peak
        THEN CASE WHEN silence > 2 AND low <= coalesce(8 * usual * gaps, 0.0) THEN 'open' END
      WHEN low <= coalesce(8 * usual * gaps, 0.0) THEN 'reset'
      ELSE 'open'
    END AS start,
    CASE
      WHEN NOT is_bottom OR NOT is_dip THEN 0.0
      WHEN usual * CASE WHEN resets THEN 4 ELSE 1 END >= needed THEN doubt
      WHEN missing > 4 * usual THEN missing
      ELSE 0.0
    END AS unsure
  FROM habitual
), parted AS (
  SELECT device, metric, event_time, value, nth, previous, start, is_dip, moment,
    CASE WHEN is_return AND NOT is_dip AND start IS NULL THEN 64 * usual END AS swift,
    CASE
      WHEN is_dip OR start = 'open' THEN 0.0
      WHEN start = 'wrap' THEN low + ceiling - peak
      WHEN start = 'reset' THEN greatest(low, 0.0)
    END AS amount,
    CASE
      WHEN previous IS NULL THEN 0.0
      WHEN is_dip THEN unsure
      WHEN start = 'open' THEN CASE WHEN value > previous THEN value - previous ELSE low END
      WHEN start IS NOT NULL OR is_return THEN 0.0
    END AS open_amount,
    sum(CASE WHEN start IS NULL THEN 0 ELSE 1 END) OVER ({_ROWS} {_SO_FAR}) AS part
  FROM named
), leveled AS (
  SELECT device, metric, event_time, value, previous, start, is_dip, amount, open_amount, swift, moment,
    max(CASE WHEN is_dip THEN NULL WHEN start IS NULL THEN value ELSE greatest(value, 0.0) END) OVER (
      PARTITION BY device, metric, part ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS level,
    max(CASE WHEN is_dip THEN NULL ELSE moment END) OVER (
      PARTITION BY device, metric, part ORDER BY nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS level_at
  FROM parted
), leaping AS (
  SELECT *, coalesce(value - level > swift * greatest(moment - level_at, 1.0), FALSE) AS leaps FROM leveled
), gained AS (
  SELECT *,
    CASE WHEN leaps THEN 0.0 WHEN previous IS NOT NULL THEN coalesce(amount, greatest(value - level, 0.0)) END AS delta
  FROM leaping
)
SELECT device, metric, event_time, value, delta,
  CASE
    WHEN is_dip THEN CASE WHEN open_amount > 0 THEN 'open' ELSE 'dip' END
    WHEN start IS NOT NULL THEN start
    WHEN leaps THEN 'open'
    WHEN value < level THEN 'dip'
  END AS event,
  CASE WHEN leaps THEN value - level ELSE coalesce(open_amount, greatest(value - previous - delta, 0.0)) END AS pending
FROM gained"""  # noqa: S608 - of constants of this module


def _view(micros: str) -> str:
    passes = [_pass(f"pass_{number}", f"pass_{number + 1}") for number in range(PASSES)]
    return "WITH " + ", ".join(
        [_READINGS.format(micros=micros, others=_others("own")), *passes, _gains(f"pass_{PASSES}")]
    )


COUNTER_DELTAS_SQL: Final = _view("epoch_us")
"""Columns: device, metric, event_time, value, delta (null for the first reading), event (`dip`, `reset`, `wrap`, `open` or
null) and pending (a further gain that is possible).
"""
COUNTER_DELTAS_SPARK: Final = _view("unix_micros")
