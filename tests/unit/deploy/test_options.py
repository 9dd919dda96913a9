"""Times and spans of flags: what is read, and what is refused rather than read as something else."""

from datetime import UTC, datetime, timedelta

import pytest
import typer

from deploy.commands.options import parse_span, parse_time


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("30s", timedelta(seconds=30)),
        ("1.5 h", timedelta(minutes=90)),
        ("1 second", timedelta(seconds=1)),
        ("90 minutes", timedelta(minutes=90)),
        ("1 hour", timedelta(hours=1)),
        ("2 days", timedelta(days=2)),
        ("1 week", timedelta(days=7)),
    ],
)
def test_spans_in_letters_and_in_words(text: str, span: timedelta) -> None:
    assert parse_span(text) == span
    assert abs(datetime.now(UTC) - span - parse_time(f"{text} ago")) < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["1 month", "1 moment", "2 dozen", "5ms", "1 year", "10", "days", "-1d", "1e3s"])
def test_a_word_that_is_no_unit_is_refused_and_not_read_by_its_first_letter(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="Invalid duration"):
        parse_span(text)
    with pytest.raises(typer.BadParameter):
        parse_time(f"{text} ago")


def test_a_span_that_time_does_not_hold_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="before the year 1"):
        parse_time("1000000d-ago")
    with pytest.raises(typer.BadParameter, match="too long"):
        parse_time(f"{'9' * 20}d-ago")
