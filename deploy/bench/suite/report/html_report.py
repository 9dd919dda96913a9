"""The report as one HTML file with library, style and data, so that it opens from a mail or from CI's artifacts."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import monitoring
from deploy.bench.environment import hardware_line
from deploy.bench.suite.report.charts import charts_of
from deploy.bench.suite.report.growth import growth_table
from deploy.bench.suite.report.html_tables import WORDS, cells_table, heat_tables
from deploy.bench.suite.report.markdown import busy_note, peers_note, render_markdown
from ingest.contract.errors import ConfigError

__all__ = ["check_folder", "render_report", "write_report"]

_HERE: Final = Path(__file__).parent
_UPLOT: Final = Path(monitoring.__file__).parent / "page" / "assets" / "uplot"


def check_folder(folder: Path) -> None:
    """Make the folder of a report, so that hours of measuring do not end at one that cannot be written.

    Raises:
        ConfigError: it is not a folder, or this user may not write there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"{folder}: cannot write the report ({error.strerror}). Name another folder with --report."
        raise ConfigError(msg) from error


def write_report(results: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write `report.html`, `report.md` and `result.json` into a folder, which is made where it is missing; the first's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(list(results), indent=2, ensure_ascii=False), "utf-8")
    (folder / "report.md").write_text(render_markdown(results), "utf-8")
    report = folder / "report.html"
    report.write_text(render_report(results), "utf-8")
    return report


def render_report(results: Sequence[Mapping[str, Any]]) -> str:
    """The file's text."""
    charts = {f"c{number}": charts_of(result) for number, result in enumerate(results)}
    sections = "\n".join(_section(f"c{number}", result) for number, result in enumerate(results))
    names = ", ".join(str(result["scenario"]) for result in results)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            # Nothing is fetched, whatever a scenario's texts hold.
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'\">",
            f"<title>Tidegate bench: {escape(names)}</title>",
            f"<style>{(_UPLOT / 'uPlot.min.css').read_text('utf-8')}\n{(_HERE / 'report.css').read_text('utf-8')}</style>",
            "</head><body><header><h1>Tidegate bench</h1>",
            _machine(results[0]) if results else "",
            f"</header>{_overview(results)}{sections}",
            f'<script type="application/json" id="charts">{_inert(charts)}</script>',
            f"<script>{(_UPLOT / 'uPlot.iife.min.js').read_text('utf-8')}</script>",
            f"<script>{(_HERE / 'report.js').read_text('utf-8')}</script>",
            "</body></html>",
        ]
    )


def _inert(value: object) -> str:
    """JSON that cannot end the element it is in."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _machine(result: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    revision = f"; revision {result['revision']}" if result.get("revision") else ""
    return (
        f'<p>{escape(hardware_line(result["hardware"]).strip())}</p><p class="quiet">{escape(versions + revision)}</p>'
    )


def _overview(results: Sequence[Mapping[str, Any]]) -> str:
    """A row per scenario, where there are several."""
    if len(results) < 2:
        return ""
    rows = ""
    for result in results:
        verdicts = [cell["met"] for cell in result["cells"] if cell["goal"]]
        counts = "".join(f'<td class="number">{verdicts.count(verdict)}</td>' for verdict in (True, False, None))
        name = escape(result["scenario"])
        rows += (
            f'<tr><td><a href="#{name}">{name}</a></td><td>{escape(result["title"])}</td>'
            f'<td class="number">{len(result["cells"])}</td>{counts}<td class="number">{len(result["faults"])}</td></tr>'
        )
    heads = "".join(f"<th>{head}</th>" for head in ("scenario", "", "cells", *WORDS.values(), "failures"))
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _section(key: str, result: Mapping[str, Any]) -> str:
    cells = result["cells"]
    verdicts = [cell["met"] for cell in cells if cell["goal"]]
    counts = f"{verdicts.count(True)} met, {verdicts.count(False)} missed, {verdicts.count(None)} undecided"
    parts = [
        f'<section><h2 id="{escape(result["scenario"])}">{escape(result["title"] or result["scenario"])}</h2>',
        f'<p class="quiet">{escape(result["scenario"])}; {escape(counts)}; medians of {result["repeats"]}; load '
        f"{result['hardware']['load_1m']} before, {result['load_after_1m']} after. {escape(result['source'])}</p>",
    ]
    if result["note"]:
        parts.append(f"<p>{escape(result['note'])}</p>")
    if note := peers_note(result):
        parts.append(f"<p>{note}</p>")
    if busy := busy_note(result):
        parts.append(f'<p class="notice">{escape(busy)}</p>')
    if result["interrupted"]:
        parts.append('<p class="notice">The run was interrupted; cells that it did not reach are missing.</p>')
    parts += [f'<p class="notice">{escape(fault)}</p>' for fault in dict.fromkeys(result["faults"])]
    parts += [cells_table(result), growth_table(result), heat_tables(cells)]
    parts.append(f'<div data-charts="{key}"></div></section>')
    return "\n".join(parts)
