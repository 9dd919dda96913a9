# ruff: noqa: RUF001 - the page writes dashes as people do
"""What the page says of the disk: in how many days it is full, and at what date."""

from collections.abc import Callable
from typing import Any

import pytest

AT = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""


@pytest.mark.parametrize(
    ("days", "at", "said"),
    [
        (64.2, AT, "64.2 days, 2027-01-15"),
        (2.0, AT, "2 days, 2027-01-15"),
        (0.2, AT, "0.2 days, 2027-01-15 08:00"),
        (4000.0, AT, "> 10 years"),
        (None, None, "–"),
    ],
)
def test_the_date_stands_beside_the_days(
    open_tab: Any,
    scripted_page: Any,
    page_stories: dict[str, Callable[..., dict[str, Any]]],
    days: float | None,
    at: float | None,
    said: str,
) -> None:
    snapshot = page_stories["normal"]()
    snapshot["disk"] = {"free_bytes": 2**36, "full_days": days, "full_at": at}
    scripted_page.show(snapshot)
    tab = open_tab(timezone_id="UTC")
    tab.wait(f"document.querySelector('[data-figure=full]')?.textContent === {said!r}")
    tab.assert_clean()
