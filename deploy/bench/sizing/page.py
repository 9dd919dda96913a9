"""The page SIZING.md: the sizes of three fleets with the shipped costs and the default settings, as the command prints them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.bench.sizing.costs import Costs, read_costs
from deploy.bench.sizing.fleet import Fleet, Prices, Size
from deploy.bench.sizing.model import size_fleet
from deploy.bench.sizing.render import command_line, render_size
from deploy.bench.suite.report.html_tables import number_text
from deploy.settings import load_settings
from lakehouse.atomic_file import write_text

__all__ = ["PAGE_FLEETS", "render_page", "write_page"]

PRICES: Final = Prices(core_hour=0.04, gb_month=0.02, thousand_puts=0.005)
PAGE_FLEETS: Final = tuple(
    Fleet(devices=devices, every_seconds=60.0, prices=PRICES) for devices in (10_000, 1_000_000, 100_000_000)
)

_HEAD: Final = """\
# Sizing

`tidegate bench size` computes the size of a pipeline for a fleet: gateways, Kafka, landing, tables, requests and money. It names
the limit that breaks first. `tidegate bench size --markdown SIZING.md` writes this page; do not edit it.

## How much of it is measured

- **Measured:** processor time, memory and commits of each part, in one embedded run on one machine with everything on:
  {machine}.
  The scenario `pipeline` ([BENCHMARKS.md](BENCHMARKS.md#how-to-measure)) reached {rate:,.0f} messages/s. At 1,000 messages/s
  it reached {devices:,.0f} devices, {partitions:,.0f} partitions, {readings:,.0f} readings a message, and {rows:,.0f}
  rows in the table. Each line below names the points that it lies between.
- **Read from the code:** limits such as the counters of a gateway. The command imports them from their modules.
- **Computed:** everything else. A line that says `beyond` follows from the last measured point: the cost of a message stays, and
  memory grows as between the last two points.
- **Not measured:** copies in Kafka between machines, the latency of an object store, executors on several machines, several
  gateways at once under such a load, and any fleet above {devices:,.0f} devices. The two larger fleets below are therefore
  calculations, not claims. Their purpose is to show which limit comes first.

A device sends one reading a minute here. Give your own numbers, your own run and your own tables:

```
tidegate bench size --devices 20000 --every 10 --readings 4 --bytes 300 --days 365
tidegate bench size --devices 20000 --every 10 --config tidegate.toml    # with your retention, partitions and intervals
tidegate bench size --devices 20000 --every 10 --config tidegate.toml --own-tables   # bytes of a row as in your tables
tidegate bench run pipeline --report results/pipeline                    # your machine; then:
tidegate bench size --devices 20000 --every 10 --result results/pipeline/result.json
```

The prices below are assumptions of 2026-11-30, not the offer of any provider: replace them by your own. Without a price the
command shows only amounts. `--json` gives every figure with its unit and its source.

## Limits by fleet

Share of each limit that a fleet needs; above 100 % it does not fit. The order is that in which they break. A limit of the kind
`code` is a constant, `setting` may be raised, `measured` was not measured beyond, and `computed` follows from rows that the code
writes again and from the cost of a row. If derived tables alone reach a limit, readings still land.

{limits}
"""


def render_page(costs: Costs | None = None) -> str:
    """Return the page."""
    costs = costs or read_costs()
    settings = load_settings(environ={})
    sizes = [size_fleet(fleet, costs, settings) for fleet in PAGE_FLEETS]
    head = _HEAD.format(
        machine=costs.machine, rate=costs.most("rate"), devices=costs.most("devices"), limits=_limits(sizes),
        partitions=costs.most("partitions"), readings=costs.most("readings"), rows=costs.most("table_rows"),
    )  # fmt: skip
    return "\n".join([head, *map(_section, sizes)])


def write_page(file: Path) -> None:
    """Write the page."""
    write_text(file, render_page())


def _section(size: Size) -> str:
    return f"## {size.fleet.devices:,} devices\n\n```\n$ {command_line(size.fleet)}\n{render_size(size)}\n```\n"


def _limits(sizes: Sequence[Size]) -> str:
    heads = ["limit", "kind", "reached at", *(f"{size.fleet.devices:,}" for size in sizes)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * 3}{'---:|' * len(sizes)}"]
    for one in sizes[0].ceilings:
        shares = [next(each for each in size.ceilings if each.name == one.name).share for size in sizes]
        cells = [
            one.name,
            one.kind,
            f"{one.devices:,.0f} devices",
            *(f"{number_text(100 * share)} %" for share in shares),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
