"""The command line `tidegate`: data goes to stdout, messages go to stderr.

Exit codes: 0 ok, 1 failed, 2 usage, 69 something needed is unavailable, 78 configuration, 130 interrupted.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Final

import typer
from typer.exceptions import TyperException

from deploy.commands import (
    alerts,
    audit,
    backup,
    bench,
    canary,
    certs,
    chaos,
    cluster,
    config,
    correct,
    decode,
    demo,
    device,
    dlq,
    doctor,
    down,
    erase,
    export,
    gateway,
    groups,
    init,
    logs,
    maintain,
    make_topics,
    monitor,
    produce,
    profile,
    repair,
    route,
    soak,
    sql,
    status,
    stream,
    streams,
    tables,
    tail,
    topics,
    trace,
    up,
)
from deploy.process_signals import keep_files_private
from ingest.contract.errors import RetryableError, TidegateError, UnavailableError

__all__ = ["app", "main"]

FOR_OTHERS: Final = frozenset({"bench", "certs", "export", "init"})
"""First words of commands that write files for other users and programs, with the modes that the user's umask gives. Keys and
passwords among them are private by a mode of their own."""

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Sensor readings from MQTT through Kafka into Delta tables, exactly once, with proof.\n\n"
    "First steps: run `tidegate up`, then in another terminal `tidegate status` and\n"
    "`tidegate sql 'select * from readings limit 5'`. Commands that print data accept --json.\n\n"
    "Exit codes: 0 ok, 1 failed, 2 usage, 69 unavailable, 78 configuration.",
)
up.register(app)
down.register(app)
status.register(app)
logs.register(app)
sql.register(app)
tables.register(app)
topics.register(app)
produce.register(app)
tail.register(app)
groups.register(app)
audit.register(app)
decode.register(app)
trace.register(app)
repair.register(app)
backup.register(app)
dlq.register(app)
device.register(app)
profile.register(app)
route.register(app)
doctor.register(app)
config.register(app)
init.register(app)
gateway.register(app)
stream.register(app)
make_topics.register(app)
canary.register(app)
maintain.register(app)
monitor.register(app)
correct.register(app)
erase.register(app)
streams.register(app)
alerts.register(app)
export.register(app)
bench.register(app)
chaos.register(app)
cluster.register(app)
certs.register(app)
demo.register(app)
soak.register(app)


@app.callback()
def _begin(context: typer.Context) -> None:
    """Keep other users out of the files that a command and its children make."""
    if context.invoked_subcommand not in FOR_OTHERS:
        keep_files_private()


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; report every error in one sentence on stderr."""
    try:
        code = app(args=arguments, prog_name="tidegate", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TidegateError as error:
        typer.echo(str(error), err=True)
        # A one-shot command reports a retryable error as unavailable (exit 69).
        return UnavailableError.exit_code if isinstance(error, RetryableError) else error.exit_code
    except TyperException as error:
        show = getattr(error, "show", None)
        typer.echo(error.format_message(), err=True) if show is None else show()
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("Interrupted.", err=True)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        typer.echo(_unexpected(error, sys.argv[1:] if arguments is None else arguments), err=True)
        return 1


def _unexpected(error: Exception, arguments: Sequence[str]) -> str:
    """Write the traceback of an unexpected error to a file, and return a sentence that names the error and the file.

    The file is this user's alone and replaces no other file. Secrets of the settings are masked in both.
    """
    from deploy.secret_values import mask_secrets

    try:
        what = mask_secrets(" ".join(str(error).split()))[:200]
    except Exception:  # an error of Spark asks its JVM for its text, and the JVM may be gone
        what = "(its text cannot be read)"
    from deploy.settings import fault_folder

    try:
        file = fault_folder(arguments) / f"tidegate-fault-{int(time.time())}-{os.getpid()}.txt"
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(mask_secrets("".join(traceback.format_exception(error))))
    except (OSError, TidegateError):
        return f"Unexpected error: {type(error).__name__}: {what}"
    return f"Unexpected error: {type(error).__name__}: {what}. The traceback is in {file}; please report it."


if __name__ == "__main__":
    main()
