"""The JVM parts: exact jars of the lock list, downloaded once, checked by sha256, and used offline by later runs.

The cache is `$XDG_CACHE_HOME/tidegate/jars` (default ~/.cache). A jar gets its place by one rename after the check of its hash,
so every jar there is complete. Later runs check only names and sizes (`--verify` checks all hashes again).
"""

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from deploy.local import maven
from deploy.local.environment import ProgressLine
from deploy.local.java import find_java
from ingest.contract.errors import TidegateError, UnavailableError
from lakehouse.object_store import is_s3

__all__ = [
    "Group",
    "Jar",
    "cache_dir",
    "fetch_jars",
    "jmx_agent",
    "kafka_classpath",
    "lake_jars",
    "main",
    "pyspark_jar",
    "read_lock",
    "spark_jars",
    "zookeeper_classpath",
]

Group = Literal["spark", "kafka", "zookeeper", "s3", "all", "jmx"]
LOCK_FILE = Path(__file__).with_name("jars.lock")
POLL_SECONDS = 0.1
TOLD_EVERY_SECONDS = 1.5
STALLED_SECONDS = 120.0
STALLED_OPTIONAL_SECONDS = 10.0
_MEMBERS = {
    "spark": ("both", "spark"),
    "kafka": ("both", "kafka"),
    # Kafka's last version that runs with a ZooKeeper; a test bed that asks for it fetches it, `make setup` does not.
    "zookeeper": ("kafka", "zookeeper"),
    # The client of an object store; a stream whose tables or checkpoint are there fetches it, `make setup` does not.
    "s3": ("s3",),
    "all": ("both", "spark", "kafka", "jmx"),
    "jmx": ("jmx",),
}
# Kafka and Spark run without the agent that shows their JVMs: a network that is away must not keep them from starting.
_OPTIONAL = ("jmx",)
WITHOUT_AGENT = "Kafka and Spark run without metrics of their JVMs"
# Kafka's libraries that pyspark brings too, in versions that Kafka was proved to run with: 14 downloads fewer.
_SHARED_WITH_PYSPARK = (
    *("jackson-annotations", "jackson-core", "jackson-databind", "jackson-dataformat-yaml"),
    *("log4j-api", "log4j-core", "log4j-slf4j2-impl", "slf4j-api", "snakeyaml"),
    *("scala-library", "scala-reflect", "lz4-java", "snappy-java", "zstd-jni"),
)

_ZOOKEEPER_OF_PYSPARK = (
    *("zookeeper", "zookeeper-jute", "metrics-core", "commons-io", "commons-cli", "log4j-1.2-api"),
    *("jackson-module-scala_2.13", "netty-buffer", "netty-codec", "netty-codec-base", "netty-common", "netty-handler"),
    *("netty-resolver", "netty-transport", "netty-transport-classes-epoll", "netty-transport-native-unix-common"),
)
KAFKA_GROUP = "org.apache.kafka"


@dataclass(frozen=True)
class Jar:
    """One line of the lock list; `size` in bytes."""

    part: str
    group: str
    name: str
    version: str
    size: int
    sha256: str

    @property
    def optional(self) -> bool:
        """True if the pipeline runs without it."""
        return self.part in _OPTIONAL

    @property
    def coordinate(self) -> str:
        """The coordinate in Maven's form."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file_name(self) -> str:
        """The file name in Maven's form."""
        return f"{self.name}-{self.version}.jar"


def read_lock(path: Path = LOCK_FILE) -> list[Jar]:
    """All jars of the lock list."""
    jars = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            part, coordinate, size, sha256 = line.split()
            group, name, version = coordinate.split(":")
            jars.append(Jar(part, group, name, version, int(size), sha256))
    return jars


