"""Text forms of figures, and of foreign text that a terminal can show safely."""

from math import isinf

from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = [
    "clean_text",
    "format_count",
    "format_counted",
    "format_latency",
    "format_rate",
    "format_span",
    "format_time_left",
]


def clean_text(text: str) -> str:
    """Text of others in one line: nothing in it steers the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def format_count(number: float) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,.0f}"


def format_counted(number: int, noun: str) -> str:
    """Such as `1 record` and `2,000 records`."""
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"


def format_latency(number: float) -> str:
    """A latency; what is past the last bound of the histogram is only known to be."""
    most = LATENCY_BUCKETS[-1]
    return f"{format_count(number)} ms" if number < 1000 * most else f"> {most:g} s"


def format_rate(per_second: float) -> str:
    """Return a rate per second, with no more digits than matter."""
    return f"{per_second:,.0f}/s" if per_second >= 1000 else f"{per_second:.3g}/s"


def format_span(seconds: float) -> str:
    """A span of time in its largest fitting unit: 0.4 s, 90 s, 12 min, 3 h, 4 d."""
    if 0 < seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def format_time_left(seconds: float) -> str:
    """Return how long something lasts; above a year it is not counted."""
    return "more than a year" if isinf(seconds) or seconds > 365 * 86_400 else format_span(seconds)
