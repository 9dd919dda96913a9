"""The disk in the snapshot: the fullest, and when the first is full; what is not known is not zero."""

import math

import pytest

from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.snapshot.figures import METRICS, disk

NOW = 1_800_000_000.0
DAYS = "tidegate_table_disk_full_days"
FREE = "node_filesystem_avail_bytes"


@pytest.mark.parametrize(
    ("days", "full_days", "full_at"),
    [
        ({"/": 12.34, "/kafka": 2.5}, 2.5, NOW + 216_000),
        ({"/": math.inf, "/kafka": 40.0}, 40.0, NOW + 40 * 86_400),
        ({"/": math.inf}, None, None),
        ({}, None, None),
    ],
)
def test_the_date_is_that_of_the_disk_that_is_full_first(
    days: dict[str, float], full_days: float | None, full_at: float | None
) -> None:
    memory = History(METRICS)
    told = {(DAYS, (("mountpoint", mount),)): value for mount, value in days.items()}
    told |= {(FREE, (("mountpoint", mount),)): free for mount, free in (("/", 9.0), ("/kafka", 5.0))}
    memory.add(NOW, "tidegate-monitor", Scrape(NOW, told))
    assert disk(memory, None, NOW) == {"free_bytes": 5.0, "full_days": full_days, "full_at": full_at}
