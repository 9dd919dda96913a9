"""Text of `tidegate status` for a terminal, 80 columns wide: the content of the ops page in the same order."""

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import typer

from deploy.command_line import CommandLine
from deploy.local.text_format import (
    clean_text,
    format_count,
    format_latency,
    format_rate,
    format_span,
    format_time_left,
)
from monitoring.alerts.model import shown
from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = ["render_status", "render_waterfall"]

WIDTH: Final = 80
INDENT: Final = 11
SHOWN_SILENT: Final = 3
BEHIND_SECONDS: Final = 60.0
YOUNG_SECONDS: Final = 600.0
"""Below this age of a run, an empty budget needs no action: the start alone uses the budget of so short a time."""
LATE_SECONDS: Final = 5.0
SHOWN_REASONS: Final = 4
SOON_DAYS: Final = 2.0
COUNTED_DAYS: Final = 365.0
COLOURS: Final = {
    "ready": "green", "done": "green", "ok": "green", "starting": "yellow", "waiting": "yellow", "pending": "yellow",
    "restarting": "red", "failed": "red", "down": "red", "firing": "red",
}  # fmt: skip

Status = Mapping[str, Any]
Paint = Callable[[str, str], str]

LABELS: Final = {
    "device_to_gateway": "device > gateway",
    "gateway_to_kafka": "gateway > Kafka",
    "kafka_to_read": "Kafka > read",
    "read_to_commit": "read > commit",
    "commit_to_queryable": "commit > query",
}
FIGURES: Final = 34
"""Columns of label and figures in the waterfall."""


def render_status(status: Status, *, colour: bool = False, height: int | None = None) -> str:
    """Return parts, figures, alerts and the next step as text.

    Args:
        status: result of `read_status`.
        colour: use terminal colours for states.
        height: most lines; with a limit, lines that need a person come first, and the last line counts the cut ones.
    """
    paint: Paint = _painted if colour else lambda text, kind: text
    line = CommandLine.of_dict(status.get("command") or {})
    status = {**status, "alerts": line.fill_alerts(status["alerts"])}
    head, parts = [_headline(status, paint)], list(_parts(status["parts"], paint))
    figures, alerts = list(_figures(status, line)), list(_alerts(status, paint))
    step = list(_next(line.fill(_step(status))))
    text = _joined(head, parts, figures, alerts, step)
    if height is None or text.count("\n") < height:
        return text
    lines = _joined(head, alerts, step, list(_short_parts(status["parts"], paint)), figures).split("\n")
    if len(lines) <= height:
        return "\n".join(lines)
    return "\n".join([*lines[: height - 1], f"… {len(lines) - height + 1} more lines: `tidegate status`"])


