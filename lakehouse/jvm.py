"""Start of the JVM of Spark's driver with our heap, collector, jars, log and inherited files.

PySpark would run a shell script that first starts a launcher JVM. This module starts the JVM directly, and gives PySpark the
connection by the two variables that it reads for that.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import FatalError, UnavailableError
from lakehouse.confine import Confinement
from lakehouse.object_store import given_variables

__all__ = ["JAVA_MODULES", "JvmOptions", "SparkJvm", "is_collector", "spark_home", "start_jvm"]

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0

# Options that Spark's own launcher passes (org.apache.spark.launcher.JavaModuleOptions), without the incubating vector module: a
# runtime image may lack it, and only Spark's machine learning uses it.
JAVA_MODULES: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={module}=ALL-UNNAMED"
        for module in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

# Ctrl-C reaches the whole group of the terminal; it is ours to handle, in order, not the JVM's.
_NO_INTERRUPT: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")

_READ_BY_ALL: Final = (
    "/usr", "/bin", "/lib", "/lib64", "/proc", "/sys", "/dev/zero", "/dev/random", "/dev/urandom", "/etc/alternatives",
    "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd",
    "/etc/resolv.conf", "/etc/ssl/certs", "/etc/timezone",
)  # fmt: skip
"""What Java, the C library and Python read on Linux. /etc as a whole holds secrets that root may read."""
_CONNECTION_VARIABLE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"

_LOG4J: Final = """\
status = error
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}}{{UTC}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True)
class JvmOptions:
    """Options for the start of the JVM.

    `java_home` holds `bin/java`; `jars` are added to PySpark's own; `log_dir` gets `spark.log` (rotated, at most 40 MB) and
    `spark.out` (what the JVM itself prints); `flags` are further JVM flags such as `-XX:+UseSerialGC`. `temp_dir` is for all
    temporary files (default: the system's folder). With a `confinement`, the JVM gets only those rights, and what it needs:
    Java, Spark and the jars to read, `log_dir` and `temp_dir` to write.
    """

    java_home: Path
    jars: tuple[Path, ...]
    log_dir: Path
    heap: str = "1g"
    flags: tuple[str, ...] = ()
    temp_dir: Path | None = None
    confinement: Confinement | None = None


@dataclass(slots=True)
class SparkJvm:
    """A running JVM and the py4j gateway to it."""

    process: subprocess.Popen[bytes]
    gateway: Any
    log: Path

    def close(self) -> None:
        """End the JVM; it also ends by itself once this process is gone, since its standard input closes then."""
        with suppress(Exception):  # the JVM may be gone already
            self.gateway.shutdown()
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_jvm(options: JvmOptions, conf: Mapping[str, str], *, keep_open: Sequence[int] = ()) -> SparkJvm:
    """Start the JVM and connect py4j.

    Args:
        options: heap, jars, flags and log folder.
        conf: Spark settings; `spark.driver.extraJavaOptions` would come too late for this JVM, use `options.flags`.
        keep_open: file descriptors that the JVM inherits: a lock held through one is held until the JVM is gone too.

    Raises:
        UnavailableError: a jar or Java is missing.
        FatalError: the JVM ended before it answered; names its log.
    """
    _check_files(options)
    options.log_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-spark-", dir=options.temp_dir) as folder:
        answer = Path(folder) / "connection"
        process = _spawn(options, conf, answer, keep_open)
        port, secret = _await_connection(process, answer, options)
        # The JVM reads these files during its start only, which is over now.
        gateway = _connect(port, secret)
    return SparkJvm(process, gateway, options.log_dir / "spark.log")


def _check_files(options: JvmOptions) -> None:
    java = options.java_home / "bin" / "java"
    if not java.exists():
        message = f"There is no Java at {java}. Set JAVA_HOME to a Java 17 or newer, or run `tidegate doctor`."
        raise UnavailableError(message)
    missing = [jar for jar in options.jars if not jar.exists()]
    if missing:
        message = f"Spark needs {missing[0].name}, which is not in {missing[0].parent}. Run `make setup` to get the JVM parts."
        raise UnavailableError(message)


