"""Cells of benchmarks that start their own parts: the landing, layouts, a day of commits, a soak. Their figures are flat."""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deploy.bench.suite.cell_beds import CellBed
from deploy.bench.suite.parts_cost import RunParts
from deploy.bench.suite.scenario import Kind, Parameters
from deploy.bench.temporary import own_folder
from ingest.kafka_settings import KafkaSettings

__all__ = ["own_bed", "own_cell", "soak_figures"]

SOAK_RATE: Final = 200.0
"""Messages a second of a soak whose cell names none."""
_NO_WORD: Final = re.compile(r"\W+")


@contextmanager
def own_bed() -> Iterator[CellBed]:
    """Nothing: each run starts and ends what it needs. `brokers` are the parts of a soak, which no process here started."""
    yield CellBed(KafkaSettings(), brokers=RunParts(), folder=Path(tempfile.gettempdir()), makes_topics=False)


def own_cell(work: Parameters, parts: Mapping[str, int]) -> dict[str, Any]:
    """One run of a cell by its kind; `parts` are the `brokers` of its bed."""
    if work.kind == "soak":
        return _soak(work, parts)
    return _CELLS[work.kind](work)


def _land(work: Parameters) -> dict[str, Any]:
    """Catch up with `messages` records of `readings` readings in `partitions` partitions, as a stream that was away does.

    With `workers` the executors of a Spark cluster land. Their processor time is `executor_us_per_row`, that of the driver
    (its Python part included) `cpu_us_per_row`, and `driver_share` is the driver's part of both.

    Returns:
        `rows_per_second`, `cpu_us_per_row`, `python_us_per_row`, `cpu_seconds_per_million`, `peak_rss_mb`, `rows`, `lost`,
        `executor_us_per_row`, `driver_share`.
    """
    from deploy.bench.land import measure_catch_up

    rows = work.messages * work.readings
    found = measure_catch_up(
        rows=rows, runs=1 + bool(work.workers), partitions=work.partitions, readings=work.readings, workers=work.workers
    )
    names = ("rows", "rows_per_second", "cpu_us_per_row", "python_us_per_row", "executor_us_per_row", "lost")
    figures = {name: float(found[name]) for name in names}
    spent = figures["cpu_us_per_row"] + figures["executor_us_per_row"]
    figures["driver_share"] = round(figures["cpu_us_per_row"] / spent, 3) if spent else 1.0
    # Microseconds of a row are seconds of a million rows.
    return figures | {"cpu_seconds_per_million": figures["cpu_us_per_row"], "peak_rss_mb": float(found["peak_mb"])}


def _layout(work: Parameters) -> dict[str, Any]:
    """Write `messages` rows of `devices` devices in each layout and ask.

    Returns:
        Each figure of `bench layout` as `LAYOUT_FIGURE`, such as `arrival_device_month_ms`.
    """
    from deploy.bench.layout import measure_layouts

    found = measure_layouts(rows=work.messages, devices=work.devices, tell=_tell)
    return {
        f"{cell['layout']}_{name}": float(value)
        for cell in found["cells"]
        for name, value in cell.items()
        if name != "layout"
    }


def _day(work: Parameters) -> dict[str, Any]:
    """Make `messages` rows in commits of `batch_records`, three a second; look, maintain, look again.

    Returns:
        `commits`, `maintain_seconds`, and each figure of `bench day` as `before_FIGURE` and `after_FIGURE`.
    """
    from deploy.bench.day import measure_day

    commits = max(1, work.messages // work.batch_records)
    found = measure_day(commits=commits, rows_per_commit=work.batch_records, devices=work.devices, tell=_tell)
    figures = {f"{when}_{name}": float(value) for when in ("before", "after") for name, value in found[when].items()}
    return {"commits": float(commits), "maintain_seconds": float(found["maintain"]["seconds"]), **figures}


def _soak(work: Parameters, parts: Mapping[str, int]) -> dict[str, Any]:
    """Load a whole pipeline with `messages` at `rate`, without faults, and judge what grows.

    Returns:
        See `soak_figures`.
    """
    from deploy.soak.run import SoakOptions, run_soak

    rate = work.rate or SOAK_RATE
    with own_folder() as folder:
        data = folder / "data"
        data.mkdir()
        try:
            if isinstance(parts, RunParts):
                parts.folder = data
            options = SoakOptions(minutes=work.messages / rate / 60, rate=rate, faults=False, seed=0)
            return soak_figures(run_soak(options, data, tell=_tell))
        finally:
            if isinstance(parts, RunParts):
                parts.folder = None


def soak_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a soak from its --json result.

    Returns:
        `last_FIGURE`, and `per_hour_FIGURE` where it was judged; `over_bound`: how many grow too fast; `wrong`: all that a soak
        must not show, with the sentences under `limit`; `lost`, `duplicate_rows`, `order_violations`, `acknowledged`.
    """
    slopes: Sequence[Mapping[str, Any]] = result["slopes"]
    audit = result["audit"]
    figures: dict[str, Any] = {
        "wrong": float(len(result["wrong"])),
        "over_bound": float(sum(bool(slope["above"]) for slope in slopes)),
        "lost": float(audit["unaccounted"]),
        "duplicate_rows": float(audit["duplicate_rows"]),
        "order_violations": float(audit["order_violations"]),
        "acknowledged": float(result["acknowledged"]),
    }
    for slope in slopes:
        name = _NO_WORD.sub("_", slope["name"])
        figures[f"last_{name}"] = float(slope["last"])
        if slope["per_hour"] is not None:
            figures[f"per_hour_{name}"] = float(slope["per_hour"])
    return figures | ({"limit": "; ".join(result["wrong"])} if result["wrong"] else {})


_CELLS: Final[Mapping[Kind, Callable[[Parameters], dict[str, Any]]]] = {
    "land": _land, "layout": _layout, "day": _day,
}  # fmt: skip


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
