"""`tidegate alerts ls | explain`: alerts and their runbooks. Nothing needs to run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from monitoring.alerts.model import Alert

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Alerts: list, explain.")


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="alerts")


@app.command("ls")
def list_alerts(config: OptionalConfig = None, as_json: Json = False) -> None:
    """List the alerts: severity, duration, and what checks them."""
    found = _alerts(config)
    if as_json:
        show_json([_as_dict(alert) for alert in found])
        return
    rows = [(each.name, each.severity, f"{each.for_seconds} s", _checked_by(each), each.summary) for each in found]
    typer.echo(f"{'ALERT':<36} {'SEVERITY':<9} {'FOR':>6}  {'CHECKED BY':<13} SUMMARY")
    for name, severity, held, by, summary in rows:
        typer.echo(f"{name:<36} {severity:<9} {held:>6}  {by:<13} {summary}")


@app.command("explain")
def explain_alert(
    name: Annotated[
        str,
        typer.Argument(help="Name of the alert, with or without Tidegate in front, in any case.", metavar="NAME"),
    ],
    config: OptionalConfig = None,
    as_json: Json = False,
) -> None:
    """Show the runbook of an alert and the conditions that fire it."""
    from monitoring.page.runbooks import runbook_text

    found = [alert for alert in _alerts(config) if _short(alert.name) == _short(name)]
    if not found:
        raise _unknown(name, config)
    runbook = runbook_text(found[0].name)
    if as_json:
        show_json({"name": found[0].name, "runbook": runbook, "rules": [_as_dict(alert) for alert in found]})
        return
    text = f"{runbook}\n## Conditions\n\n" + "\n".join(_condition(alert) for alert in found)
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _alerts(config: Path | None) -> "tuple[Alert, ...]":
    from deploy.settings import load_settings
    from monitoring.alerts.catalog import alerts

    return alerts(load_settings(config).monitoring)


def _unknown(name: str, config: Path | None) -> Exception:
    from difflib import get_close_matches

    from ingest.contract.errors import ConfigError

    names = sorted({alert.name for alert in _alerts(config)})
    short = {_short(each): each for each in names}
    near = get_close_matches(_short(name), short, n=3, cutoff=0.4)
    nearest = f"; nearest: {', '.join(short[each] for each in near)}" if near else ""
    return ConfigError(f"There is no alert {name}{nearest}. See `tidegate alerts ls`.")


def _short(name: str) -> str:
    return name.lower().removeprefix("tidegate")


def _checked_by(alert: "Alert") -> str:
    return "page and rule" if alert.builtin else "rule only"


def _condition(alert: "Alert") -> str:
    held = f" for {alert.for_seconds} s" if alert.for_seconds else ""
    return f"- {alert.severity}{held}: `{alert.signal.promql()}`"


def _as_dict(alert: "Alert") -> dict[str, Any]:
    return {
        "name": alert.name,
        "severity": alert.severity,
        "part": alert.part,
        "summary": alert.summary,
        "impact": alert.impact,
        "causes": alert.causes,
        "actions": alert.actions,
        "expr": alert.signal.promql(),
        "for_seconds": alert.for_seconds,
        "keep_firing_seconds": alert.keep_firing_seconds,
        "labels": dict(alert.labels),
        "builtin": alert.builtin,
        "follows": alert.follows,
    }