def _spawn(
    options: JvmOptions, conf: Mapping[str, str], answer: Path, keep_open: Sequence[int]
) -> subprocess.Popen[bytes]:
    home = spark_home()
    log4j, settings = answer.with_name("log4j2.properties"), answer.with_name("spark.properties")
    log4j.write_text(_LOG4J.format(log=_escaped(str(options.log_dir / "spark.log"))), encoding="ascii")
    # In a file of a private folder, not on the command line, which every user of the machine may read.
    settings.write_text("".join(f"{_escaped(k)}={_escaped(v)}\n" for k, v in conf.items()), encoding="ascii")
    classpath = os.pathsep.join([*map(str, options.jars), str(home / "jars" / "*"), *_hadoop_folders(conf)])
    command = [
        *_NO_INTERRUPT,
        *_confined(options, answer.parent),
        str(options.java_home / "bin" / "java"),
        *JAVA_MODULES,
        *_collector(options.flags),
        *options.flags,
        f"-Xmx{options.heap}",
        # A deep regular expression runs on the stream's thread when a query is stopped: the default stack is too small.
        "-Xss4m",
        "-Duser.timezone=UTC",
        # Java does not look at TMPDIR.
        f"-Djava.io.tmpdir={options.temp_dir or tempfile.gettempdir()}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "-XX:+ExitOnOutOfMemoryError",
        "-cp",
        classpath,
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(settings),
        "pyspark-shell",
    ]
    # Settings in our environment may be secrets, and Spark needs none of them.
    given = given_variables()
    env = {
        **{
            name: value
            for name, value in os.environ.items()
            if not (name.startswith("TIDEGATE_") and "__" in name) and name not in given
        },
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "PYSPARK_PYTHON": sys.executable,
        _CONNECTION_VARIABLE: str(answer),
        **({} if options.temp_dir is None else {"TMPDIR": str(options.temp_dir)}),
    }
    env.pop("SPARK_REMOTE", None)
    with (options.log_dir / "spark.out").open("wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=env,
            pass_fds=tuple(keep_open),
        )


def _confined(options: JvmOptions, folder: Path) -> tuple[str, ...]:
    """Return the words that confine the JVM's command; none without a confinement."""
    if options.confinement is None:
        return ()
    read = [options.java_home, spark_home(), Path(__file__).with_name("pools.xml"), *Path("/etc").glob("java*")]
    read += [Path(sys.prefix), Path(sys.base_prefix), *{jar.parent for jar in options.jars}]
    # A rule holds for what a path leads to, not for the link.
    read += [jar.resolve().parent for jar in options.jars]
    write = [folder, options.log_dir, *([] if options.temp_dir is None else [options.temp_dir])]
    return replace(
        options.confinement,
        read=(*options.confinement.read, *_READ_BY_ALL, *dict.fromkeys(map(str, read))),
        write=(*options.confinement.write, *dict.fromkeys(map(str, write))),
        environment=(*options.confinement.environment, _CONNECTION_VARIABLE, "TMPDIR"),
    ).prefix()


def _hadoop_folders(conf: Mapping[str, str]) -> list[str]:
    """Return the folders of Hadoop's configuration, in which Spark finds YARN.

    Spark's own scripts put them on the class path. With other masters they stay out: their default file system would take a
    plain path away from this process, which reads it as a local one.
    """
    if conf.get("spark.master") != "yarn":
        return []
    return [folder for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (folder := os.environ.get(name))]


def _escaped(text: str) -> str:
    """Escape a text for Java's Properties, whatever encoding they assume for the file."""
    plain = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./-_,*")
    units = (c if c in plain else c.encode("utf-16-be").hex(" ", 2).split() for c in text)
    return "".join(unit if isinstance(unit, str) else "".join(f"\\u{each}" for each in unit) for unit in units)


def _collector(flags: Sequence[str]) -> list[str]:
    # Batches leave much garbage and little else: on few cores the parallel collector takes least of them. (G1 of Java
    # 25.0.0 to 25.0.2 damages zstd data; the caller's flags may ask for another one.)
    return [] if any(map(is_collector, flags)) else ["-XX:+UseParallelGC"]


def is_collector(flag: str) -> bool:
    """Return whether a JVM flag chooses the garbage collector."""
    return flag.startswith("-XX:+Use") and flag.endswith("GC")


def spark_home() -> Path:
    """Return the folder of PySpark, which holds Spark's jars."""
    import pyspark

    return Path(pyspark.__file__).parent


def _await_connection(process: subprocess.Popen[bytes], answer: Path, options: JvmOptions) -> tuple[int, str]:
    deadline = time.monotonic() + START_SECONDS
    while not answer.exists():
        if process.poll() is not None:
            message = (
                f"Spark's JVM ended with code {process.returncode} while starting; see {options.log_dir / 'spark.out'}."
            )
            raise FatalError(message)
        if time.monotonic() > deadline:
            process.kill()
            message = f"Spark's JVM did not answer within {START_SECONDS:g} s; see {options.log_dir / 'spark.out'}."
            raise FatalError(message)
        time.sleep(0.02)
    data = answer.read_bytes()
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()


def _connect(port: int, secret: str) -> Any:
    from pyspark.java_gateway import launch_gateway

    given = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(given)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in given:
            os.environ.pop(name, None)
    return gateway
