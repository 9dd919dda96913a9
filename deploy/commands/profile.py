"""`tidegate profile ls | show | test | push`: validation profiles, the profile of a device, and its effect on messages."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.commands.options import Data, DryRun, Json, OptionalConfig, show_json

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["register"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Validation profiles: list, show, test, push.")

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of profiles (default: gateway.profiles).", show_default=False),
]


def register(parent: typer.Typer) -> None:
    """Add the group to the command line."""
    parent.add_typer(app, name="profile")


@app.command()
def ls(config: OptionalConfig = None, data: Data = None, folder: Folder = None, as_json: Json = False) -> None:
    """List the profiles with their versions.

    Exit 1 if a file is wrong; the error says why.
    """
    from gateway.profiles.profile_folder import ProfileFolder

    settings = _settings(config, data, folder)
    if settings.gateway.profiles is None:
        _say_none(as_json)
        return
    found = ProfileFolder(Path(settings.gateway.profiles), strict=False)
    active = {profile.label for profile in found.current.active()}
    rows: list[dict[str, Any]] = [
        {
            "name": one.profile.name,
            "version": one.profile.version,
            "applies": one.profile.label in active,
            "devices": list(one.profile.devices),
            "metrics": len(one.profile.metrics),
            "origin": one.profile.origin,
            "file": one.file,
        }
        for one in found.files()
    ]
    if as_json:
        show_json({"folder": settings.gateway.profiles, "profiles": rows, "refused": found.refused})
    else:
        for row in rows:
            state = "" if row["applies"] else "  (a higher version applies)"
            devices = ", ".join(row["devices"]) or "(devices for which a route or the registry names it)"
            typer.echo(f"{row['name']}@{row['version']}  {devices}  {row['metrics']} metrics  {row['file']}{state}")
        for file, fault in found.refused.items():
            typer.echo(f"{file} is wrong: {fault}", err=True)
    raise typer.Exit(1 if found.refused else 0)


@app.command()
def show(
    device: Annotated[str, typer.Argument(help="Device id. The device does not need to have sent anything.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="Topic of the device, whose route may name a profile.", show_default=False),
    ] = None,
    config: OptionalConfig = None,
    data: Data = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show a device's profile and its rules per metric.

    Also shows why this profile applies.
    """
    from gateway.profiles.explain import explain_device
    from gateway.profiles.policy import ProfilePolicy, make_policy
    from gateway.routes import compile_routes

    settings = _settings(config, data, folder)
    policy = make_policy(settings.gateway, settings.routes, live=False)
    match = compile_routes(settings.routes, settings.gateway).match(topic) if topic is not None else None
    found = explain_device(
        policy if isinstance(policy, ProfilePolicy) else ProfilePolicy(),
        device,
        None if isinstance(match, str) else match,
    )
    if as_json:
        show_json(found)
    else:
        _print_device(found)


