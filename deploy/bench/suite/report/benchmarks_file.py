"""`BENCHMARKS.md`: text written by hand, and between two marks the tables of the newest results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deploy.bench.suite.report.goal_summary import render_standing
from deploy.bench.suite.report.markdown import render_markdown
from ingest.contract.errors import ConfigError

__all__ = ["BEGIN", "END", "fill_file", "render_tables"]

BEGIN: Final = "<!-- results: `tidegate bench report` writes what follows -->"
END: Final = "<!-- end of results -->"


def render_tables(results: Sequence[Mapping[str, Any]]) -> str:
    """Render the results by goal, the versions, and a section per scenario."""
    versions = {name: value for result in results for name, value in result["versions"].items()}
    listed = ", ".join(f"{name} {value}" for name, value in versions.items())
    parts = ["## Results by goal", render_standing(results), f"Versions: {listed}.", render_markdown(results)]
    return "\n\n".join(parts)


def fill_file(file: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Put the tables between the marks of a file; a missing file is made, other text of the file stays as it is.

    Raises:
        ConfigError: the file has no such marks, or cannot be read or written.
    """
    try:
        text = file.read_text("utf-8") if file.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
        head, begin, rest = text.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not (begin and end):
            msg = f"{file}: has no line `{BEGIN}` followed by a line `{END}`. Add both where the tables belong."
            raise ConfigError(msg)
        file.write_text(f"{head}{begin}\n\n{render_tables(results)}\n{end}{tail}", "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file}: cannot write tables ({error}). Name another file with --markdown."
        raise ConfigError(msg) from error
