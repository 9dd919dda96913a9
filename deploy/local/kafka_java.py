"""Start of a JVM of Kafka or its ZooKeeper: measured options, a log of bounded size, and texts in the form of Java's files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.java import Java
from deploy.settings_file import write_private

__all__ = ["java_command", "last_error", "private_command", "property_lines", "write_log_settings"]

_LOG4J = """Configuration:
  status: WARN
  Appenders:
    RollingFile:
      name: file
      fileName: "{folder}/server.log"
      filePattern: "{folder}/server.log.%i"
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
      Policies: {{SizeBasedTriggeringPolicy: {{size: 10 MB}}}}
      DefaultRolloverStrategy: {{max: 3}}
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: file}}}}
"""


def java_command(
    java: Java, classpath: Sequence[Path], *, log_settings: Path | None, temporary: Path | None = None
) -> list[str]:
    """The command up to the main class; without `log_settings` it logs nothing.

    `temporary`: where its compression libraries unpack themselves at each start.
    """
    # Measured at 1,000 messages/s: without the second compiler it starts and runs with a third less CPU;
    # the serial collector takes the least memory, and is the sound one on every Java (see deploy/local/java.py).
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    if temporary is not None:
        options.append(f"-Djava.io.tmpdir={temporary}")
    if java.version[0] >= 24:
        options.append("--enable-native-access=ALL-UNNAMED")
    options.append(
        "-Dlog4j2.level=OFF" if log_settings is None else f"-Dlog4j2.configurationFile={log_settings.as_uri()}"
    )
    return [str(java.executable), *options, "-cp", ":".join(str(path) for path in classpath)]


@contextmanager
def private_command(command: Sequence[str], file: Path) -> Iterator[list[str]]:
    """Return the same command of Java with its arguments in a private file, which is removed after the block.

    Every user of a machine can read command lines, so no password belongs there.
    """
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in command[1:])
    write_private(file, "".join(f'"{word}"\n' for word in escaped))
    try:
        yield [command[0], f"@{file}"]
    finally:
        file.unlink(missing_ok=True)


def write_log_settings(file: Path, folder: Path) -> None:
    """Have a JVM write `server.log` in this folder, moved aside at 10 MB, three kept."""
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(_LOG4J.format(folder=_yaml_text(str(folder))), encoding="utf-8")


def property_lines(values: Mapping[str, Any]) -> str:
    """A properties file; what is None is left out."""
    return "".join(f"{key}={_property_text(str(value))}\n" for key, value in values.items() if value is not None)


def last_error(log: Path) -> str:
    """The last error in a log that `write_log_settings` asked for; empty where there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "It did not write a log."
    return next((line for line in reversed(lines) if " ERROR " in line or " FATAL " in line), "")[:300]


def _property_text(text: str) -> str:
    """Text as a value of a properties file: Java reads those as Latin-1 and takes a backslash as an escape."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(
        "\\\\" if code == ord("\\") else chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes
    )


def _yaml_text(text: str) -> str:
    """Text within double quotes of a YAML file."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