@app.command()
def test(
    file: Annotated[
        Path, typer.Argument(help="File of JSON lines: {id, topic, payload | payload_base64}; - for stdin.")
    ],
    config: OptionalConfig = None,
    data: Data = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Show what the profiles do to messages, without a server.

    Shows the result of each reading. --json prints one line per message. Exit 1 if anything is rejected.
    """
    import json

    from deploy.commands.options import open_input_lines
    from gateway.profiles.explain import explain_lines
    from gateway.profiles.policy import make_policy

    settings = _settings(config, data, folder)
    policy = make_policy(settings.gateway, settings.routes, live=False)
    counts: Counter[str] = Counter()
    with open_input_lines(file) as lines:
        for found in explain_lines(lines, settings.routes, settings.gateway, policy):
            counts[_ending(found)] += 1
            if as_json:
                typer.echo(json.dumps(found, ensure_ascii=False))
            else:
                _print_message(found)
    summary = ", ".join(f"{counts[name]} {name}" for name in ("stored", "stored in part", "rejected", "ignored"))
    typer.echo(f"{counts.total()} messages: {summary}.", err=True)
    raise typer.Exit(1 if counts["rejected"] or counts["stored in part"] else 0)


@app.command()
def push(
    config: OptionalConfig = None,
    data: Data = None,
    folder: Folder = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Give the profiles of a folder to all gateways with gateway.shared_inputs, through Kafka.

    Kafka then holds the profiles of this folder and no others. The gateways apply them within seconds.
    """
    from deploy.push_inputs import push_inputs
    from gateway.profiles.profile_folder import ProfileFolder
    from gateway.shared_inputs import profile_inputs
    from ingest.contract.errors import ConfigError

    settings = _settings(config, data, folder)
    if settings.gateway.profiles is None:
        msg = "Name the folder of the profiles with --folder, or set gateway.profiles."
        raise typer.BadParameter(msg)
    path = Path(settings.gateway.profiles)
    ProfileFolder(path)
    wanted = profile_inputs(path)
    if not wanted:
        message = f"{path} has no profile (*.toml), and a push without any would remove all. Name another folder with --folder."
        raise ConfigError(message)
    plan = push_inputs(settings.kafka, wanted, profiles=True, dry_run=dry_run)
    if as_json:
        show_json(plan.summary(dry_run=dry_run))
    else:
        typer.echo(plan.sentence("profile", dry_run=dry_run))


def _settings(config: Path | None, data: Path | None, folder: Path | None) -> "Settings":
    """Return the settings of --config, else of an embedded run, else the defaults, with `folder` put in."""
    from deploy.local.locate_settings import locate_settings
    from deploy.settings import data_dir, load_settings

    if config is None and (data is not None or (data_dir(data) / "config.toml").exists()):
        settings = locate_settings(None, data, needs_run=False)
    else:
        settings = load_settings(config)
    if folder is None:
        return settings
    return settings.model_copy(update={"gateway": settings.gateway.model_copy(update={"profiles": str(folder)})})


def _say_none(as_json: bool) -> None:
    if as_json:
        show_json({"folder": None, "profiles": [], "refused": {}})
    typer.echo("There is no folder of profiles: set gateway.profiles, or use --folder.", err=True)


def _ending(found: dict[str, Any]) -> str:
    if found["outcome"] == "reading":
        return "stored in part" if found["rejected"] else "stored"
    return "rejected" if found["outcome"] == "dead_letter" else "ignored"


def _print_message(found: dict[str, Any]) -> None:
    reason = f" ({found['reason']})" if found["reason"] else ""
    typer.echo(f"{found['id']}: {_ending(found)}{reason}")
    told = [one["path"] for check in found["checks"] for one in check["readings"] if one["verdict"] == "refused"]
    for check in found["checks"]:
        because = f" ({check['because']})" if check["because"] else ""
        typer.echo(f"  device {check['device']}, profile {check['profile'] or 'none'}{because}")
        for one in check["readings"]:
            typer.echo(f"    {_sentence(one)}")
    # The format rejects before any profile applies.
    for fault in (*found["rejected"], *([found] if found["outcome"] == "dead_letter" else [])):
        if fault["path"] not in told:
            typer.echo(f"    {_sentence(fault | {'verdict': 'refused'})}")


def _sentence(one: dict[str, Any]) -> str:
    if one["verdict"] == "refused":
        got = f": got {one['got']}" if one.get("got") else ""
        wanted = f", wanted {one['wanted']}" if one.get("wanted") else ""
        return f"rejected {one['path'] or 'the message'}  {one['reason']}{got}{wanted}"
    change = "" if one["stored"] == one["sent"] else f" (sent {one['sent']})"
    reason = f"  {one['reason']}" if one["reason"] else ""
    return f"{one['verdict']:<8} {one['metric']}  {one['stored']}{change}{reason}"


def _print_device(found: dict[str, Any]) -> None:
    registered = "registered" if found["registered"] else "not registered"
    tags = "".join(f", {key}={value}" for key, value in found["tags"].items())
    if found["profile"] is None:
        typer.echo(f"{found['device']} ({registered}{tags}): no profile applies")
        return
    typer.echo(f"{found['device']} ({registered}{tags}): profile {found['profile']}, by {_because(found['because'])}")
    if found["description"]:
        typer.echo(found["description"])
    for metric in found["metrics"]:
        typer.echo(f"  {metric['metric']}: {'; '.join(metric['asks'])}")
        typer.echo(f"    {_policies(metric['on'].items())}")
    typer.echo(f"  any other metric: {found['unknown_metrics']}")
    for other in found["also_matching"]:
        typer.echo(f"Less specific: {other['profile']} by pattern {other['pattern']}", err=True)


def _because(word: str) -> str:
    return {"registry": "the registry", "route": "its route"}.get(word, f"pattern {word}")


def _policies(policies: Iterable[tuple[str, str]]) -> str:
    grouped: dict[str, list[str]] = {}
    for failure, action in policies:
        grouped.setdefault(action, []).append(failure)
    return "; ".join(f"{action}: {', '.join(failures)}" for action, failures in grouped.items())