def render_waterfall(hops: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield a line per hop with p50, p95 and a bar. Each bar is as long as the p50, and begins where the bar above it ends."""
    known = [hop for hop in hops if hop["p50"] is not None]
    if known:
        yield f"{'':<20}p50    p95"
    whole = sum(max(0.0, hop["p50"]) for hop in known)
    columns, begun = max(1, width - FIGURES), 0.0
    for hop in known:
        ended = begun + max(0.0, hop["p50"])
        left, right = (round(columns * at / whole) if whole else 0 for at in (begun, ended))
        bar = " " * min(left, columns - 1) + "#" * max(1, right - left)
        yield f"{LABELS.get(hop['hop'], hop['hop']):<17}{_short(hop['p50']):>6} {_short(hop['p95']):>6} ms {bar}".rstrip()
        begun = ended


def _short(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    most = 1000 * LATENCY_BUCKETS[-1]
    return f"{milliseconds:.0f}" if milliseconds < most else f">{most:.0f}"


def _joined(*sections: Sequence[str]) -> str:
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _painted(text: str, kind: str) -> str:
    return typer.style(text, fg=COLOURS.get(kind), bold=True if kind in ("firing", "failed") else None)


def _headline(status: Status, paint: Paint) -> str:
    missed = " and ".join(name for name, slo in status["slo"].items() if slo.get("burns"))
    if not status["ready"]:
        state = paint("Not ready.", "failed")
    else:
        state = paint(f"Ready, below its objective: {missed}.", "pending") if missed else paint("Ready.", "ready")
    return f"{state}  Page {status['page']}" if status.get("page") else state


def _parts(parts: Mapping[str, Mapping[str, Any]], paint: Paint) -> Iterator[str]:
    if parts:
        yield f"{'PART':<12} {'STATE':<10} {'FOR':>7}  DETAIL"
    for name, part in parts.items():
        restarts = f" ({part['restarts']} restarts)" if part.get("restarts") else ""
        since = format_span(time.time() - part["since"]) if part.get("since") else ""
        state = paint(f"{part['state']:<10}", part["state"])
        yield f"{name:<12} {state} {since:>7}  {_cut(clean_text(part['detail']), 45 - len(restarts))}{restarts}".rstrip()


def _short_parts(parts: Mapping[str, Mapping[str, Any]], paint: Paint) -> Iterator[str]:
    """Yield the healthy parts in one line, the others as usual."""
    well = {name: part for name, part in parts.items() if part["state"] in ("ready", "done")}
    yield from _parts({name: part for name, part in parts.items() if name not in well}, paint)
    yield from _labelled("Well", _wrapped(list(well), ", "))


def _figures(status: Status, line: CommandLine) -> Iterator[str]:
    yield from _labelled("Rates", _wrapped(_rates(status["rates"]) or ["not known yet"], "  "))
    latency = status["latency_ms"]
    if latency.get("p50") is not None:
        shown = "  ".join(f"{name} {format_latency(value)}" for name, value in latency.items() if value is not None)
        yield _row("Latency", f"{shown}  (canary: publish to row)")
        yield from _waits(status)
        yield from (_row("", line) for line in render_waterfall(status["hops"], WIDTH - INDENT))
    else:
        yield from _waits(status, "Latency")
    yield from _labelled("Lag", [_lag(status, topic) for topic in _behind_first(status["lag"])] or ["not known yet"])
    yield from _labelled("SLO", [_objective(name, slo) for name, slo in status["slo"].items()])
    if devices := status["devices"]:
        yield from _labelled("Devices", _devices(devices))
    if errors := status["errors"]:
        more = [f"{len(errors) - SHOWN_REASONS} more reasons"] if len(errors) > SHOWN_REASONS else []
        yield from _labelled(
            "Rejected", _wrapped([*(_refused(entry) for entry in errors[:SHOWN_REASONS]), *more], ", ")
        )
    if audit := status["audit"]:
        said = [_audit(audit), *(line.fill(clean_text(note)) for note in audit.get("notes") or ())]
        yield from _labelled("Audit", [each for text in said for each in textwrap.wrap(text, WIDTH - INDENT)])
    if (disk := status.get("disk") or {}).get("free_bytes") is not None:
        yield _row("Disk", _disk(disk))


def _waits(status: Status, label: str = "") -> Iterator[str]:
    """Yield lines about readings that have not come back: the percentiles do not include them."""
    wanted = status["slo"].get("freshness", {}).get("threshold_seconds") or LATE_SECONDS
    waited = status["canary"].get("oldest_wait_seconds") or 0.0
    if waited > wanted:
        yield _row(label, f"the oldest reading not read back has waited {format_span(waited)}")


def _row(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}"


def _labelled(label: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield _row("" if number else label, line)


def _wrapped(words: Sequence[str], between: str) -> list[str]:
    """Return lines of whole words; a name with its figure counts as one word."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1] + between + word) <= WIDTH - INDENT:
            lines[-1] += between + word
        else:
            lines.append(word)
    return lines


def _refused(entry: Mapping[str, Any]) -> str:
    now = f" (now {format_rate(entry['per_second'])})" if entry["per_second"] else ""
    return f"{entry['reason']} {format_count(entry['total'])}{now}"


def _rates(rates: Mapping[str, float | None]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {format_rate(value)}"
        for name, value in rates.items()
        if value is not None and (value or rates.get("received") or name == "received")
    ]


def _behind_first(lag: Mapping[str, float]) -> list[str]:
    return sorted(lag, key=lambda topic: -lag[topic])


def _lag(status: Status, topic: str) -> str:
    text = f"{topic} {format_count(status['lag'][topic])}"
    if behind := status["lag_seconds"].get(topic):
        text += f", oldest {format_span(behind)} old"
    if (left := status["time_to_data_loss_seconds"].get(topic)) is not None:
        text += f", Kafka drops it in {format_time_left(left)}"
    return text


def _objective(name: str, slo: Mapping[str, Any]) -> str:
    wanted = f"wanted {100 * slo['objective']:g} %"
    if slo.get("good_ratio") is None:
        return f"{name} not known yet ({wanted})"
    left = f", {_budget(slo['budget_left'])}" if slo.get("budget_left") is not None else ""
    window = f" of {format_span(slo['window_seconds'])}" if slo.get("window_seconds") else ""
    return f"{name} {100 * slo['good_ratio']:.2f} %{window} ({wanted}{left})"


def _budget(left: float) -> str:
    return f"{100 * left:.0f} % of the budget left" if left > 0 else "no budget left"


def _devices(devices: Mapping[str, Any]) -> list[str]:
    """Return the counts of devices, and those silent for longest. The first count comes seconds after a first start."""
    if not devices["known"]:
        return ["none counted yet"]
    silent = sorted(devices.get("silent", []), key=lambda device: -device["silent_seconds"])
    many = devices.get("silent_count") or len(silent)
    quiet = format_count(many) if many else "none"
    numbers = f"{format_count(devices['known'])} known, {format_count(devices['active'])} active, {quiet} silent"
    if stale := devices.get("values_stale"):
        numbers += f"; {format_count(stale)} of {format_count(devices['values_known'])} values out of date"
    names = [
        f"{_cut(clean_text(one['device']), 30)} for {format_span(one['silent_seconds'])}"
        for one in silent[:SHOWN_SILENT]
    ]
    more = [f"{format_count(many - len(names))} more"] if names and many > len(names) else []
    return [numbers, *_wrapped([*names, *more], ", ")]


def _audit(audit: Mapping[str, Any]) -> str:
    faults = {
        "unaccounted": audit["unaccounted"],
        "stored twice": audit["duplicate_rows"],
        "out of order": audit["order_violations"],
    }
    found = ", ".join(f"{format_count(number)} {what}" for what, number in faults.items() if number)
    ago = format_span(time.time() - audit["at"])
    if not audit["messages"] and not found:
        return f"nothing to prove yet: no message in its window, {ago} ago"
    return f"{format_count(audit['messages'])} messages {ago} ago: {f'NOT balanced, {found}' if found else 'balanced'}"


def _disk(disk: Mapping[str, Any]) -> str:
    """Return the free space of the fullest disk, and when the first is full: by the minute if that is soon."""
    free, days = f"{shown(disk['free_bytes'], 'bytes')} free", disk.get("full_days")
    if days is None:
        return free
    at = datetime.fromtimestamp(disk["full_at"], UTC).astimezone() if days <= COUNTED_DAYS else None
    when = f" ({at:{'%Y-%m-%d %H:%M' if days < SOON_DAYS else '%Y-%m-%d'}})" if at else ""
    return f"{free}, full in {format_time_left(days * 86_400)}{when} at the pace of the last hours"


def _alerts(status: Status, paint: Paint) -> Iterator[str]:
    order = {"firing": 0, "pending": 1}
    page = status.get("page") or ""
    for alert in sorted(status["alerts"], key=lambda alert: order.get(alert.get("state", ""), -1)):
        if "name" not in alert:
            yield from textwrap.wrap(
                f"! {clean_text(alert['text'])}", WIDTH, subsequent_indent="  ", break_on_hyphens=False
            )
            continue
        state = alert["state"]
        yield f"{paint(state, state)} {alert['name']} ({alert['severity']}, {format_span(time.time() - alert['since'])})"
        if causes := alert.get("explained_by"):
            yield f"  follows from {causes[0]}"
            continue
        yield from _indented(clean_text(alert["text"]))
        if actions := alert["actions"]:
            yield from _indented(f"1. {clean_text(actions[0])}")
        if alert["runbook"]:
            yield f"  {page.rstrip('/')}{alert['runbook']}"


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _next(words: str) -> Iterator[str]:
    """Yield the lines of the next step."""
    yield from textwrap.wrap(words, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _step(status: Status) -> str:
    firing = [alert for alert in status["alerts"] if alert.get("state") == "firing"]
    worst = next((alert for alert in firing if not alert.get("explained_by")), None)
    late = next((name for name, part in status["parts"].items() if part["state"] not in ("ready", "done")), None)
    if worst is not None:
        return f"Next: step 1 of {worst['name']} above; all steps are in its runbook."
    if late is not None:
        where = "`tidegate logs {0}` says" if "pid" in status else "the log of {0} (journalctl, docker logs) says"
        return f"Next: {where.format(late)} what {late} is doing."
    if slow := _slow(status):
        return slow
    if status["alerts"]:
        return "Next: see the lines above."
    return "Nothing to do." if status["ready"] else "Next: look again in some seconds; the pipeline is not ready yet."


def _slow(status: Status) -> str | None:
    """Return a next step for something that works too slowly, while no alert fires about it; None if all is fast."""
    topic, behind = max(status["lag_seconds"].items(), key=lambda each: each[1] or 0.0, default=("", 0.0))
    if (behind or 0.0) > BEHIND_SECONDS:
        return f"Next: {topic} is {format_span(behind)} behind. Run `tidegate status --watch` to see whether the delay shrinks."
    for name, slo in status["slo"].items():
        if slo.get("budget_left") is not None and slo["budget_left"] <= 0:
            if 0 < (slo.get("window_seconds") or 0) < YOUNG_SECONDS:
                seen = format_span(slo["window_seconds"])
                return f"Next: look again in some minutes; {name} was below its objective in the first {seen}."
            return (
                f"Next: {name} has no budget left. `tidegate alerts explain {name.title()}BudgetBurns` has the steps."
            )
    return None


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
