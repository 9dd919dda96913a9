"""What `status` says of the disk: how much is free, and at what date it will be full."""

from typing import Any

import pytest

from deploy.local.monitor_client import UNKNOWN
from deploy.local.status_text import render_status

FREE = 81_204_331_008
AT = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""


def line(**disk: Any) -> str | None:
    status = {**UNKNOWN, "ready": True, "page": None, "parts": {}, "alerts": [], "disk": disk}
    return next((text[11:] for text in render_status(status).split("\n") if text.startswith("Disk")), None)


@pytest.mark.parametrize(
    ("disk", "said"),
    [
        ({}, None),
        ({"free_bytes": None, "full_days": None, "full_at": None}, None),
        ({"free_bytes": FREE, "full_days": None, "full_at": None}, "75.6 GiB free"),
        (
            {"free_bytes": FREE, "full_days": 64.2, "full_at": AT},
            "75.6 GiB free, full in 64 d (2027-01-15) at the pace of the last hours",
        ),
        (
            {"free_bytes": 2 * FREE, "full_days": 0.2, "full_at": AT},
            "151 GiB free, full in 5 h (2027-01-15 08:00) at the pace of the last hours",
        ),
        (
            {"free_bytes": FREE, "full_days": 1e9, "full_at": 1e14},
            "75.6 GiB free, full in more than a year at the pace of the last hours",
        ),
    ],
)
def test_the_disk_in_a_line(disk: dict[str, Any], said: str | None) -> None:
    assert line(**disk) == said