def cache_dir() -> Path:
    """Return the folder of the jars, shared by all clones of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidegate" / "jars"


def fetch_jars(
    group: Group | Sequence[Jar], progress: Callable[[str], object], *, cache: Path | None = None, verify: bool = False
) -> None:
    """Have all jars of `group` in the cache. Two runs at once are safe: the second waits for the first.

    Of `all`, the JMX agent is there if it can be had: if it is the only one that cannot, `progress` gets a sentence about it.

    Args:
        group: what is needed: a group of the lock list, or jars of another list. Ivy fetches one version of a module at once.
        progress: called at least every 2 s while something is fetched.
        cache: another folder than `cache_dir()`.
        verify: hash existing files too, and fetch wrong ones again.

    Raises:
        UnavailableError: a part cannot be had or has another hash; names it and the next step.
    """
    folder = cache or cache_dir()
    wanted = [jar for jar in read_lock() if jar.part in _MEMBERS[group]] if isinstance(group, str) else list(group)
    if not verify and not _missing(wanted, folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder, progress):
        if verify:
            _drop_wrong(wanted, folder, progress)
        if missing := _missing(wanted, folder):
            try:
                for jars in _resolvable(missing):
                    _fetch(jars, folder, progress)
            except UnavailableError as error:
                if group != "all" or not all(jar.optional for jar in _missing(wanted, folder)):
                    raise
                progress(f"{WITHOUT_AGENT}: {error}")


def spark_jars(cache: Path | None = None) -> list[Path]:
    """Return the jars that Spark needs beyond pyspark's own (for `spark.jars`)."""
    return [_located(jar, cache) for jar in read_lock() if jar.part in _MEMBERS["spark"]]


def lake_jars(*places: str, progress: Callable[[str], object], cache: Path | None = None) -> list[Path]:
    """Return the jars that Spark needs for tables and checkpoints at these places, and fetch those of S3 if one needs them.

    Raises:
        UnavailableError: a part cannot be had; names it and the next step.
    """
    jars = spark_jars(cache)
    if any(is_s3(place) for place in places):
        try:
            fetch_jars("s3", progress, cache=cache)
        except OSError as error:
            message = (
                f"The JVM parts for {', '.join(filter(is_s3, places))} cannot be written to {cache or cache_dir()} "
                f"({error.strerror}). Run `python -m deploy.local.artifacts s3` as a user who may write there, or when an image "
                "is built."
            )
            raise UnavailableError(message) from error
        jars += [_located(jar, cache) for jar in read_lock() if jar.part == "s3"]
    return jars


def kafka_classpath(cache: Path | None = None) -> list[Path]:
    """All that the embedded Kafka and its tools run on: own jars, then those shared with pyspark."""
    own = [_located(jar, cache) for jar in read_lock() if jar.part in _MEMBERS["kafka"]]
    return own + [pyspark_jar(name) for name in _SHARED_WITH_PYSPARK]


def zookeeper_classpath(cache: Path | None = None) -> list[Path]:
    """All that a ZooKeeper, a Kafka of ZooKeeper mode and its tools run on: the newer Kafka's libraries where they fit."""
    wanted = (
        jar for jar in read_lock() if jar.part == "zookeeper" or (jar.part == "kafka" and jar.group != KAFKA_GROUP)
    )
    own = [_located(jar, cache) for jar in wanted]
    return own + [pyspark_jar(name) for name in (*_SHARED_WITH_PYSPARK, *_ZOOKEEPER_OF_PYSPARK)]


def jmx_agent(cache: Path | None = None) -> Path:
    """Return the path of the JMX agent; the caller checks whether it exists."""
    return next((cache or cache_dir()) / jar.file_name for jar in read_lock() if jar.part == "jmx")


def _located(jar: Jar, cache: Path | None) -> Path:
    path = (cache or cache_dir()) / jar.file_name
    if not path.is_file():
        special = {"zookeeper": "tidegate cluster up --zookeeper", "s3": "python -m deploy.local.artifacts s3"}
        fetcher = special.get(jar.part, "make setup")
        message = f"The JVM part {jar.coordinate} is not in {path.parent}; run `{fetcher}` to fetch it."
        raise UnavailableError(message)
    return path


@functools.cache
def pyspark_jar(name: str) -> Path:
    """Return a jar that the pyspark package brings, by its name without the version.

    Raises:
        UnavailableError: the package has none or several of this name.
    """
    # Found without importing pyspark: only lakehouse and streaming may, and it is slow.
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else Path()
    found = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if len(found) != 1:
        message = (
            f"The pyspark package has {len(found)} jars {name} in {folder}, but needs 1; run `make setup` to repair it."
        )
        raise UnavailableError(message)
    return found[0]


def _missing(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not _has_size(folder / jar.file_name, jar.size)]


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _drop_wrong(jars: Sequence[Jar], folder: Path, progress: Callable[[str], object]) -> None:
    progress(f"checking the hashes of {len(jars)} JVM parts")
    for jar in jars:
        path = folder / jar.file_name
        if path.is_file() and _sha256(path) != jar.sha256:
            progress(f"{jar.coordinate} in {folder} was damaged; fetching it again")
            path.unlink()


@contextmanager
def _alone(folder: Path, progress: Callable[[str], object]) -> Iterator[None]:
    """Hold the cache's lock; the kernel frees it with the process, so a killed run blocks no other."""
    with (folder / ".lock").open("w") as file:
        told = 0.0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - told > TOLD_EVERY_SECONDS:
                    progress("another run is fetching the JVM parts; waiting for it")
                    told = time.monotonic()
                time.sleep(POLL_SECONDS)
        yield


def _resolvable(jars: Sequence[Jar]) -> list[list[Jar]]:
    """Return jars per look-up, since Ivy keeps a module's newest version only: ZooKeeper mode's older Kafka has its own."""
    older = [jar for jar in jars if jar.part == "zookeeper"]
    rest = [jar for jar in jars if jar.part != "zookeeper"]
    return [part for part in (rest, older) if part]


def _fetch(jars: Sequence[Jar], folder: Path, progress: Callable[[str], object]) -> None:
    """Let Ivy fetch into a work folder, which a cut-off run leaves for the next to go on from, then prove and move."""
    work = folder / ".ivy"
    jars = sorted(jars, key=lambda jar: jar.optional)
    java, mirror = find_java(), maven.find_mirror(Path.home())
    coordinates = [(jar.group, jar.name, jar.version) for jar in jars]
    progress(f"JVM parts: fetching {len(jars)}, {_megabytes(jars):.1f} MB")
    process = maven.start_ivy(java, pyspark_jar("ivy"), work, coordinates, mirror)
    try:
        _watch(process, jars, work, progress)
    finally:
        process.kill()
        process.wait()
    for jar in jars:
        _accept(jar, maven.fetched_jar(work, jar.file_name), folder, work / "ivy.log")
    shutil.rmtree(work, ignore_errors=True)


def _watch(
    process: "subprocess.Popen[bytes]", jars: Sequence[Jar], work: Path, progress: Callable[[str], object]
) -> None:
    told = moved = time.monotonic()
    before = -1
    patience = STALLED_OPTIONAL_SECONDS if all(jar.optional for jar in jars) else STALLED_SECONDS
    while process.poll() is None:
        now = time.monotonic()
        if now - told >= TOLD_EVERY_SECONDS:
            count, size = maven.count_fetched(work)
            progress(f"JVM parts: {count} of {len(jars)}, {size / 1e6:.1f} of {_megabytes(jars):.1f} MB")
            told, moved, before = now, (moved if size == before else now), size
        if now - moved > patience:
            message = f"Maven sent no data for {patience:.0f} s. Check the network, then run the same command again."
            raise UnavailableError(message)
        time.sleep(POLL_SECONDS)


def _accept(jar: Jar, path: Path | None, folder: Path, log: Path) -> None:
    if path is None:
        said = maven.failure_line(log)
        message = (
            f"The JVM part {jar.coordinate} could not be fetched from Maven ({said}). Check the network, or name a "
            f"mirror in {maven.MIRROR_VARIABLE}, and run the same command again. Ivy's output is in {log}."
        )
        raise UnavailableError(message)
    if (found := _sha256(path)) != jar.sha256:
        path.unlink()
        message = (
            f"The JVM part {jar.coordinate} has the sha256 {found}, but the lock file wants {jar.sha256}; the download was "
            "deleted. Run the same command again. If the error comes back, a mirror serves changed files."
        )
        raise UnavailableError(message)
    path.replace(folder / jar.file_name)


def _megabytes(jars: Sequence[Jar]) -> float:
    return sum(jar.size for jar in jars) / 1e6


def main(arguments: list[str] | None = None) -> int:
    """`python -m deploy.local.artifacts [--verify] [GROUP …]`: what `make setup` runs. Without a group it fetches `all`."""
    given = sys.argv[1:] if arguments is None else arguments
    shown = ProgressLine()
    known: tuple[Group, ...] = get_args(Group)
    if unknown := [word for word in given if word not in (*known, "--verify")]:
        sys.stderr.write(
            f"Unknown group of JVM parts: {unknown[0]}. Name one of {', '.join(known)}, or none for all.\n"
        )
        return 2
    groups = [group for group in known if group in given] or ["all"]
    try:
        before = len(
            _missing([jar for jar in read_lock() if any(jar.part in _MEMBERS[g] for g in groups)], cache_dir())
        )
        for group in groups:
            fetch_jars(
                group, lambda text: shown.show(text, last=text.startswith(WITHOUT_AGENT)), verify="--verify" in given
            )
    except TidegateError as error:
        sys.stderr.write(f"\n{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. The next run continues from here.\n")
        return 130
    if before:
        shown.show(f"JVM parts ready in {cache_dir()}", last=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
